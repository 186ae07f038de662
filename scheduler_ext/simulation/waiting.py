"""What waits in a simulated run, by tenant and in order of arrival, and what room is kept for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from scheduler_ext.core.types import LineView
from scheduler_ext.simulation.model import Job

LOOKED_AT: Final = 8
"""Jobs of each tenant, those waiting longest, for which room may be kept."""


class Waiting:
    """The waiting jobs of one run; only with backfill."""

    def __init__(self) -> None:
        self._queues: dict[int, OrderedDict[int, Job]] = {}
        self.turns: dict[str, float] = {}
        """When room was last kept for each top-level account."""
        self.kept: tuple[LineView, Any] | None = None

    def add(self, job: Job) -> None:
        self._queues.setdefault(job.tenant, OrderedDict())[job.index] = job

    def remove(self, job: Job) -> None:
        del self._queues[job.tenant][job.index]
        if self.kept is not None and self.kept[1] is job:
            self.kept = None

    def longest(self) -> Iterator[tuple[LineView, Any]]:
        """The jobs of each tenant that have waited longest."""
        for queue in self._queues.values():
            for job in islice(queue.values(), LOOKED_AT):
                yield job.line, job
