"""What becomes of a script that ends: what it was asked, what its sandbox says, and its exit code are weighed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import ScriptWork, Started
from scheduler_ext.sandbox.base import Ended
from scheduler_ext.sandbox.pool import SlotPool
from scheduler_ext.worker.agent.scripts import ScriptRun

NOWHERE = cast("SlotPool", None)
"""Nothing is run here."""


@pytest.fixture
def run() -> ScriptRun:
    work = ScriptWork(content=b"", folder="", trusted=False, vector=(1_000, 128, 32, 0, 0, 0))
    task = Started("an-id", 1, 1, "", "", "", [], {}, 1_000, 1, "")
    return ScriptRun(SchedulerConf(), task, work, NOWHERE, Path("/nowhere"), {})


def ended(code: int, exceeded: str = "") -> Ended:
    return Ended(code=code, exceeded=exceeded, result=b"7" if code == 0 else None)


@pytest.mark.parametrize("how", ["its keeper ended it", "its agent ended it"])
def test_what_ended_well_when_the_lease_was_over_is_left_to_the_ledger(run: ScriptRun, how: str) -> None:
    exceeded = "lease" if how == "its keeper ended it" else ""
    if not exceeded:
        run.abandon()
    well = run._finished(0.0, ended(0, exceeded))
    assert (well.outcome, well.result, well.error) == (Outcome.SUCCEEDED, "7", None)
    killed = run._finished(0.0, ended(-9, exceeded))
    assert (killed.outcome, killed.error) == (Outcome.WORKER_LOST, "its node's lease was over")


def test_what_used_too_much_has_failed_though_it_came_to_its_end(run: ScriptRun) -> None:
    over = run._finished(0.0, ended(0, "memory"))
    assert (over.outcome, over.error) == (
        Outcome.RESOURCE_EXCEEDED, "memory: it used more than the 128 MiB of its tier",
    )  # fmt: skip


def test_who_watches_a_script_goes_with_it_though_it_was_asked_to_end_in_that_moment(run: ScriptRun) -> None:
    """Its slot runs another script next, which nobody may kill."""

    class Slot:
        killed = 0

        def stop(self) -> None:
            pass

        def kill(self) -> None:
            self.killed += 1

    async def story(turns: int) -> bool:
        run._changed, run.asked, slot = asyncio.Event(), None, Slot()
        watch = asyncio.ensure_future(run._watch(cast("Any", slot)))
        await asyncio.sleep(0)
        run.stop(Outcome.CANCELLED)
        for _ in range(turns):
            await asyncio.sleep(0)
        watch.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        return watch.cancelled() and not slot.killed

    assert [turns for turns in range(5) if not asyncio.run(story(turns))] == []
