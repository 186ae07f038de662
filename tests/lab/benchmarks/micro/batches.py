"""Submit, claim, start and finish by batch size."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.db import connection

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.types import Decision, QueueName, WorkKind
from scheduler_ext.core.work import Finished
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.models import Tenant
from tests.lab.benchmarks import filling, ground
from tests.lab.benchmarks.micro.cell import HANDLER, Cell
from tests.lab.benchmarks.micro.rounds import tell
from tests.lab.benchmarks.peer import report

TENANTS = 3
FEWEST = 200
"""Tasks at the least for a batch size; the smallest sizes are measured with a part of all."""
WARM_UP = 2 * TENANTS
COUNT_IN = """
UPDATE slackwater_tenants_tenantcounter c SET unfinished = n.c
FROM (SELECT tenant_id, count(*) AS c FROM slackwater_tasks_livetask GROUP BY tenant_id) n WHERE c.tenant_id = n.tenant_id
"""


def run(sizes: list[int], tasks: int, waiting: int) -> None:
    """``tasks`` go through each size (fewer through the smallest), beside ``waiting`` others."""
    cell = Cell(slots=2)
    lines = filling.make_lines(TENANTS, plan="bench")
    plan = [(size, max(size, min(tasks, max(FEWEST, size * 50)) // size * size)) for size in sizes]
    total = sum(count for _, count in plan) + waiting
    filling.fill(lines, 1, total, handler_id=cell.handler_id, wide=True, tell=tell)
    with connection.cursor() as cur:
        cur.execute(COUNT_IN)
        cur.execute("VACUUM ANALYZE slackwater_tasks_livetask, slackwater_tasks_task")
    tenants = ground.tenants(TENANTS)
    first = 1
    for size, count in plan:
        _submit(cell, tenants, size, count)
        _measure(cell, lines, first, size, count)
        first += count


def _submit(cell: Cell, tenants: Sequence[Tenant], size: int, count: int) -> None:
    """In calls of this size; what comes first prepares the statements."""
    meter = cell.meter()
    for call in range(-WARM_UP, count // size):
        with meter.step("submit" if call >= 0 else "warm-up", size):
            submit_many(tenants[call % TENANTS], [{"handler": HANDLER}] * size)
    report("RESULT", **meter.spent["submit"].line("submit", size), tasks=count)


def _measure(cell: Cell, lines: list[int], first: int, size: int, count: int) -> None:
    meter = cell.meter()
    for start in range(first, first + count, size):
        tell(f"batches of {size}", start - first, count)
        decisions = [_decision(cell, lines, number) for number in range(start, start + size)]
        with meter.step("claim", size):
            won = cell.rounds.claim(cell.epoch, decisions)
        claims = [(d.task_id, d.fence + 1) for d in won]
        with meter.step("start", size):
            started = cell.work.start(cell.node_id, claims)
        now = time.time()
        ended = [Finished(s.task_id, s.fence, Outcome.SUCCEEDED, now, now, worker="bench") for s in started]
        with meter.step("finish", size):
            changes = cell.work.record(cell.node_id, ended)
        if len(changes) != size:
            raise RuntimeError(f"{len(changes)} of {size} tasks went through")
    for step in ("claim", "start", "finish"):
        report("RESULT", **meter.spent[step].line(step, size), tasks=count)


def _decision(cell: Cell, lines: list[int], number: int) -> Decision:
    return Decision(
        task_id=filling.task_id(number), line_id=lines[number % len(lines)], node_id=cell.node_id,
        kind=WorkKind.PROCESS, queue=QueueName.DELAYABLE, fence=0, expected_us=5, exclusive=False,
    )  # fmt: skip
