"""A worker's wall clock is set while tasks run: caps are times that pass, and not what a clock says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_schedules.models import ScheduleFire
from slackwater_schedules.services import create_schedule
from slackwater_tasks.models import Task
from tests.lab.torture.clocks import Clocks, compiler
from tests.support.platform import Platform
from tests.support.processes import manage
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(compiler() is None, reason="a clock of one's own needs a C compiler"),
]


def test_a_step_of_the_wall_clock_neither_hides_nor_makes_a_cap(platform: Platform, tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    platform.dispatcher()
    platform.worker("w1", concurrency=2, **clocks.env("w1"))
    endless = platform.submit("demo.sleep", 60.0, execution_cap_s=3.0, total_attempts=1)
    short = platform.submit("demo.sleep", 7.0, execution_cap_s=600.0, total_attempts=1)
    for task_id in (endless, short):
        platform.wait(task_id, TaskState.RUNNING)

    clocks.set("w1", -3600.0)
    assert platform.wait(endless, timeout=60).state == TaskState.FAILED
    (attempt,) = platform.attempts(endless)
    assert attempt.outcome == Outcome.CAP_EXCEEDED

    clocks.set("w1", 3600.0)
    assert platform.wait(short, timeout=60).state == TaskState.SUCCEEDED, platform.story(short)
    for task_id, lasted in ((endless, 3.0), (short, 7.0)):
        (attempt,) = platform.attempts(task_id)
        assert lasted <= (attempt.finished_at - attempt.started_at).total_seconds() < lasted + 15


@pytest.mark.slow
def test_a_step_of_the_only_beats_clock_neither_stops_nor_doubles_a_schedule(
    platform: Platform, tmp_path: Path
) -> None:
    """Nor one of upkeep's, of the dispatcher's or of the worker's."""
    clocks = Clocks(tmp_path)
    command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "slackwater", "beat", "--pidfile=", "-l", "INFO"]
    platform.start("dispatcher", manage("run_dispatcher"), **clocks.env("dispatcher"))
    platform.start("upkeep", manage("run_upkeep"), **clocks.env("upkeep"))
    platform.start("beat", command, **clocks.env("beat"))
    platform.worker("w1", concurrency=2, **clocks.env("w1"))
    create_schedule(
        platform.tenant,
        {"name": "each second", "kind": "interval", "rule": {"every_s": 1}, "task": {"handler": "demo.echo"}},
    )

    def succeeded() -> int:
        return Task.objects.unscoped().filter(state=TaskState.SUCCEEDED).count()  # the test is no tenant

    for step in (0.0, -3600.0, 3600.0, 0.0):
        for name in ("dispatcher", "upkeep", "beat", "w1"):
            clocks.set(name, step)
        before = succeeded()
        wait_until(lambda b=before: succeeded() > b + 3, message=f"schedules fire and tasks run at {step:+g} s")  # type: ignore[misc]
    fires = ScheduleFire.objects.unscoped().values_list("fire_at", flat=True)  # the test is no tenant
    assert len(set(fires)) == len(fires)
