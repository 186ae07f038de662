"""A node drained while its queues are full: how soon what has not begun is handed back, and whether all is done."""

from __future__ import annotations

import statistics
import time
from typing import Any

from scheduler_ext.core.states import TaskState
from scheduler_ext.core.types import PER_CHILD, WorkKind
from slackwater_resources import services
from slackwater_resources.models import Node
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.live import ledger
from tests.lab.benchmarks.live.cell import LiveCell
from tests.lab.benchmarks.live.flushall import SHORT, STUCK_S, WARM_UP, hand_in
from tests.lab.benchmarks.live.parts import number, tell, wait
from tests.lab.benchmarks.peer import report

NODES = 2
BUSY_S = 2.0
LOOK_S = 0.005
WITHIN_S = 1.0
GIVEN_UP_S = 60.0
HELD = "SELECT count(*) FROM slackwater_tasks_livetask WHERE phase = 4 AND node_id = {node} AND state = {state}"


def run(tasks: int, task_ms: int, children: int, drains: int) -> None:
    """``drains`` times, the two nodes in turn: one is drained under load, and given work again when it is idle."""
    whole = PER_CHILD[WorkKind.COROUTINE]
    cell = LiveCell(units=NODES * children * whole, nodes=NODES, children=children, most_tasks=WARM_UP + tasks)
    tier = cell.tier(1)
    (tenant,) = ground.tenants(1)
    with cell.running():
        hand_in(tenant, tier, 0, WARM_UP, task_ms, SHORT)
        wait(lambda: number(ledger.UNFINISHED) == 0, STUCK_S)
        hand_in(tenant, tier, WARM_UP, tasks, task_ms, SHORT)
        nodes = list(Node.objects.filter(state=Node.State.ACTIVE).order_by("name"))
        turns = [_turn(nodes[n % NODES], n, drains) for n in range(drains)]
        counted = wait(lambda: number(ledger.UNFINISHED) == 0, STUCK_S + tasks * task_ms / 1000)
    said = ledger.record(WARM_UP + tasks)
    took = [turn["handed_back_s"] for turn in turns]
    report(
        "RESULT", nodes=NODES, children=children, task_ms=task_ms, drains=drains, drained=turns,
        p50_s=round(statistics.median(took), 3), max_s=max(took), **said,
        verdict={
            "each drained node was busy, with more claimed ahead": all(turn["queued"] > 0 for turn in turns),
            "nothing lost": counted and said["lost"] == 0 and said["twice"] == 0 and said["cut_off"] == 0,
            f"what has not begun handed back within {WITHIN_S:g} s": max(took) <= WITHIN_S,
        },
    )  # fmt: skip


def _turn(node: Node, n: int, drains: int) -> dict[str, Any]:
    """One drain, from the order until the ledger has nothing more that waits on that node."""
    tell("draining", n, drains)
    queued, running = (HELD.format(node=node.pk, state=int(state)) for state in (TaskState.QUEUED, TaskState.RUNNING))
    time.sleep(BUSY_S)
    before = number(queued)
    began = time.monotonic()
    services.drain_node(node)
    wait(lambda: number(queued) == 0, GIVEN_UP_S, LOOK_S)
    took = time.monotonic() - began
    wait(lambda: number(running) == 0, GIVEN_UP_S)
    time.sleep(1.0)
    late = number(queued)
    services.activate_node(node)
    return {"queued": before, "handed_back_s": round(took, 3), "given_after": late}
