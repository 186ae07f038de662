"""A round by backlog and active tenants: it must not cost more because more is waiting."""

from __future__ import annotations

import os

import psutil
from django.db import connection

from scheduler_ext.dispatch.dispatcher import Dispatcher
from tests.lab.benchmarks import filling, ground
from tests.lab.benchmarks.measure import percentiles, tidy
from tests.lab.benchmarks.micro.cell import HOLDER, Cell
from tests.lab.benchmarks.peer import report

K = 100
SLOTS = 128
WARM_UP = 3
DONE = "DELETE FROM slackwater_tasks_livetask WHERE phase = 4"


def tell(phase: str, done: int, of: int) -> None:
    """Say how far it is."""
    report("PROGRESS", phase=phase, done=done, of=of)


def run(waiting: list[int], tenants: list[int], rounds: int) -> None:
    """Grow the backlog step by step; at each, run rounds of 100 claims, whose tasks then leave as finished ones do."""
    filling.require_room(max(waiting))
    cell = Cell(slots=SLOTS, round_limit=K)
    for count in tenants:
        ground.empty()
        lines = filling.make_lines(count, plan="bench")
        cell.rounds.reference.read_at = float("-inf")
        filled = 0
        for size in sorted(waiting):
            filling.fill(lines, filled + 1, size, handler_id=cell.handler_id, tell=tell)
            filled = size
            with connection.cursor() as cur:
                tell("analysing", 0, 0)
                # Else the server would begin to vacuum what was just loaded while rounds are measured.
                cur.execute("VACUUM ANALYZE slackwater_tasks_livetask, slackwater_tasks_task")
            report("RESULT", waiting=size, tenants=count, **_measure(cell, rounds))
            # The next size is counted from what is left here; the few that have run are not missed.
        with connection.cursor() as cur:
            cur.execute(
                "DELETE FROM slackwater_tasks_line; DELETE FROM slackwater_tenants_tenantcounter;"
                "DELETE FROM slackwater_tenants_tenant"
            )


def _measure(cell: Cell, rounds: int) -> dict[str, object]:
    dispatcher = Dispatcher(cell.rounds, cell.queues, cell.conf, HOLDER)
    dispatcher.keep_lead()
    meter = cell.meter()
    nominated = 0
    tidy()  # as the dispatcher does when it begins
    for number in range(WARM_UP + rounds):
        tell("rounds", number, WARM_UP + rounds)
        with meter.step("warm-up" if number < WARM_UP else "round", 1):
            result = dispatcher.run_round()
        if result.claimed != K:
            raise RuntimeError(f"a round claimed {result.claimed} of {K} tasks: {set(result.left.values())}")
        nominated = result.nominated
        with connection.cursor() as cur:
            cur.execute(DONE)
        cell.queues.clear(cell.node_id)
    spent = meter.spent["round"]
    found = percentiles(spent.wall)
    return {
        "claimed": K, "nominated": nominated, "rounds": rounds, "p50_ms": found["p50"], "p95_ms": found["p95"],
        "max_ms": found["max"], "python_ms": round(spent.python / rounds * 1000, 2),
        "postgres_ms": round(spent.postgres / rounds * 1000, 2),
        "memory_mb": psutil.Process(os.getpid()).memory_info().rss >> 20,
    }  # fmt: skip
