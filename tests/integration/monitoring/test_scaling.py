"""A command or a webhook starts and stops workers: called by one process, seldom, with what is wanted and what there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.management import call_command
from django.test import Client

from slackwater_dashboard import live
from slackwater_monitoring.notify.webhook_signature import signature
from slackwater_monitoring.scaling import ScalingThread
from slackwater_monitoring.scaling_calls import calls
from slackwater_resources.models import Node
from slackwater_tasks.read.autoscaling import advice
from tests.support.cell import Cell, sql
from tests.support.hand_worker import HandWorker
from tests.support.receiver import receiving

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def cell(redis_client: redis.Redis) -> Iterator[Cell]:
    made = Cell(redis_client)
    Node.objects.update(slots={"process": 4}, capacity=[64_000, 65_536, 10_000, 10_000, 10**7, 100])
    yield made
    made.store.db.close()


def test_advice_by_labels_and_who_may_go(cell: Cell) -> None:
    (idle,) = advice("default")
    assert (idle.action, idle.wanted, idle.have, idle.kind, idle.release) == ("fewer", 0, 1, "", ("hand-1",))
    second = HandWorker("hand-2")
    Node.objects.filter(pk=second.node.pk).update(labels=["gpu"], slots={"process": 1})
    for _ in range(2):
        cell.submit(require_labels=["gpu"])
    gpu, whole = advice("default")
    assert (gpu.labels, gpu.action, gpu.wanted, gpu.have, gpu.kind) == ("gpu", "more", 3, 1, "process")
    assert gpu.reason == "3 workers with gpu wanted by process, 1 there"
    assert (whole.labels, whole.action, whole.release) == ("", "fewer", ("hand-1",)), (
        "the other is wanted for its labels"
    )
    cell.submit(require_labels=["made-up"])
    assert [one.labels for one in advice("default")] == ["gpu", ""], "what no node ever had asks for none"


def test_calls_are_made_once_and_seldom_and_are_shown(cell: Cell, settings: Any, tmp_path: Path) -> None:
    wrote = tmp_path / "told"
    for _ in range(9):
        cell.submit()
    with receiving() as receiver:
        settings.SLACKWATER = {
            **settings.SLACKWATER, "SCALE_WEBHOOK": receiver.url, "ALERT_WEBHOOK_SECRET": SECRET,
            "SCALE_COMMAND": ("sh", "-c", f"cat >> {wrote}; echo $SCALE_ACTION $SCALE_WANTED >> {wrote}"),
        }  # fmt: skip
        one, another = ScalingThread(), ScalingThread()
        for thread in (one, another, one):
            thread.step()
        (told,) = receiver.got
        body, action = wrote.read_text().splitlines()[0].rsplit("}", 1)
        said = json.loads(body + "}")
        assert told.json["data"] == said
        assert (said["cell"], said["labels"], said["wanted"], said["have"]) == ("default", "", 3, 1)
        assert (told.event, action) == ("workers.more", "more 3")
        assert said["reason"] == f"3 workers wanted by {said['kind']}, 1 there"
        given = told.headers
        assert given["webhook-signature"] == signature(
            [SECRET], given["webhook-id"], int(given["webhook-timestamp"]), told.body
        )
        sql("UPDATE slackwater_tasks_livetask SET state = 2, not_before = now() + interval '1 day'")
        sql("UPDATE slackwater_monitoring_scaling SET called_at = now() - interval '1 day'")
        one.step()
        assert len(receiver.got) == 1, "it has had too many for a moment only"
        sql("UPDATE slackwater_monitoring_scaling SET fewer_since = now() - interval '301 seconds'")
        one.step()
        assert receiver.got[1].json["data"]["release"] == ["hand-1"]
        assert receiver.events() == ["workers.more", "workers.fewer"]
        receiver.answer = lambda _: (500, {})
        settings.SLACKWATER = {
            **settings.SLACKWATER, "SCALE_COMMAND": ("sh", "-c", "echo no room >&2; exit 3"), "SCALE_COOLDOWN_S": 0.0,
        }  # fmt: skip
        one.step()
    (row,) = calls()
    assert (row["calls"], row["failures"]) == (3, 1)
    assert row["error"] == "command: it ended with 3 no room; webhook: it answered 500"
    text = Client().get("/metrics").content.decode()
    assert 'slackwater_scale_calls_failed_total{cell="default",labels=""} 1.0' in text
    live._memory = live._Memory()
    assert live.snapshot()["scaling"][0]["error"] == row["error"]
    out = StringIO()
    call_command("nodes", "--wanted", "--json", stdout=out)
    assert json.loads(out.getvalue())["calls"][0]["failures"] == 1


def test_a_command_that_hangs_or_is_not_there(cell: Cell, settings: Any) -> None:
    given = {**settings.SLACKWATER, "SCALE_COOLDOWN_S": 0.0, "SCALE_TIMEOUT_S": 0.2}
    for words, error in (
        (("sh", "-c", "sleep 600 & wait"), "command: it was killed after 0.2 s"),
        (("/nowhere/scale",), "command: [Errno 2] No such file or directory: '/nowhere/scale'"),
    ):
        settings.SLACKWATER = {**given, "SCALE_COMMAND": words}
        ScalingThread().step()
        assert calls()[0]["error"] == error
