"""An effect happens once although the process that does it is killed, wherever it is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection

from scheduler_ext.core.states import Outcome, TaskState
from tests.support.platform import Platform
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e


def transfers() -> list[tuple[str, int]]:
    """What was moved."""
    with connection.cursor() as cur:
        cur.execute("SELECT key, cents FROM test_transfer ORDER BY key")
        return cur.fetchall()


@pytest.fixture
def ready(platform: Platform) -> Platform:
    """The platform with the tests' handlers, and a table that holds money."""
    with connection.cursor() as cur:
        cur.execute("DROP TABLE IF EXISTS test_transfer")
        cur.execute("CREATE TABLE test_transfer (key text NOT NULL, cents int NOT NULL)")
    platform.dispatcher()
    platform.upkeep()
    platform.worker()
    return platform


def test_an_effect_happens_once(ready: Platform, tmp_path: Path) -> None:
    """One platform: each trial kills no more than the children that run its own tasks."""
    for trial in (_ten_dollars_are_sent_once_wherever_the_worker_is_killed, _verify_settles_the_doubt_of_a_charge_elsewhere,
                  _without_a_way_to_verify_the_doubt_is_told_and_nothing_repeated):  # fmt: skip
        (folder := tmp_path / trial.__name__).mkdir()
        trial(ready, folder)
    wait_until(lambda: ready.unfinished() == 0, message="nothing is left")


def _ten_dollars_are_sent_once_wherever_the_worker_is_killed(ready: Platform, tmp_path: Path) -> None:
    orders = {}
    for order, die in [("a", "before commit"), ("b", "after commit"), ("c", "")]:
        folder = tmp_path / order
        folder.mkdir()
        orders[order] = ready.submit("test.transfer", order, 1000, str(folder), die)
    for order, task_id in orders.items():
        task = ready.wait(task_id, timeout=30)
        assert (task.state, task.result) == (TaskState.SUCCEEDED, {"cents": 1000}), task.error
        lost = [a for a in ready.attempts(task_id) if a.outcome == Outcome.WORKER_LOST]
        assert len(lost) == (order != "c"), "the worker was killed where it should be"
    assert transfers() == [("a", 1000), ("b", 1000), ("c", 1000)]
    repeat = ready.wait(ready.submit("test.transfer", "a", 1000, str(tmp_path)))
    assert repeat.result == {"cents": 1000}, "another task with the key finds what the first one did"
    assert len(transfers()) == 3


def _verify_settles_the_doubt_of_a_charge_elsewhere(ready: Platform, tmp_path: Path) -> None:
    orders = {}
    for order, die in [("before", "before effect"), ("after", "after effect"), ("settled", "after settling")]:
        folder = tmp_path / order
        folder.mkdir()
        orders[order] = ready.submit("test.charge", order, str(folder), die)
    for order, task_id in orders.items():
        task = ready.wait(task_id, timeout=30)
        assert (task.state, task.result) == (TaskState.SUCCEEDED, order), task.error
        assert ready.attempts(task_id)[0].outcome == Outcome.WORKER_LOST
        assert (tmp_path / order / "bank").read_text() == f"{order}\n", "charged once"


def _without_a_way_to_verify_the_doubt_is_told_and_nothing_repeated(ready: Platform, tmp_path: Path) -> None:
    doubt = ready.submit(
        "test.charge", "doubt", str(tmp_path), "after effect", total_attempts=3, kwargs={"verify": False}
    )
    task = ready.wait(doubt, timeout=30)
    assert task.state == TaskState.FAILED
    assert "InDoubt" in task.error
    assert "was begun by the task" in task.error
    assert (tmp_path / "bank").read_text() == "doubt\n"
