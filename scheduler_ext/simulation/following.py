"""The long stretches of a log in which a full cell of jobs that are all alike stays full: one ends, the next begins.

They are most of a log of an overloaded machine, and nothing is to be decided in them but who is next.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapreplace
from typing import Any

from scheduler_ext.policies.incremental_tree import RunningTree
from scheduler_ext.simulation.model import Job, Trace


def follows(trace: Trace) -> bool:
    """Whether nothing changes in a trace but by arrivals and ends: no deadline, no edge."""
    return all(job.latest_start_us is None and not job.parents for job in trace.jobs)


def follow_on(
    jobs: list[Job], arrivals: list[int], at: int, ends: list[tuple[int, int, Job]], chooser: RunningTree,
    rank: Callable[[Any], tuple[int, int]], started: list[int], finished: list[int], waiting: int, most: int,
) -> tuple[int, int]:  # fmt: skip
    """Run on from arrival ``at`` until one job waits, ``most`` have ended, or two events fall together: the loop's affair.

    Gives how many have arrived and how many have ended; in the place of each another has begun.
    """
    job: Any
    following: Any
    offer, swap, swaps, begin = chooser.offer, chooser.swap, 0, at
    while waiting > 1 and swaps < most:
        now, index, job = ends[0]
        while arrivals[at] < now:
            new: Any = jobs[at]
            new.rank = rank(new)
            offer(new.line, new)
            at += 1
            waiting += 1
        if arrivals[at] == now or (len(ends) > 1 and ends[1][0] == now) or (len(ends) > 2 and ends[2][0] == now):
            break
        chooser.now = now / 1e6
        following = swap(job.line)
        following.node, job.ends_at = job.node, None
        heapreplace(ends, (now + following.run_us, following.index, following))
        started[following.index] = finished[index] = now
        swaps += 1
        waiting -= 1
    return at - begin, swaps
