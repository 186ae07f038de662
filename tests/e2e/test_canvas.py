"""A stored canvas loses Redis and every worker in its middle, and ends with the right result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis
from celery import chain, chord, group, signature

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.control import secrets
from slackwater_tasks.models import Secret
from slackwater_tasks.submission.canvas import submit_canvas
from slackwater_tasks.submission.service import store_script
from tests.support import handlers  # noqa: F401 - exports them here too
from tests.support.platform import BRIEF, Platform, kill_all

pytestmark = pytest.mark.e2e


def test_a_chord_survives_the_loss_of_redis_and_of_every_worker(platform: Platform, redis_client: redis.Redis) -> None:
    platform.set(**BRIEF)
    platform.dispatcher()
    platform.upkeep()
    first = platform.worker()
    double, total = signature("test.double"), signature("test.total")
    slow = [signature("demo.sleep", args=[3], immutable=True) for _ in range(3)]
    canvas = chain(
        signature("demo.add", args=[1, 2]),
        chord(group(double.clone(), chain(double.clone(), double.clone()), *slow), total.clone()),
        double.clone(),
    )
    found = submit_canvas(platform.tenant, canvas, name="durable")
    platform.wait(found.task_ids[4], TaskState.RUNNING)
    kill_all(first)
    redis_client.flushall()
    platform.worker("w2")
    end = platform.wait(found.result_ids[0])
    assert (end.state, end.result) == (TaskState.SUCCEEDED, ((6 + 12 + 3 * 3) * 2)), end.error
    assert all(platform.row(task_id).state == TaskState.SUCCEEDED for task_id in found.task_ids)


def test_subtasks_secrets_and_references_of_running_tasks(platform: Platform, tmp_path: Path, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "SECRETS_KEYS": ["a key of the platform"]}
    secrets.put(platform.tenant, "MAIL_KEY", "correct horse")
    assert b"correct horse" not in bytes(Secret._plain.get().sealed)
    platform.dispatcher()
    platform.upkeep()
    worker = platform.worker(SLACKWATER_SECRETS_KEYS="a key of the platform")
    ids = platform.workflow(
        {"name": "split", "handler": "test.split", "args": [3, str(tmp_path), True]},
        {"name": "total", "handler": "test.total", "depends_on": ["split"]},
        {"name": "length", "handler": "test.secret", "args": ["MAIL_KEY"]},
        {"name": "none", "handler": "test.secret", "args": ["nobody"], "total_attempts": 1},
        {"name": "spill", "handler": "test.spill", "args": ["MAIL_KEY"], "total_attempts": 1},
        {"name": "user", "handler": "demo.echo", "kwargs": {"value": {"name": {"first": "Ada"}}}},
        {
            "name": "greet", "handler": "demo.echo", "depends_on": ["user"],
            "args": [{"$from": "user", "path": "name.first"}],
        },
    )  # fmt: skip
    total = platform.wait(ids["total"], timeout=30)
    assert total.result == 0 + 2 + 4, "each part once, though the one who split was killed after it had"
    assert [a.outcome for a in platform.attempts(ids["split"])] == [Outcome.WORKER_LOST, Outcome.SUCCEEDED]
    assert platform.wait(ids["length"]).result == len("correct horse")
    assert "the tenant has no secret 'nobody'" in platform.wait(ids["none"]).error
    assert "https://user:***@example.org does not answer" in platform.wait(ids["spill"]).error
    assert platform.wait(ids["greet"]).result == "Ada"
    content = b'printf "%s" "$SLACKWATER_SECRET_MAIL_KEY" | wc -c; echo "$SLACKWATER_SECRET_MAIL_KEY"\n'
    shown = platform.wait(platform.submit(script=store_script(platform.tenant, "secret.sh", content).sha256))
    text = shown.logs(manager="_plain").get().text
    assert text.split() == ["13", "***"], "read, and hidden in the log"
    assert "correct horse" not in worker.output
