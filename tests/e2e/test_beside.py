"""Coroutines and threads: many at once in a child, each with its own cap and cancellation, and an exact account."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.models import Attempt, LiveTask
from slackwater_tasks.submission.service import submit_many
from tests.support.platform import Platform, children_of
from tests.support.processes import ManagedProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e
SECONDS = 3.0


def test_many_run_beside_one_another(platform: Platform, tmp_path: Path) -> None:
    worker = platform.up()
    for way, count in (("nap", 60), ("doze", 12)):
        (folder := tmp_path / way).mkdir()
        _many_run_beside_one_another(platform, worker, way, count, folder)


def test_hundreds_run_in_a_child_and_none_is_started_by_itself(platform: Platform, tmp_path: Path) -> None:
    platform.dispatcher()
    platform.upkeep()
    platform.worker(concurrency=1)
    go, count = tmp_path / "go", 300
    ids = submit_many(platform.tenant, [{"handler": "test.nap_until", "args": [str(go)]}] * count).task_ids
    running = LiveTask.objects.unscoped().filter(task_id__in=ids, state=TaskState.RUNNING)  # the test is no tenant
    wait_until(lambda: running.count() == count, timeout=30, message="all run at once")
    assert min(running.values_list("batch", flat=True)) > 1, "of those that came together none is started by itself"
    go.touch()
    wait_until(lambda: platform.unfinished() == 0, timeout=30, message="all are done")


def _many_run_beside_one_another(
    platform: Platform, worker: ManagedProcess, way: str, count: int, tmp_path: Path
) -> None:
    handler, gated, go, again = f"demo.{way}", f"test.{way}_until", tmp_path / "go", tmp_path / "again"
    ids = submit_many(platform.tenant, [{"handler": handler, "args": [SECONDS]}] * count).task_ids
    wait_until(lambda: platform.unfinished() == 0, message="all are done")
    attempts = list(Attempt.objects.unscoped().filter(task_id__in=ids))  # the test is no tenant
    assert len(attempts) == count
    begins, ends = [a.started_at for a in attempts], [a.finished_at for a in attempts]
    assert (max(ends) - min(begins)).total_seconds() < SECONDS * count / 2 / 2, "two at a time would take twice as long"

    capped = platform.submit(handler, 60, execution_cap_s=0.3, total_attempts=2, retry={"base_s": 0.05})
    cancelled = platform.submit(handler, 60)
    steady = platform.submit(gated, str(go))
    platform.wait(cancelled, TaskState.RUNNING)
    platform.wait(steady, TaskState.RUNNING)
    cancel(platform.tenant.pk, cancelled)
    assert platform.wait(cancelled, timeout=30).state == TaskState.CANCELLED
    task = platform.wait(capped, timeout=30)
    assert (task.state, task.error) == (TaskState.FAILED, "its execution cap was reached")
    assert [a.outcome for a in platform.attempts(capped)] == [Outcome.CAP_EXCEEDED] * 2
    go.touch()
    assert platform.wait(steady).state == TaskState.SUCCEEDED
    assert len(platform.attempts(steady)) == 1, "its neighbours' ends did not touch it"

    killed = [platform.submit(gated, str(again)) for _ in range(4)]
    for task_id in killed:
        platform.wait(task_id, TaskState.RUNNING)
    for child in children_of(worker):
        child.kill()
    again.touch()
    for task_id in killed:
        assert platform.wait(task_id, timeout=30).state == TaskState.SUCCEEDED
    lost = [a for t in killed for a in platform.attempts(t) if a.outcome != Outcome.SUCCEEDED]
    assert len(lost) <= 2, "only one that ran by itself in its child can be told to have killed it"
