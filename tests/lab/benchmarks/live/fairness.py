"""Two tenants of equal weight, one of which submits fifty times as much."""

from __future__ import annotations

import random

from slackwater_tenants.models import Tenant
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.live.cell import Item, LiveCell
from tests.lab.benchmarks.measure import percentiles
from tests.lab.benchmarks.peer import report

RATIO = 50
TICK_S = 0.1
SPARE = 1.2
"""Saturated, the quiet tenant submits this many times its share; its lone waits are measured at a fifth of it."""


def run(seconds: int, slots: int, task_ms: int, children: int) -> None:
    """``slots`` tasks of ``task_ms`` on average run at once; each of the three parts takes ``seconds``."""
    share_per_s = slots / (task_ms / 1000) / 2
    fast, slow = share_per_s * SPARE, share_per_s / 5
    loud_n, quiet_n = int(fast * RATIO * seconds), int(fast * seconds)
    cell = LiveCell(units=slots, nodes=1, children=children, most_tasks=2 * loud_n + 4 * quiet_n + 1000)
    tier = cell.tier(1)
    loud, quiet = ground.tenants(2)

    rng = random.Random(1)

    def work(tenant: Tenant, per_s: float) -> list[Item]:
        fields = {"tier": tier, "delay_tolerance_s": 3600}
        # Of different lengths: tasks that all took the same would end in step, and leave nobody a slot in between.
        return [
            Item(n / per_s, tenant, fields, task_ms / 1000 * rng.uniform(0.5, 1.5)) for n in range(int(per_s * seconds))
        ]

    with cell.running():
        cell.warm_up(loud, tier)
        alone = cell.play(work(quiet, slow), tick_s=TICK_S / 4, until_s=seconds + 20, phase="the quiet one alone")
        alone_waits = percentiles([cell.wait_s(n) for n in alone])
        # Before the quiet one has a backlog of its own, behind which its later tasks would wait.
        mixed = [*work(loud, fast * RATIO), *work(quiet, slow)]
        beside = cell.play(mixed, tick_s=TICK_S / 4, until_s=seconds, phase="beside")
        mine = [n for n in beside if cell.items[n].tenant.pk == quiet.pk]
        beside_waits = percentiles([cell.wait_s(n) for n in mine if cell.channel.begun(n)])
        mixed = [*work(loud, fast * RATIO), *work(quiet, fast)]
        cell.play(mixed, tick_s=TICK_S, until_s=seconds, phase="both saturated")
        served = _served(cell, seconds)
    apart = abs(served[loud.pk] - served[quiet.pk]) / max(served[loud.pk] + served[quiet.pk], 1e-9) * 2
    report(
        "RESULT", seconds=seconds, slots=slots, task_ms=task_ms, ratio=RATIO,
        served_loud_s=round(served[loud.pk], 1), served_quiet_s=round(served[quiet.pk], 1),
        apart_percent=round(apart * 100, 2), quiet_alone_ms=alone_waits, quiet_beside_ms=beside_waits,
        p95_ratio=round(beside_waits["p95"] / alone_waits["p95"], 2),
    )  # fmt: skip


def _served(cell: LiveCell, seconds: int) -> dict[int, float]:
    """Slot-seconds by tenant from the beginning to the end of the last part, whenever the tasks were submitted."""
    since, end = cell.began, cell.began + seconds
    served: dict[int, float] = {}
    for n, item in enumerate(cell.items):
        begun, ended = cell.channel.begun(n), cell.channel.ended(n) or end
        held = max(0.0, min(ended, end) - max(begun, since)) if begun else 0.0
        served[item.tenant.pk] = served.get(item.tenant.pk, 0.0) + held
    return served
