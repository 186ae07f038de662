"""Redis emptied while its queues are full: what is lost, and how soon all is as before; and what a backlog costs it.

The tasks are short and sleep, in processes: they are claimed ahead in batches, so the queues are full of claims that
vanish, and throughput is bounded by the slots more than by the machine, so that a dip is seen. Memory is measured
behind coroutines that do not end, so that a backlog stays what it is.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import redis

from scheduler_ext.core.types import PER_CHILD, WorkKind
from slackwater_conf import conf
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.models import Tenant
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.filling import require_room
from tests.lab.benchmarks.live import ledger
from tests.lab.benchmarks.live.cell import LiveCell
from tests.lab.benchmarks.live.parts import number, tell, wait
from tests.lab.benchmarks.peer import report

CHUNK = 1000
SHORT, COROUTINE = "bench.work", "bench.awork"
WARM_UP = 200
SETTLE_S = 3.0
BASE_S = 5.0
AFTER_S = 12.0
"""How long is looked at before and after each emptying."""
WINDOW_S = 2.0
STEP_S = 0.1
BACK = 0.95
BACK_WITHIN_S = 5.0
STUCK_S = 120.0
ENDLESS_MS = 500_000
"""Longer than the measurement of memory takes, shorter than the tier's execution cap."""
SAMPLES = 20
GROWTH = 10.0
ROWS_A_TASK = 3


def run(waiting: int, flushes: int, slots: int, task_ms: int, children: int, small: int, large: int) -> None:
    """``flushes`` times with at least ``waiting`` tasks waiting; then memory with ``small`` and ``large`` backlogs.

    ``large`` of 0 leaves the second part out, ``flushes`` of 0 the first.
    """
    if flushes:
        _emptied(waiting, flushes, task_ms, children)
    if large:
        _memory(slots, children, small, large)


# -- emptied ----------------------------------------------------------------------------------------------------------
def _emptied(waiting: int, flushes: int, task_ms: int, children: int) -> None:
    drained = children * 1000 / task_ms * (SETTLE_S + flushes * (BASE_S + AFTER_S))
    total = waiting + int(drained) + waiting // 5  # some run while the rest is submitted
    require_room(total * ROWS_A_TASK)
    whole = PER_CHILD[WorkKind.COROUTINE]
    cell = LiveCell(units=children * whole, nodes=1, children=children, most_tasks=WARM_UP + total)
    tier = cell.tier(1)
    (tenant,) = ground.tenants(1)
    with cell.running():
        hand_in(tenant, tier, 0, WARM_UP, task_ms, SHORT)
        _until_done(_Ends(cell, 0, WARM_UP))
        first = WARM_UP
        hand_in(tenant, tier, first, total, task_ms, SHORT)
        ends = _Ends(cell, first, total)
        _pause(SETTLE_S, "settling", ends)
        cuts = [_empty(turn, ends) for turn in range(flushes)]
        _until_done(ends)
        counted = wait(lambda: number(ledger.UNFINISHED) == 0, STUCK_S)
    times = ends.times()
    lines = [_line(at, queues, times) for at, queues in cuts]
    said = ledger.record(first + total)
    back = max(line["back_s"] if line["back_s"] is not None else float("inf") for line in lines)
    full = all(line["waiting"] >= waiting and line["queued"] > 0 for line in lines)
    report(
        "RESULT", part="emptied", children=children, task_ms=task_ms, emptied=lines, **said,
        verdict={
            f"{waiting:,} waiting and the queues full each time": full,
            "0 lost": counted and said["lost"] == 0 and said["twice"] == 0,
            f"throughput back to {BACK:.0%} within {BACK_WITHIN_S:g} s": back <= BACK_WITHIN_S,
        },
    )  # fmt: skip


def hand_in(tenant: Tenant, tier: str, first: int, count: int, ms: int, handler: str) -> None:
    """Submit tasks numbered from ``first``, a thousand a call."""
    for start in range(first, first + count, CHUNK):
        upto = min(first + count, start + CHUNK)
        tell("submitting", start - first, count)
        submit_many(tenant, [
            {"handler": handler, "args": [n, ms], "tier": tier, "delay_tolerance_s": 86_400}
            for n in range(start, upto)
        ])  # fmt: skip


