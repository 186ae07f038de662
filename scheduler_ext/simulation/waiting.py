"""What waits in lines of a simulated run, by tenant and in order of arrival, and what room is kept for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from scheduler_ext.core.types import MILLI, LineView, Reason
from scheduler_ext.policies.incremental_tree import RunningTree
from scheduler_ext.round.gate import Gate
from scheduler_ext.simulation.model import Job
from scheduler_ext.simulation.timers import Timers

LOOKED_AT: Final = 8
"""Jobs of each tenant, those waiting longest, for which room may be kept."""


class Waiting:
    """The waiting jobs of one run; only with backfill."""

    def __init__(self) -> None:
        self._queues: dict[int, OrderedDict[int, Job]] = {}
        self.turns: dict[str, float] = {}
        """When room was last kept for each top-level account."""
        self._kept: Any = None

    @property
    def kept(self) -> tuple[LineView, Any] | None:
        """The job that room is kept for, in the line where it waits by now: one short of time has moved on."""
        return None if self._kept is None else (self._kept.line, self._kept)

    def keep(self, found: tuple[LineView, Any] | None) -> None:
        self._kept = None if found is None else found[1]

    def add(self, job: Job) -> None:
        self._queues.setdefault(job.tenant, OrderedDict())[job.index] = job

    def go_on(self, jobs: Sequence[Job]) -> None:
        """Add jobs that have been parked beside their lines: they came before what has waited meanwhile."""
        for job in reversed(jobs):
            self.add(job)
            self._queues[job.tenant].move_to_end(job.index, last=False)

    def remove(self, job: Job) -> None:
        """Take out what starts, is parked, or can never start."""
        del self._queues[job.tenant][job.index]
        if self._kept is job:
            self._kept = None

    def longest(self) -> Iterator[tuple[LineView, Any]]:
        """The jobs of each tenant that have waited longest."""
        for queue in self._queues.values():
            for job in islice(queue.values(), LOOKED_AT):
                yield job.line, job


def refused(
    jobs: Sequence[Any], ended: list[int], missing: list[int], gate: Gate, chooser: RunningTree, timers: Timers | None
) -> dict[int, str]:
    """Why jobs still wait at the end: for one of the windows that never opens, or below a maximum that is too small.

    One that was stopped, or whose turn was over, may have run for a time.
    """
    windows = timers is not None and timers.has_windows
    left = [job for job in jobs if ended[job.index] < 0 and not (missing and missing[job.index])]
    reasons = {job.index: gate.refusal(job.line, job, 0) or chooser.refusal(job.line, job, MILLI) for job in left}
    return {index: (reason or Reason.PEAK).value for index, reason in reasons.items() if reason is not None or windows}
