"""Long tasks on real workers: they yield, go on elsewhere, and lose no more than what follows their last checkpoint."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_resources import services as nodes
from slackwater_resources.models import Handler, Node
from slackwater_tasks.models import Attempt, Checkpoint, TaskEvent
from slackwater_tasks.submission.service import store_script
from tests.support.platform import BRIEF, Platform, kill_all, none_at_work
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

COUNTING = """#!/usr/bin/env python3
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["CHECKPOINT_DIR"])
kept = folder / "at"
began = at = int(kept.read_text()) if kept.exists() else 0
asked = False

def save():
    fresh = folder / ".at"
    with fresh.open("w") as file:
        file.write(str(at))
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(kept)

def stop(*_):
    global asked
    asked = True

signal.signal(signal.SIGTERM, stop)
to = json.load(open(os.environ["SLACKWATER_INPUTS"]))["args"][0]
while at < to:
    time.sleep(0.05)
    at += 1
    save()
    if asked and at < to:
        sys.exit(75)
pathlib.Path(os.environ["SLACKWATER_RESULT"]).write_text(json.dumps({"from": began, "to": at}))
"""


def saved(task_id: UUID) -> int:
    """Number of its newest checkpoint."""
    rows = Checkpoint.objects.unscoped().filter(task_id=task_id)  # the test is no tenant
    return max(rows.values_list("number", flat=True), default=0)


def wait_for_checkpoint(task_id: UUID, number: int = 3) -> None:
    wait_until(lambda: saved(task_id) >= number, message=f"checkpoint {number} is stored", timeout=30)


def counting_handler(platform: Platform, to: int, **fields: Any) -> UUID:
    wait_until(lambda: Handler.objects.filter(name="demo.count", checkpoints=True).exists(), message="it is exported")
    return platform.submit("demo.count", to, **fields)


def counting_script(platform: Platform, to: int, **fields: Any) -> UUID:
    script = store_script(platform.tenant, "count.py", COUNTING.encode())
    return platform.submit(args=[to], script=script.sha256, checkpoints=True, **fields)


def outcomes(platform: Platform, task_id: UUID) -> list[Outcome]:
    return [Outcome(attempt.outcome) for attempt in platform.attempts(task_id)]


@pytest.mark.parametrize("kind", ["handler", pytest.param("script", marks=pytest.mark.slow)])
def test_a_worker_that_is_stopped_loses_no_work(platform: Platform, kind: str) -> None:
    platform.set(checkpoint_every_s=0.2)
    first = platform.up()
    task_id = (counting_handler if kind == "handler" else counting_script)(platform, 100)
    wait_for_checkpoint(task_id, 2)
    first.send(signal.SIGTERM)
    platform.worker("w2")
    first.wait(30)
    task = platform.wait(task_id, timeout=30)
    assert task.state == TaskState.SUCCEEDED, platform.story(task_id)
    assert outcomes(platform, task_id) == [Outcome.YIELDED, Outcome.SUCCEEDED]
    one, two = platform.attempts(task_id)
    assert one.node_id != two.node_id
    assert (one.number, two.number, task.attempts_used) == (1, 1, 1), "yielding spends no attempt"
    result: Any = task.result
    assert result["to"] == 100
    assert result["from"] > 0, "it went on from its checkpoint"


@pytest.mark.parametrize("kind", ["handler", pytest.param("script", marks=pytest.mark.slow)])
def test_a_worker_that_vanishes_costs_what_follows_the_last_checkpoint(platform: Platform, kind: str) -> None:
    platform.set(checkpoint_every_s=0.2, **BRIEF)
    first = platform.up()
    task_id = (counting_handler if kind == "handler" else counting_script)(platform, 100)
    wait_for_checkpoint(task_id)
    kill_all(first)
    kept = saved(task_id)
    platform.worker("w2")
    task = platform.wait(task_id, timeout=40)
    assert task.state == TaskState.SUCCEEDED, platform.story(task_id)
    assert outcomes(platform, task_id) == [Outcome.WORKER_LOST, Outcome.SUCCEEDED]
    result: Any = task.result
    if kind == "handler":
        assert result["from"] >= kept, "each step was saved"
    assert result["from"] > 0


def test_a_damaged_checkpoint_is_passed_over(platform: Platform) -> None:
    platform.set(**BRIEF)
    first = platform.up()
    task_id = counting_handler(platform, 100)
    wait_for_checkpoint(task_id)
    kill_all(first)
    wait_until(none_at_work, message="what it was saving is saved")
    with connection.cursor() as cur:
        cur.execute("SELECT max(number) FROM slackwater_tasks_checkpoint WHERE task_id = %s", (task_id,))
        newest = cur.fetchone()[0]
        cur.execute(
            "UPDATE slackwater_tasks_checkpoint SET content = %s WHERE task_id = %s AND number = %s",
            (b"55", task_id, newest),
        )
    platform.worker("w2")
    task = platform.wait(task_id, timeout=40)
    assert task.result == {"from": newest - 1, "to": 100}, "the one before the damaged one was used"
    events = TaskEvent.objects.unscoped().filter(task_id=task_id)  # the test is no tenant
    reasons = list(events.values_list("reason", flat=True))
    assert f"checkpoint {newest} is damaged: the one before it is used" in reasons


def test_an_administrator_drains_a_node_and_takes_it_back(platform: Platform, tmp_path: Path) -> None:
    platform.dispatcher()
    platform.upkeep()
    platform.worker("w1")
    counting = counting_handler(platform, 400)
    wait_for_checkpoint(counting, 1)
    go = tmp_path / "go"
    running = platform.submit("test.until", str(go))
    platform.wait(running, TaskState.RUNNING)
    waiting = [platform.submit("demo.sleep", 0.1) for _ in range(3)]
    node = Node.objects.get(name="w1@test")
    nodes.drain_node(node)
    platform.wait(counting, TaskState.READY)
    assert outcomes(platform, counting) == [Outcome.YIELDED]
    go.touch()
    assert platform.wait(running).state == TaskState.SUCCEEDED, "what has no checkpoints is finished"
    assert {platform.state(task_id) for task_id in waiting} == {TaskState.READY}
    node.refresh_from_db()
    nodes.activate_node(node)
    for task_id in waiting:
        assert platform.wait(task_id).state == TaskState.SUCCEEDED
    platform.wait(counting, TaskState.RUNNING)


def test_what_has_not_begun_is_handed_back_while_what_runs_runs_on(platform: Platform, tmp_path: Path) -> None:
    """Drain a busy node: short tasks claimed ahead, one long one that runs on to its end."""
    platform.dispatcher()
    platform.upkeep()
    worker = platform.worker("w1", concurrency=1)
    go = tmp_path / "go"
    running = platform.submit("test.until", str(go))
    platform.wait(running, TaskState.RUNNING)
    stuck = [platform.submit("demo.sleep", 0.1) for _ in range(5)]
    node = Node.objects.get(name="w1@test")
    with connection.cursor() as cur:  # claims that lie in its queues, as they would under load
        cur.execute(
            "UPDATE slackwater_tasks_livetask SET state = 4, node_id = %s, fence = fence + 1, "
            "claim_expires_at = clock_timestamp() + interval '1 hour' WHERE task_id = ANY(%s)",
            (node.pk, stuck),
        )
    worker.send(signal.SIGTERM)
    wait_until(
        lambda: {platform.state(task_id) for task_id in stuck} == {TaskState.READY},
        message="they are handed back",
    )
    assert platform.state(running) is TaskState.RUNNING
    go.touch()
    assert platform.wait(running).state == TaskState.SUCCEEDED
    worker.wait()
    assert not Attempt.objects.unscoped().filter(task_id__in=stuck).exists()  # the test is no tenant


def test_what_neither_ends_nor_saves_is_ended_after_the_grace_and_runs_again(
    platform: Platform, tmp_path: Path
) -> None:
    platform.set(drain_grace_s=1.0)
    first = platform.up()
    go = tmp_path / "go"
    task_id = platform.submit("test.until", str(go), total_attempts=2)
    once = platform.submit("demo.sleep", 60.0, total_attempts=1)
    platform.wait(task_id, TaskState.RUNNING)
    platform.wait(once, TaskState.RUNNING)
    first.send(signal.SIGTERM)
    first.wait(30)
    assert platform.wait(once).state == TaskState.FAILED, "what may run only once does not run twice"
    assert platform.state(task_id) is TaskState.READY
    assert outcomes(platform, task_id) == [Outcome.PREEMPTED]
    go.touch()
    platform.worker("w2")
    assert platform.wait(task_id).state == TaskState.SUCCEEDED
    assert platform.row(task_id).attempts_used == 1
