"""Run times learnt in a simulated run from ended jobs, as workers learn them live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from scheduler_ext.core.run_times import Quantiles, bucket_of, merged
from scheduler_ext.policies.holdings import taken_by
from scheduler_ext.simulation.model import Job, Trace

MICRO: Final = 1_000_000
INFINITE: Final = float("inf")
LEARNT_FROM: Final = 5
"""A run time counts as learnt after this many runs, as live."""


class Learning:
    """The learning of one run. A job's request is its expected run time until run times are learnt."""

    def __init__(self, trace: Trace, *, learns: bool = True) -> None:
        """``learns`` False: nothing is known beyond the requests."""
        self._learns = learns
        self._given = [job.expected_us if trace.requested else None for job in trace.jobs]
        self._due: list[tuple[float, int, float, Job]] = []
        """Running jobs by the moment at which they were expected to end, with their start."""
        self._runs: dict[tuple[int, str], list[float]] = {}
        self._buckets: dict[tuple[int, str], dict[int, float]] = {}
        self._known: dict[tuple[int, str], int] = {}

    def expect(self, job: Job) -> None:
        """Give a job that has become ready its expected run time."""
        given = self._given[job.index]
        known = None
        for key in self._keys(job):
            known = self._known.get(key)
            if known is None and key in self._buckets:
                known = self._known[key] = max(1, int(Quantiles(self._buckets[key]).mean_us))
            if known is not None:
                break
        job.expected_us = min(known, given) if known and given else known or given

    def _keys(self, job: Job) -> Iterator[tuple[int, str]]:
        """The keys by which its run time may be known, the most specific first."""
        if self._learns:
            yield from ((job.tenant, job.handler), (job.tenant, ""), (-1, ""))

    def started(self, job: Job, now: int) -> None:
        """Note that a job runs and when it is expected to end."""
        heappush(self._due, (job.ends_at or 0.0, job.index, now / MICRO, job))

    def correct(self, now: int) -> None:
        """Extend jobs that have outrun their expectation by as long again, as live; never beyond their request."""
        due, now_s = self._due, now / MICRO
        while due and due[0][0] <= now_s:
            at, index, began, job = heappop(due)
            if job.ends_at != at:
                continue  # it has ended
            given = self._given[index]
            longest = began + given / MICRO if given else INFINITE
            job.ends_at = max(at, min(2 * now_s - began, longest))
            ends = job.node.ends
            ends.remove((at, job.kind, need := taken_by(job.line, job.kind)))
            ends.append((job.ends_at, job.kind, need))
            if job.ends_at > now_s:
                heappush(due, (job.ends_at, index, began, job))

    def ended(self, job: Job) -> None:
        job.ends_at = None
        for key in {*self._keys(job)}:
            runs = self._runs.setdefault(key, [])
            runs.append(job.run_us)
            if len(runs) >= LEARNT_FROM:
                new = Counter(map(bucket_of, runs))
                self._buckets[key] = merged(self._buckets.get(key, {}), new)
                self._known.pop(key, None)
                runs.clear()
