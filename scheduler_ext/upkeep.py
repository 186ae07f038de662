"""Upkeep: small jobs, each with one concern, a bounded batch, an interval, and counts that are logged.

Any number of upkeep processes may run: every job claims its rows with SKIP LOCKED or compares and sets.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from scheduler_ext.core.errors import first_line

log = logging.getLogger(__name__)

RETRY_S = 0.2
"""Between full batches, so that what is deleted by the million leaves room for work."""
LOOK_S = 1.0
"""While nothing at all is there, it is looked for this often; jobs that are due more often wait for that."""
REST_S = 30.0
"""A job that has nothing to be about is run this often all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One concern."""

    name: str
    every_s: float
    run: Callable[[], int]
    """Does one bounded batch; returns how many rows it changed."""
    full: int | None = None
    """A batch of so many is followed by another soon, not after the interval: there is more, and more comes."""
    ordinary: bool = False
    """It has something to do each time: its counts are told to who debugs."""
    over: tuple[str, ...] = ()
    """What it is about, by the names that upkeep looks for: while none of it is there, the job rests."""


class Upkeep:
    """Runs jobs when they are due, one after the other."""

    def __init__(
        self, jobs: Sequence[Job], faults: tuple[type[Exception], ...], look: Callable[[], Collection[str]] = tuple
    ) -> None:
        """``faults`` are what the jobs raise while the database is away.

        ``look`` tells what is there of all that jobs are over: one question in place of all of theirs, while
        there is nothing to do.
        """
        self.jobs = list(jobs)
        self.faults = faults
        self.look = look
        self._began = time.monotonic()
        self._due = {job.name: 0.0 for job in jobs}
        self._rested = {job.name: 0.0 for job in jobs}
        """Until when each job rests unless there is something."""

    def run_due(self) -> dict[str, int]:
        """Run the jobs that are due; returns their counts. A fault of one does not keep the others."""
        counts: dict[str, int] = {}
        there: Collection[str] | None = None
        for job in self.jobs:
            now = time.monotonic()
            if now < self._due[job.name]:
                continue
            self._due[job.name] = self._next(now, job.every_s)
            if job.over and now < self._rested[job.name]:
                there = self._there() if there is None else there
                if self._rests(job, now, there):
                    continue
            self._rested[job.name] = now + REST_S
            try:
                counts[job.name] = job.run()
            except self.faults as error:
                log.warning("%s failed, trying again: %s", job.name, first_line(error))
            else:
                if job.full is not None and counts[job.name] >= job.full:
                    self._due[job.name] = now + min(job.every_s, RETRY_S)
                if counts[job.name]:
                    log.log(logging.DEBUG if job.ordinary else logging.INFO, "%s: %s", job.name, counts[job.name])
        return counts

    def _next(self, now: float, every_s: float) -> float:
        """When the next interval begins: all on one beat, so that they wake the process together."""
        return self._began + (math.floor((now - self._began) / every_s) + 1) * every_s

    def _rests(self, job: Job, now: float, there: Collection[str]) -> bool:
        if not there:
            self._due[job.name] = self._next(now, max(job.every_s, LOOK_S))
        return not any(name in there for name in job.over)

    def _there(self) -> Collection[str]:
        """What is there; everything, if that cannot be told: each job says for itself what is wrong."""
        try:
            return self.look()
        except self.faults:
            return {name for job in self.jobs for name in job.over}

    def pause_s(self) -> float:
        return max(0.01, min(self._due.values()) - time.monotonic())
