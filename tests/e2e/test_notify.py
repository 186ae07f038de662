"""Clients are told by the real processes: nothing is lost when the one that tells is killed in the middle."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from scheduler_ext.core.states import TaskState
from slackwater_monitoring.models import Delivery
from slackwater_monitoring.notify import subscriptions
from tests.support.platform import Platform
from tests.support.processes import ManagedProcess, manage
from tests.support.receiver import receiving
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
PRIVATE = {"SLACKWATER_WEBHOOK_PRIVATE": "true", "SLACKWATER_WEBHOOK_PORTS": "0"}
EVENTS = ["task.started", "task.succeeded", "task.cap_exceeded", "task.failed"]


def upkeep(platform: Platform) -> ManagedProcess:
    return platform.start("upkeep", manage("run_upkeep"), **PRIVATE)


def test_every_event_arrives_though_upkeep_is_killed(platform: Platform, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "SECRETS_KEYS": [platform.env["SLACKWATER_SECRET_KEY"]]}
    settings.SLACKWATER = {**settings.SLACKWATER, "WEBHOOK_PRIVATE": True, "WEBHOOK_PORTS": (0,)}
    with receiving() as receiver:
        made = subscriptions.create(platform.tenant, {"url": receiver.url, "events": EVENTS})
        assert made.secret
        platform.dispatcher()
        platform.worker()
        first = upkeep(platform)
        ids = [platform.submit("demo.echo", n) for n in range(60)]
        capped = platform.submit("demo.sleep", kwargs={"seconds": 30}, execution_cap_s=0.3, total_attempts=1)
        wait_until(lambda: len(receiver.got) > 5, message="some have arrived")
        os.kill(first.pid, signal.SIGKILL)
        assert platform.wait(capped).state == TaskState.FAILED
        for task_id in ids:
            assert platform.wait(task_id).state == TaskState.SUCCEEDED
        # What the killed one had claimed is another's once its lease is over.
        Delivery._plain.filter(state="pending").update(next_attempt_at="2020-01-01T00:00:00Z")
        upkeep(platform)

        def told() -> set[tuple[str, str]]:
            return {(one.json["data"]["task_id"], one.event) for one in receiver.got}

        wanted = {(str(task_id), event) for task_id in ids for event in ("task.started", "task.succeeded")}
        wanted |= {(str(capped), event) for event in ("task.started", "task.cap_exceeded", "task.failed")}
        wait_until(lambda: told() >= wanted, message="all have arrived")
        assert told() == wanted
