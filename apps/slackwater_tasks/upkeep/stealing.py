"""Claims that a busy or stopped node has not begun are taken back while another node that may run them idles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import TaskState
from scheduler_ext.core.types import LineView, TaskView
from scheduler_ext.core.work import Changes
from scheduler_ext.round.gate import short_milli
from scheduler_ext.round.node_account import Node
from scheduler_ext.round.placement import Ledger
from slackwater_tasks.ledger import sql, transitions
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.ledger.round_store import PgRoundStore

Moves = dict[tuple[int, str], list[transitions.Claim]]
"""What is taken back from a node, and why."""


@dataclass(frozen=True, slots=True)
class Stealing:
    """Gives claims that wait at one node to the round again, as many as others have room for."""

    conf: SchedulerConf
    db: Database
    rounds: PgRoundStore
    publish: Callable[[Changes], None]
    """Tells pollers of changes, and the dispatcher that there is work."""

    def steal(self) -> int:
        """Take claims back that are older than ``steal_after_s``; the start of one that was not taken back yet wins."""
        if not self.conf.steal_after_s:
            return 0
        rows = self.db.conn.execute(sql.claims.UNBEGUN, (self.conf.cell, self.conf.steal_after_s)).fetchall()
        moves = self._moves(rows) if rows else {}
        if not moves:
            return 0
        back = self.db.repeatable(lambda conn: self._take_back(conn, moves))
        self.publish([(row[0], int(TaskState.READY), row[2], row[3], None, None, row[4]) for row in back])
        return len(back)

    def _moves(self, rows: Sequence[Any]) -> Moves:
        """Of these claims those that find room on a node which has none of them: its queue moves."""
        held = {row[0]: (row[-2], row[-1]) for row in rows}
        busy = {node_id for node_id, _ in held.values()}
        snapshot = self.rounds.view(0, ready=[row[:-2] for row in rows])
        idle = Ledger([node for node in snapshot.nodes if node.node_id not in busy])
        names = {node.node_id: node.name for node in snapshot.nodes}
        moves: Moves = {}
        for line in snapshot.lines if idle.nodes else ():
            for task in line.heads:
                node = _room(idle, line, task)
                if node is not None:
                    node_id, name = held[task.task_id]
                    why = f"taken back from node {name}: idle node {names[node.node_id]}"
                    moves.setdefault((node_id, why), []).append((task.task_id, task.fence))
        return moves

    def _take_back(self, conn: Any, moves: Moves) -> list[tuple[Any, ...]]:
        back: list[tuple[Any, ...]] = []
        for (node_id, why), claims in moves.items():
            back += transitions.hand_back(
                conn, node_id, claims, state=TaskState.QUEUED, actor="upkeep", reason=why, elsewhere=True
            )
        transitions.unpark(conn, [row[1] for row in back if row[1]])
        conn.execute(sql.leadership.COUNT_STOLEN, (len(back), self.conf.cell))
        return back


def _room(idle: Ledger, line: LineView, task: TaskView) -> Node | None:
    """Take room for a task, if a node has any other than the one it came from."""
    shape = idle.shape(line.vector, task.kind, task.handler_id, line.labels)
    milli = short_milli(task)
    node = idle.find_short(shape, milli, task.avoid_node) if milli else idle.find_exclusive(shape, task.avoid_node)
    if node is None or node.node_id == task.avoid_node:
        return None
    if milli:
        idle.take_short(node, shape, milli)
    else:
        idle.take_exclusive(node, shape)
    return node
