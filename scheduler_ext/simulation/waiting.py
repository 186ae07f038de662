"""What waits in a simulated run, by tenant and in order of arrival, and whom room is kept for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from scheduler_ext.core.types import LineView
from scheduler_ext.simulation.model import Job

LOOKED_AT: Final = 8
"""Jobs of each tenant, of those that wait longest, that may get room kept for them."""


class Waiting:
    """One run's; only with backfill."""

    def __init__(self) -> None:
        self._queues: dict[int, OrderedDict[int, Job]] = {}
        self.turns: dict[str, float] = {}
        """When room was last kept for each account at the top."""
        self.kept: tuple[LineView, Any] | None = None

    def add(self, job: Job) -> None:
        self._queues.setdefault(job.tenant, OrderedDict())[job.index] = job

    def remove(self, job: Job) -> None:
        del self._queues[job.tenant][job.index]
        if self.kept is not None and self.kept[1] is job:
            self.kept = None

    def longest(self) -> Iterator[tuple[LineView, Any]]:
        """Of each tenant those that have waited longest."""
        for queue in self._queues.values():
            for job in islice(queue.values(), LOOKED_AT):
                yield job.line, job
