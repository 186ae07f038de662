"""A large workflow, submitted by one call."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

from slackwater_tasks.submission.service import submit_workflow
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.micro.cell import HANDLER, Cell
from tests.lab.benchmarks.micro.rounds import tell
from tests.lab.benchmarks.peer import report

REACH = 50
"""Parents are drawn from that many tasks before: a graph both deep and wide."""


def graph(tasks: int, edges: int, seed: int = 1) -> list[dict[str, Any]]:
    """Tasks by name, with exactly that many edges where the reach allows it."""
    rng = random.Random(seed)
    each, owed = divmod(edges, max(1, tasks))
    items = []
    for n in range(tasks):
        # What the first few cannot have, because too little stands before them, later ones get.
        possible = min(n, REACH)
        wanted = min(possible, each + min(owed, 2))
        owed += each - wanted
        parents = rng.sample(range(n - possible, n), wanted)
        items.append({"name": f"n{n}", "handler": HANDLER, "depends_on": [f"n{p}" for p in parents]})
    return items


def run(tasks: int, edges: int, runs: int) -> None:
    """Store it ``runs`` times, each time in an empty ledger."""
    cell = Cell(slots=2)
    tenant = ground.tenants(1)[0]
    tenant.plan.max_dag_depth = tasks
    items = graph(tasks, edges)
    count = sum(len(item["depends_on"]) for item in items)
    meter = cell.meter()
    for number in range(runs + 1):
        tell("submitting", number, runs + 1)
        ground.empty()
        with meter.step("submit" if number else "warm-up", 1):
            submission = submit_workflow(tenant, {"name": "bench", "tasks": items})
        if len(submission.task_ids) != tasks:
            raise RuntimeError(f"{len(submission.task_ids)} of {tasks} tasks were stored")
    spent = meter.spent["submit"]
    report(
        "RESULT", tasks=tasks, edges=count, runs=runs, seconds=round(median(spent.wall), 3),
        least=round(min(spent.wall), 3), most=round(max(spent.wall), 3), python_s=round(spent.python / runs, 3),
        postgres_s=round(spent.postgres / runs, 3),
    )  # fmt: skip
