"""Parked tasks: upkeep releases those no longer hindered, and gives up those that no node could run for too long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import TaskState
from scheduler_ext.core.work import Changes
from scheduler_ext.upkeep import Job
from slackwater_tasks.ledger import sql, transitions
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.ledger.parking import BATCH, RESUMED
from slackwater_tasks.runtime.work_store import PgWorkStore

RESUMED_BATCHES = 10


@dataclass(frozen=True, slots=True)
class ParkingUpkeep:
    """Releases parked tasks that nothing hinders any more, and gives up what no node could run for too long."""

    conf: SchedulerConf
    db: Database
    work: PgWorkStore
    publish: Callable[[Changes], None]
    """Tells pollers of changes, and the dispatcher that there is work."""

    def jobs(self) -> list[Job]:
        return [
            Job(name="parked for a rate", every_s=1.0, run=self.unpark_limited, over=("tasks",)),
            Job(name="handlers resumed", every_s=1.0, run=self.unpark_resumed, over=("tasks",)),
            Job(name="now possible", every_s=1.0, run=self.unpark_possible, over=("impossible",)),
            Job(name="impossible", every_s=1.0, run=self.give_up, over=("impossible",)),
        ]

    def unpark_limited(self) -> int:
        """Release tasks whose rate limit was deleted, and those near their latest start, which then wait as urgent."""
        rows = self.db.conn.execute(sql.parking.STALE_PARKED, (BATCH,)).fetchall()
        return self._go_on(rows, "its execution rate no longer holds it, or its latest start is near")

    def unpark_resumed(self) -> int:
        count = 0
        for _ in range(RESUMED_BATCHES):
            rows = self.db.conn.execute(sql.parking.RESUMED, {"most": BATCH}).fetchall()
            count += self._go_on(rows, RESUMED)
            if len(rows) < BATCH:
                break
        return count

    def unpark_possible(self) -> int:
        self.db.conn.execute(sql.parking.FORGET_IMPOSSIBLE, (BATCH,))
        rows = self.db.conn.execute(sql.parking.NOW_POSSIBLE, (BATCH,)).fetchall()
        return self._go_on(rows, "a node that can run it is there")

    def _go_on(self, rows: Sequence[Any], reason: str) -> int:
        if not rows:
            return 0
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
        self.publish([*(transitions.changed(row, TaskState.FAILED) for row in gone), *followed])
        return len(gone)


def _fail(ids: Sequence[str], reason: str, conn: Any) -> list[Any]:
    return transitions.end_if_waiting(
        conn, ids, TaskState.FAILED, reason=reason, actor="upkeep", states=(TaskState.BLOCKED,)
    )
