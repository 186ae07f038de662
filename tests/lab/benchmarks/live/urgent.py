"""How soon urgent work starts while ten times more is submitted than can run."""

from __future__ import annotations

from tests.lab.benchmarks import ground
from tests.lab.benchmarks.live.cell import Item, LiveCell
from tests.lab.benchmarks.measure import percentiles
from tests.lab.benchmarks.peer import report

TICK_S = 0.02
URGENT_S = 0.005


def run(seconds: int, slots: int, task_ms: int, children: int, overload: int, urgent_per_s: int) -> None:
    """Urgent tasks come all the time: first alone, then beside ``overload`` times what ``slots`` can run."""
    per_s = slots / (task_ms / 1000) * overload
    count = int(per_s * seconds)
    cell = LiveCell(units=slots, nodes=1, children=children, most_tasks=count + 4 * urgent_per_s * seconds + 1000)
    tier = cell.tier(1)
    crowd, client = ground.tenants(2)
    urgent = [
        Item(0.5 + n / urgent_per_s, client, {"tier": tier, "category": "urgent"}, URGENT_S)
        for n in range(urgent_per_s * seconds)
    ]
    work = [Item(n / per_s, crowd, {"tier": tier, "delay_tolerance_s": 3600}, task_ms / 1000) for n in range(count)]
    with cell.running():
        cell.warm_up(crowd, tier)
        alone = cell.play(urgent, tick_s=TICK_S, until_s=seconds + 20, phase="idle")
        idle = percentiles([cell.wait_s(n) for n in alone])
        mixed = cell.play([*urgent, *work], tick_s=TICK_S, until_s=seconds + 2, phase="overload")
        mine = [n for n in mixed if cell.items[n].tenant.pk == client.pk]
        waits = percentiles([cell.wait_s(n) for n in mine if cell.channel.begun(n)])
        missing = sum(1 for n in mine if not cell.channel.begun(n))
    report(
        "RESULT", seconds=seconds, slots=slots, task_ms=task_ms, overload=overload, idle_ms=idle, overload_ms=waits,
        bound_ms=round(2 * idle["p99"] + task_ms, 2), missing=missing,
    )  # fmt: skip
