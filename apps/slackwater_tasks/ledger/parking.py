"""What waits beside its line: tasks whose rate is used up, whose handler is paused, and that no node can run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import TaskState
from scheduler_ext.core.types import LineView, NodeView, Reason, WorkKind
from scheduler_ext.core.work import Changes
from scheduler_ext.round.placement import Ledger
from scheduler_ext.upkeep import Job
from slackwater_tasks.ledger import sql, transitions
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.runtime.work_store import PgWorkStore

BATCH = 1000
RESUMED_BATCHES = 10
RESUMED = "its handler was resumed"
GONE_LEASES = 3
"""A node that left or was lost less than this many leases ago still counts: it may just be starting anew."""

JUST_GONE = """
SELECT id, name, capacity, slots, handlers, labels FROM slackwater_resources_node
WHERE cell = %s AND NOT (state = 'active' AND lease_expires_at > clock_timestamp())
    AND heartbeat_at > clock_timestamp() - %s * interval '1 second'
"""

PASSES = 5
MOST_HEADS = 4096
"""Tasks of a line that are looked at in one pass."""


def nominate(conn: Any, heads: int, paused: Collection[int]) -> list[Any]:
    """The first ``heads`` tasks of each line; those of ``paused`` handlers are parked, so that they hide none.

    A line that has very many of them is cleared over several rounds.
    """
    rows: list[Any] = conn.execute(sql.snapshot.NOMINATE, (heads,)).fetchall()
    wide, found = heads, rows
    for _ in range(PASSES if paused else 0):
        hidden = {row[0]: -1 - row[6] for row in found if row[6] in paused}
        if not hidden:
            break
        transitions.park_for(conn, hidden, actor="dispatcher", reason="parked: its handler is paused")
        wide = min(4 * wide, MOST_HEADS)
        found = conn.execute(sql.snapshot.NOMINATE, (wide,)).fetchall()
    return rows if found is rows else conn.execute(sql.snapshot.NOMINATE, (heads,)).fetchall()


def resume(conn: Any) -> int:
    """Let the first of those go on whose handler has just been resumed; the rest is upkeep's."""
    rows = conn.execute(sql.parking.RESUMED, {"most": BATCH}).fetchall()
    return transitions.unpark_these(conn, [row[0] for row in rows], actor="dispatcher", reason=RESUMED)


class Hopeless:
    """Finds out which of the tasks a round had to leave no node can run, and parks them."""

    def __init__(self, conf: SchedulerConf) -> None:
        self.conf = conf

    def park(self, conn: Any, nodes: Sequence[NodeView], lines: Sequence[LineView], task_ids: Sequence[str]) -> int:
        """Park those of the tasks that no node of ``nodes`` fits, nor one that has just gone; tell their clients."""
        wanted = set(task_ids)
        gone = conn.execute(JUST_GONE, (self.conf.cell, self.conf.node_lease_s * GONE_LEASES)).fetchall()
        ledger = Ledger([*nodes, *(_view(row) for row in gone)])
        found: dict[Reason, list[str]] = {}
        for line in lines:
            for task in line.heads:
                if task.task_id in wanted:
                    reason = ledger.shape(line.vector, task.kind, task.handler_id).impossible
                    if reason is not None:
                        found.setdefault(reason, []).append(task.task_id)
        return sum(transitions.park_impossible(conn, ids, reason.value) for reason, ids in found.items())


def _view(row: Sequence[Any]) -> NodeView:
    node_id, name, capacity, slots, handlers, labels = row
    return NodeView(
        node_id=node_id, name=name, capacity=tuple(capacity), handlers=frozenset(handlers), labels=frozenset(labels),
        slots={WorkKind(kind): count for kind, count in slots.items()},
    )  # fmt: skip


class ParkingUpkeep:
    """Lets parked tasks go on whose hindrance is gone, and gives up what no node could run for too long."""

    def __init__(self, conf: SchedulerConf, db: Database, work: PgWorkStore,
                 publish: Callable[[Changes], None]) -> None:  # fmt: skip
        """``publish`` tells pollers of changes, and the dispatcher that there is work."""
        self.conf = conf
        self.db = db
        self.work = work
        self.publish = publish

    def jobs(self) -> list[Job]:
        """All jobs with their intervals."""
        return [
            Job(name="parked for a rate", every_s=1.0, run=self.unpark_limited),
            Job(name="handlers resumed", every_s=1.0, run=self.unpark_resumed),
            Job(name="now possible", every_s=1.0, run=self.unpark_possible),
            Job(name="impossible", every_s=1.0, run=self.give_up),
        ]

    def unpark_limited(self) -> int:
        """Let go on whose rate limit was deleted, and who is near the latest start: it waits as an urgent task."""
        rows = self.db.conn.execute(sql.parking.STALE_PARKED, (BATCH,)).fetchall()
        return self._go_on(rows, "its execution rate no longer holds it, or its latest start is near")

    def unpark_resumed(self) -> int:
        """Let go on whose handler is paused no more."""
        count = 0
        for _ in range(RESUMED_BATCHES):
            rows = self.db.conn.execute(sql.parking.RESUMED, {"most": BATCH}).fetchall()
            count += self._go_on(rows, RESUMED)
            if len(rows) < BATCH:
                break
        return count

    def unpark_possible(self) -> int:
        """Let go on what a node can run now."""
        self.db.conn.execute(sql.parking.FORGET_IMPOSSIBLE, (BATCH,))
        rows = self.db.conn.execute(sql.parking.NOW_POSSIBLE, (BATCH,)).fetchall()
        return self._go_on(rows, "a node that can run it is there")

    def _go_on(self, rows: Sequence[Any], reason: str) -> int:
        ids = [row[0] for row in rows]
        count = self.db.repeatable(lambda conn: transitions.unpark_these(conn, ids, actor="upkeep", reason=reason))
        if count:
            self.publish([])
        return count

    def give_up(self) -> int:
        """Fail what no registered node could run for ``impossible_after_s``; 0: never."""
        if not self.conf.impossible_after_s:
            return 0
        params = (self.conf.impossible_after_s, BATCH)
        found = self.db.conn.execute(sql.parking.IMPOSSIBLE_FOR, params).fetchall()
        by_reason: dict[str, list[str]] = {}
        for task_id, reason in found:
            by_reason.setdefault(reason, []).append(task_id)
        gone: list[Any] = []
        for reason, ids in by_reason.items():
            gone += self.db.repeatable(partial(_fail, ids, f"impossible: {reason}"))
        followed = self.work.follow_up([(row[0], TaskState.FAILED, row[1], row[2]) for row in gone])
        self.publish([*((row[0], int(TaskState.FAILED), row[3], row[4]) for row in gone), *followed])
        return len(gone)


def _fail(ids: Sequence[str], reason: str, conn: Any) -> list[Any]:
    return transitions.end_if_waiting(
        conn, ids, TaskState.FAILED, reason=reason, actor="upkeep", states=(TaskState.BLOCKED,)
    )
