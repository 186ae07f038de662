"""The way of one no-op task, step by step, each step by the code that does it in the running platform."""

from __future__ import annotations

import time
from collections.abc import Sequence

from scheduler_ext.core.types import WorkKind
from scheduler_ext.core.work import Finished, Started
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.round.prioritizer import prioritize
from scheduler_ext.worker.child.handler_call import Bodies
from scheduler_ext.worker.journal import Journal, Slot
from slackwater.wiring import engine
from slackwater_monitoring.usage import MAX_BATCH, add_up
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.submission.service import submit, submit_many
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.account import cpu_clock
from tests.lab.benchmarks.measure import tidy
from tests.lab.benchmarks.micro.cell import HANDLER, Cell
from tests.lab.benchmarks.micro.meter import Meter
from tests.lab.benchmarks.micro.rounds import tell
from tests.lab.benchmarks.peer import report

TENANTS = 3
BULK = 1000
SINGLES = 200
WARM_UP = 2
"""Rounds and batches whose cost does not count: statements are prepared, caches filled."""
ORDER = (
    "submit one",
    "submit in bulk",
    "snapshot",
    "prioritize",
    "claim",
    "publish",
    "take",
    "start",
    "run",
    "record",
    "account",
)


def run(tasks: int, round: int, batch: int) -> None:  # noqa: A002 - the name of the parameter as a user gives it
    """``tasks`` go the whole way, claimed ``round`` at a time, run ``batch`` at a time."""
    cell = Cell(slots=8, round_limit=round, batch_max=batch)
    tenants = ground.tenants(TENANTS)
    cell.learn()
    meter = cell.meter()
    for number in range(SINGLES):
        with meter.step("submit one", 1):
            submit(tenants[number % TENANTS], {"handler": HANDLER})
    items = [{"handler": HANDLER}] * BULK
    tidy()
    needed = (-(-tasks // round) + WARM_UP) * round
    for chunk in range(1 - (-needed // BULK)):
        with meter.step("submit in bulk" if chunk else "warm-up", BULK):
            submit_many(tenants[chunk % TENANTS], items)
    _go(cell, meter, tasks, round)
    _account(meter)
    sizes = dict.fromkeys(ORDER, round) | {"submit one": 1, "submit in bulk": BULK}
    sizes |= dict.fromkeys(("take", "start", "run", "record"), batch)
    sizes["account"] = MAX_BATCH
    for name in ORDER:
        report("RESULT", **meter.spent[name].line(name, sizes[name]), tasks=meter.spent[name].units)


def _go(cell: Cell, meter: Meter, tasks: int, size: int) -> None:
    """Rounds until all have run; after each, the node takes and runs what was claimed."""
    share = share_policy(cell.conf.share_policy)
    child = _Child(cell, meter)
    done, number = 0, 0
    while done < tasks:
        tell("rounds", done, tasks)
        label = "" if number >= WARM_UP else "warm-up "
        with meter.step(f"{label}snapshot", size):
            snapshot = cell.rounds.snapshot()
        with meter.step(f"{label}prioritize", size):
            plan = prioritize(snapshot, cell.conf, share)
        with meter.step(f"{label}claim", size):
            won = cell.rounds.claim(cell.epoch, plan.decisions)
        with meter.step(f"{label}publish", size):
            cell.queues.publish(won)
        cell.rounds.look(decided=len(plan.decisions), more=plan.more)
        if len(won) != size and not label:  # the first rounds look at few tasks, the next at more
            raise RuntimeError(f"a round claimed {len(won)} of {size} tasks: {set(plan.left.values())}")
        ran = child.empty(label)
        done += 0 if label else ran
        number += 1


def _account(meter: Meter) -> None:
    """Receipts, usage and figures over time of all that has run, as upkeep does them after."""
    database = Database("bench")
    meter.backends.append(cpu_clock(database.conn.info.backend_pid))
    for _ in range(WARM_UP):
        database.repeatable(add_up)  # its mark, and how far there is something to account for
    while True:
        with meter.step("account", 0):
            size = database.repeatable(add_up)
        meter.spent["account"].units += size
        if not size:
            break
    database.close()


class _Child:
    """A pool child's work, less its waiting: see ``scheduler_ext.worker.child.slice``."""

    def __init__(self, cell: Cell, meter: Meter) -> None:
        self.cell = cell
        self.meter = meter
        self.slot: Slot = Journal(1).slot(0)
        self.bodies = Bodies(engine().app, cell.conf.max_result_bytes)

    def empty(self, label: str) -> int:
        """Take and run batches until the node's queues are empty; returns how many tasks."""
        cell, meter, ran = self.cell, self.meter, 0
        while True:
            with meter.step(f"{label}take", 0):
                claims, _ = cell.queues.take(cell.node_id, WorkKind.PROCESS)
            if not claims:
                return ran
            meter.spent[f"{label}take"].units += len(claims)
            with meter.step(f"{label}start", len(claims)):
                self.slot.open(claims)
                started = cell.work.start(cell.node_id, claims)
            with meter.step(f"{label}run", len(started)):
                ended = self._run(started)
            with meter.step(f"{label}record", len(ended)):
                cell.work.record(cell.node_id, ended)
                self.slot.close()
            ran += len(ended)

    def _run(self, started: Sequence[Started]) -> list[Finished]:
        ended = []
        for index, task in enumerate(started):
            began = time.time()
            self.slot.begin(index, task.cap_ms, began)
            end = self.bodies.run(task, self.cell.work)
            over = time.time()
            self.slot.end(index, over, end.pack())
            ended.append(end.finished(task.task_id, task.fence, began, over, "bench"))
        return ended
