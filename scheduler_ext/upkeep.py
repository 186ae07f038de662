"""Upkeep: small jobs, each with one concern, a bounded batch, an interval, and counts that are logged.

Any number of upkeep processes may run: every job claims its rows with SKIP LOCKED or compares and sets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler_ext.core.errors import first_line

log = logging.getLogger(__name__)

RETRY_S = 0.2
"""Between full batches, so that what is deleted by the million leaves room for work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One concern."""

    name: str
    every_s: float
    run: Callable[[], int]
    """Does one bounded batch; returns how many rows it changed."""
    full: int | None = None
    """A batch of so many is followed by another soon, not after the interval: there is more, and more comes."""


class Upkeep:
    """Runs jobs when they are due, one after the other."""

    def __init__(self, jobs: Sequence[Job], faults: tuple[type[Exception], ...]) -> None:
        """``faults`` are what the jobs raise while the database is away."""
        self.jobs = list(jobs)
        self.faults = faults
        self._due = {job.name: 0.0 for job in jobs}

    def run_due(self) -> dict[str, int]:
        """Run the jobs that are due; returns their counts. A fault of one does not keep the others."""
        counts: dict[str, int] = {}
        for job in self.jobs:
            now = time.monotonic()
            if now < self._due[job.name]:
                continue
            self._due[job.name] = now + job.every_s
            try:
                counts[job.name] = job.run()
            except self.faults as error:
                log.warning("%s failed, trying again: %s", job.name, first_line(error))
            else:
                if job.full is not None and counts[job.name] >= job.full:
                    self._due[job.name] = now + min(job.every_s, RETRY_S)
                if counts[job.name]:
                    log.info("%s: %s", job.name, counts[job.name])
        return counts

    def pause_s(self) -> float:
        return max(0.01, min(self._due.values()) - time.monotonic())
