"""Many tasks that write many lines at once, in real workers: how many lines a second are kept, and whether one is lost."""

from __future__ import annotations

from django.db import connection

from scheduler_ext.core.types import PER_CHILD, WorkKind
from slackwater_tenants.models import Plan
from slackwater_tenants.services import set_paused
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.handlers import TICK_S
from tests.lab.benchmarks.live import ledger
from tests.lab.benchmarks.live.cell import LiveCell
from tests.lab.benchmarks.live.flushall import hand_in
from tests.lab.benchmarks.live.parts import number, tell, wait
from tests.lab.benchmarks.peer import report

MOST_BYTES = 64 * 2**20
"""The plan's bound on what an attempt writes: above what one of them does."""
STUCK_S = 120.0
# A line of another stream is the platform's: it says that something is missing.
STORED = """
SELECT count(DISTINCT g.task_id), count(*) FILTER (WHERE m ->> 1 = 'stdout'), count(*) FILTER (WHERE m ->> 1 <> 'stdout')
FROM slackwater_tasks_attemptlog g, jsonb_array_elements(g.marks) m
"""


def run(writers: int, lines_per_s: int, seconds: int, children: int) -> None:
    """``writers`` tasks at once, in ``children`` processes, that print so many lines a second together."""
    units = children * PER_CHILD[WorkKind.COROUTINE]
    cell = LiveCell(units=units, nodes=1, children=children, most_tasks=writers)
    tier = cell.tier(1)
    (tenant,) = ground.tenants(1)
    Plan.objects.filter(slug="bench").update(max_log_bytes=MOST_BYTES)
    each = max(1, round(lines_per_s * TICK_S / writers))
    lines = writers * each * round(seconds / TICK_S)
    with cell.running():
        set_paused(tenant, paused=True)
        hand_in(tenant, tier, 0, writers, seconds * 1000 + each, "bench.writes")
        set_paused(tenant, paused=False)
        tell("lines", 0, lines)
        ended = wait(lambda: number(ledger.UNFINISHED) == 0, STUCK_S + seconds)
    begun, over = ([of(n) for n in range(writers)] for of in (cell.channel.begun, cell.channel.ended))
    with connection.cursor() as cur:
        cur.execute(STORED)
        told, stored, marks = cur.fetchone()
    report(
        "RESULT", writers=writers, lines=lines, stored=stored, lost=lines - stored, marks=marks, asked_per_s=lines_per_s,
        at_once=max(sum(one <= at < end for one, end in zip(begun, over, strict=True)) for at in begun),
        lines_per_s=round(lines / (max(over) - min(begun))) if ended else 0,
        verdict={"0 lines lost": ended and told == writers and stored == lines and not marks},
    )  # fmt: skip
