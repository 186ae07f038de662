"""The multi-tenant benchmark published with Kueue: cohorts of lines with quotas that lend to each other."""

from __future__ import annotations

import os
import time

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.simulation import report as measures
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.scenarios import CLASSES, QUOTA_COHORTS, QUOTA_LINES, QUOTA_UNITS
from scheduler_ext.simulation.scenarios import quota as simulated_quota
from slackwater_tasks.control import policies
from slackwater_tenants.models import Pool
from slackwater_tenants.services import create_tenant
from tests.lab.benchmarks.live.cell import Item, LiveCell
from tests.lab.benchmarks.live.parts import tell
from tests.lab.benchmarks.peer import report

NAMES = {1: "small", 5: "medium", 20: "large"}
TICK_S = 0.25
BOUND_S = 66.0
"""Work of one line (1,320 unit-seconds) over its quota: no schedule without lending between cohorts is shorter."""
PUBLISHED = {
    "makespan_s": 351,
    "quota_use": 0.559,
    "wait_small_s": 215,
    "wait_medium_s": 77,
    "wait_large_s": 16,
}


def run(permille: int, nodes: int, children: int, live: int) -> None:
    """Simulated with the live policy code, then (``live``) with real workers.

    ``permille`` of the tasks of each line: 1000 is the published benchmark.
    """
    report("RESULT", how="published (Kueue)", tasks=15_000, **PUBLISHED)
    tell("simulating", 0, 0)
    report("RESULT", how="simulated", **_simulated())
    if live:
        load = round(os.getloadavg()[0], 1)
        report("RESULT", how="live", nodes=nodes, permille=permille, load=load, **_live(permille, nodes, children))


def _simulated() -> dict[str, float]:
    work = simulated_quota()
    trace = work.trace
    conf = SchedulerConf(peak_permille=1000, delayable_permille=1000)
    share = share_policy("capacity", work.share_parameters)
    found = Engine(trace, work.cell, order=order_policy("fifo"), share=share, conf=conf).run(time.perf_counter)
    made = measures.measure(found)
    waits: dict[int, list[float]] = {}
    for job in trace.jobs:
        waited = (found.started_us[job.index] - job.arrived_us) / 1e6
        waits.setdefault(job.vector[0] // 1000, []).append(waited)
    return {
        "tasks": made.ended, "makespan_s": round(made.makespan_s, 1), "quota_use": round(made.utilization, 3),
        "bound_s": BOUND_S, **_means(waits),
    }  # fmt: skip


def _live(permille: int, nodes: int, children: int) -> dict[str, float]:
    units = QUOTA_COHORTS * QUOTA_LINES * QUOTA_UNITS
    per_line = sum(count * permille // 1000 for count, *_ in CLASSES)
    total = per_line * QUOTA_COHORTS * QUOTA_LINES
    cell = LiveCell(units=units, nodes=nodes, children=children, most_tasks=total + 1000)
    for _, size, *_ in CLASSES:
        cell.tier(size)  # before the tenants, who remember what their plan grants
    items = _items(cell, permille)
    policies.choose("share", "capacity")
    with cell.running():
        cell.warm_up(items[0].tenant, cell.tier(1))
        numbers = cell.play(items, tick_s=TICK_S, until_s=400.0, phase="live")
    ended = [n for n in numbers if cell.channel.ended(n)]
    last = max(cell.channel.ended(n) for n in ended) - cell.began
    held = sum(cell.items[n].units * (cell.channel.ended(n) - cell.channel.begun(n)) for n in ended)
    waits: dict[int, list[float]] = {}
    for n in ended:
        waits.setdefault(cell.items[n].units, []).append(cell.wait_s(n))
    return {
        "tasks": len(ended), "missing": total - len(ended), "makespan_s": round(last, 1),
        "quota_use": round(held / (units * last), 3), **_means(waits),
    }  # fmt: skip


def _items(cell: LiveCell, permille: int) -> list[Item]:
    items = []
    for cohort in range(QUOTA_COHORTS):
        part = 100 / QUOTA_COHORTS
        above = Pool.objects.create(slug=f"cohort{cohort}", guaranteed=part, maximum=part)
        for line in range(QUOTA_LINES):
            tenant = create_tenant(f"line{cohort}-{line}", f"Line {cohort}.{line}", "bench")
            tenant.pool = Pool.objects.create(slug=f"line{line}", parent=above, guaranteed=100 / QUOTA_LINES)
            tenant.save()
            for count, units, run_s, priority, every_s in CLASSES:
                fields = {"tier": cell.tier(units), "priority": priority, "delay_tolerance_s": 3600}
                items += [
                    Item(every_s * (n + 1), tenant, fields, run_s, units) for n in range(count * permille // 1000)
                ]
    return items


def _means(waits: dict[int, list[float]]) -> dict[str, float]:
    return {f"wait_{NAMES[units]}_s": round(sum(w) / len(w), 2) for units, w in sorted(waits.items())}
