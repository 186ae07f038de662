"""Run times learnt in a simulated run from ended jobs, as workers learn them live."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import Final

from scheduler_ext.core.run_times import LEARNT_FROM, LONG, Quantiles, RunTime, RunTimes, bucket_of, merged, remaining_s
from scheduler_ext.policies.holdings import taken_by
from scheduler_ext.simulation.model import Job, Trace

MICRO: Final = 1_000_000
INFINITE: Final = float("inf")
ALL: Final = -1
"""The number of a tenant that all jobs count for."""


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
        self._known = RunTimes()
        self._last: RunTime | None = None
        """What all jobs take: where nothing is requested it stands in for the cap that a live task has."""

    def expect(self, job: Job) -> None:
        """Give a job that has become ready its expected run time."""
        given = self._given[job.index]
        known = self._known.of(job.tenant, (job.handler,)) if self._learns else None
        if known is None and not given:
            known = self._last
        if known is None:
            job.expected_us, job.long_us = given, given or 0
        else:
            job.expected_us, job.long_us = known.within(given) if given else known

    def started(self, job: Job, now: int) -> None:
        """Note that a job runs and when it is expected to end."""
        heappush(self._due, (job.ends_at or 0.0, job.index, now / MICRO, job))

    def correct(self, now: int) -> None:
        """Extend jobs that have outrun their expectation by as long again, as live; never beyond their request."""
        due, now_s = self._due, now / MICRO
        while due and due[0][0] <= now_s:
            at, index, began, job = heappop(due)
            if job.ends_at != at:
                continue  # it runs no more, or anew
            given = self._given[index]
            cap_s = given / MICRO if given else INFINITE
            job.ends_at = max(at, now_s + remaining_s(now_s - began, at - began, cap_s))
            ends = job.node.ends
            ends.remove((at, job.kind, need := taken_by(job.line, job.kind)))
            ends.append((job.ends_at, job.kind, need))
            if job.ends_at > now_s:
                heappush(due, (job.ends_at, index, began, job))

    def ended(self, job: Job) -> None:
        for tenant, handler in ((job.tenant, job.handler), (ALL, "")) if self._learns else ():
            key = tenant, handler
            runs = self._runs.setdefault(key, [])
            runs.append(job.run_us)
            if len(runs) >= LEARNT_FROM:
                counted = self._buckets[key] = merged(self._buckets.get(key, {}), Counter(map(bucket_of, runs)))
                runs.clear()
                quantiles = Quantiles(counted)
                found = RunTime(max(1, int(quantiles.mean_us)), max(1, int(quantiles.at(LONG))))
                if tenant == ALL:
                    self._last = found
                else:
                    self._known.put(tenant, handler, found)
