"""A worker's wall clock is set while tasks run: caps are times that pass, and not what a clock says."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_ext.core.states import Outcome, TaskState
from tests.lab.torture.clocks import Clocks, compiler
from tests.support.platform import Platform

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(compiler() is None, reason="a clock of one's own needs a C compiler"),
]


def test_a_step_of_the_wall_clock_neither_hides_nor_makes_a_cap(platform: Platform, tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    platform.dispatcher()
    platform.worker("w1", concurrency=2, **clocks.env("w1"))
    endless = platform.submit("demo.sleep", 60.0, execution_cap=3.0, total_attempts=1)
    short = platform.submit("demo.sleep", 7.0, execution_cap=600.0, total_attempts=1)
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