class _Ends:
    """When the tasks of the run ended, by the timing channel."""

    def __init__(self, cell: LiveCell, first: int, count: int) -> None:
        self._slots = cell.channel.times[2 * first + 1 : 2 * (first + count) + 1 : 2]
        self.count = count

    def times(self) -> list[float]:
        """Of those that have ended, in order."""
        return sorted(at for at in self._slots if at)


def _empty(turn: int, ends: _Ends) -> tuple[float, dict[str, int]]:
    _pause(BASE_S, f"before emptying {turn + 1}", ends)
    queues = {"waiting": number(ledger.READY), "queued": number(ledger.QUEUED)}
    with redis.Redis.from_url(conf().redis_url) as client:
        queues["keys"] = client.dbsize()
        at = time.monotonic()
        client.flushall()
    _pause(AFTER_S, f"after emptying {turn + 1}", ends)
    return at, queues


def _pause(seconds: float, phase: str, ends: _Ends) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(1.0, left))
        tell(phase, len(ends.times()), ends.count)


def _until_done(ends: _Ends) -> None:
    """Wait for the rest, as long as some still end."""
    done, since = 0, time.monotonic()
    while done < ends.count and time.monotonic() - since < STUCK_S:
        time.sleep(1.0)
        now = len(ends.times())
        tell("the rest", now, ends.count)
        if now > done:
            done, since = now, time.monotonic()


def _line(at: float, queues: dict[str, int], times: Sequence[float]) -> dict[str, Any]:
    def per_s(since: float, until: float) -> float:
        return (bisect_left(times, until) - bisect_left(times, since)) / (until - since)

    base = per_s(at - BASE_S, at)
    steps = [n * STEP_S for n in range(int((AFTER_S - 1) / STEP_S))]
    return {
        **queues, "before_per_s": round(base, 1),
        "least_per_s": round(min(per_s(at + step, at + step + 1) for step in steps), 1),
        "after_per_s": round(per_s(at, at + AFTER_S), 1), "back_s": back_s(at, base, per_s),
    }  # fmt: skip


def back_s(at: float, base: float, per_s: Callable[[float, float], float]) -> float | None:
    """Seconds from ``at`` until throughput is at 95 % of ``base`` and stays there.

    Both a window of two seconds from then on and all of the time looked at from then on must reach it. ``None``: not
    within that time.
    """
    for n in range(int((AFTER_S - WINDOW_S) / STEP_S) + 1):
        since = at + n * STEP_S
        if min(per_s(since, since + WINDOW_S), per_s(since, at + AFTER_S)) >= BACK * base:
            return round(n * STEP_S, 1)
    return None


# -- memory -----------------------------------------------------------------------------------------------------------
def _memory(slots: int, children: int, small: int, large: int) -> None:
    require_room(large * ROWS_A_TASK)
    cell = LiveCell(units=slots, nodes=1, children=children, most_tasks=2 * large + 10 * slots + small)
    tier = cell.tier(1)
    (tenant,) = ground.tenants(1)
    handed = 0
    found: dict[str, dict[str, float]] = {}
    with cell.running():
        for name, backlog in (("small", small), ("large", large)):
            while (missing := backlog - number(ledger.READY)) > 0:
                hand_in(tenant, tier, handed, missing, ENDLESS_MS, COROUTINE)
                handed += missing
                wait(lambda: number(ledger.RUNNING) >= slots, 30)
                time.sleep(SETTLE_S)
            found[name] = {"waiting": number(ledger.READY), "queued": number(ledger.QUEUED), **_used_mb()}
        for part, pid in cell.parts.pids.items():
            if part.startswith("worker"):
                os.killpg(pid, signal.SIGKILL)  # or it would wait for tasks that are in no hurry
    before, after = found["small"]["used_mb"], found["large"]["used_mb"]
    change = (after / before - 1) * 100
    report(
        "RESULT", part="memory", slots=slots, small=found["small"], large=found["large"],
        change_percent=round(change, 1),
        verdict={f"Redis memory with {large:,} waiting within {GROWTH:g} % of {small:,}": change <= GROWTH},
    )  # fmt: skip


def _used_mb() -> dict[str, float]:
    used = []
    with redis.Redis.from_url(conf().redis_url) as client:
        for n in range(SAMPLES):
            tell("memory of Redis", n, SAMPLES)
            used.append(client.info("memory"))
            time.sleep(STEP_S * 2)
    return {
        "used_mb": round(statistics.median(said["used_memory"] for said in used) / 2**20, 3),
        "rss_mb": round(statistics.median(said["used_memory_rss"] for said in used) / 2**20, 3),
    }
