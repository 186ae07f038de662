"""The upkeep jobs of the ledger: what a crash anywhere leaves behind is found and mended here."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
from django.db import InterfaceError, OperationalError, connection

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import UNCLAIMED, LateMark, Outcome, TaskState
from scheduler_ext.core.work import Changes, Finished
from scheduler_ext.upkeep import Job
from slackwater_tasks.explain import hits
from slackwater_tasks.graph.relatives import GraphUpkeep
from slackwater_tasks.ledger import sql, transitions
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.runtime import objects
from slackwater_tasks.runtime.checkpoints import forget_ended
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.upkeep import ended_workflows, paused_time, retention
from slackwater_tasks.upkeep.parking import ParkingUpkeep
from slackwater_tasks.upkeep.plan_rates import settle
from slackwater_tasks.upkeep.reranking import rerank
from slackwater_tasks.upkeep.stealing import Stealing

BATCH = 1000
MAPS = 50
TASKS = ("tasks",)
OLD_KEYS = """
DELETE FROM slackwater_tasks_idempotencykey WHERE (tenant_id, key) IN (
    SELECT tenant_id, key FROM slackwater_tasks_idempotencykey WHERE created_at < clock_timestamp() - %s * interval '1 second'
    ORDER BY created_at LIMIT %s)
"""


class LedgerUpkeep:
    """The jobs over one connection."""

    def __init__(self, conf: SchedulerConf, publish: Callable[[Changes], None]) -> None:
        """``publish`` tells pollers of changes, and the dispatcher of work."""
        self.conf = conf
        self.publish = publish
        self.db = Database("slackwater upkeep")
        self.work = PgWorkStore(conf, "upkeep", self.db)
        self.stealing = Stealing(conf, self.db, PgRoundStore(conf, "upkeep", self.db), publish)

    def jobs(self) -> list[Job]:
        return [
            Job(name="lost nodes", every_s=1.0, run=self.lose_nodes, over=("unheard nodes",)),
            Job(name="work of lost nodes", every_s=1.0, run=self.recover, over=TASKS),
            Job(name="expired claims", every_s=1.0, run=self.expire_claims, over=TASKS),
            Job(name="claims of busy nodes", every_s=1.0, run=self.stealing.steal, over=TASKS),
            # Before the late tasks: a pause that began a moment ago must be known by then.
            *paused_time.jobs(self.db),
            Job(name="ranks", every_s=0.5, run=partial(rerank, self.conf, self.db), over=TASKS),
            *ParkingUpkeep(self.conf, self.db, self.work, self.publish).jobs(),
            Job(name="large graphs packed", every_s=1.0, run=GraphUpkeep(self.db).pack, over=TASKS),
            Job(name="execution rates of plans", every_s=2.0, run=partial(self.db.repeatable, settle), over=TASKS),
            Job(name="late tasks", every_s=1.0, run=self.expire_late, over=TASKS),
            Job(name="forecasts", every_s=2.0, run=self.check_forecasts, full=BATCH, over=("forecasts",)),
            Job(name="maps", every_s=0.25, run=self.advance_maps, full=MAPS, over=("maps",)),
            Job(name="bulk operations", every_s=0.5, run=self.advance_bulk, full=1, over=("bulk",)),
            Job(name="unreleased dependants", every_s=2.0, run=self.release, over=("unreleased",)),
            Job(name="parked mutex keys", every_s=2.0, run=self.unpark, over=TASKS),
            Job(name="ended tasks taken in", every_s=10.0, run=self.take_in, full=BATCH, ordinary=True),
            Job(name="old idempotency keys", every_s=60.0, run=self.forget_keys, full=BATCH),
            Job(name="checkpoints of ended tasks", every_s=60.0, run=partial(forget_ended, self.db, BATCH), full=BATCH),
            Job(name="objects of what is gone", every_s=60.0, run=partial(objects.empty, self.db), full=objects.BATCH),
            Job(name="lines of ended workflows", every_s=60.0, run=self.delete_lines, full=BATCH),
            Job(name="retention", every_s=60.0, run=partial(retention.prune, self.db), full=retention.BATCH),
        ]

    def look(self) -> list[str]:
        """What there is for the jobs to be about, by the names of their ``over``."""
        found: list[str] = self.db.conn.execute(sql.due.PRESENT, prepare=True).fetchall()[0][0]
        return found

    def lose_nodes(self) -> int:
        """Declare nodes lost that have not renewed their lease; none right after the database itself was away."""
        return int(self.db.conn.execute(sql.leadership.LOSE_NODES, (self.conf.node_lease_s,)).rowcount)

    def recover(self) -> int:
        """Take back what lost nodes and nodes that left still hold.

        Nobody knows which of a batch had begun: its members are suspects, run alone next, and only a loss when alone
        counts. A task that allows a single attempt always runs alone, and in doubt it fails.
        """
        rows = self.db.conn.execute(sql.leadership.HELD_BY_GONE, (BATCH,)).fetchall()
        by_node: dict[int, list[Any]] = {}
        for row in rows:
            by_node.setdefault(row[6], []).append(row)
        for node_id, held in by_node.items():
            self._recover_node(node_id, held)
        return len(rows)

    def _recover_node(self, node_id: int, rows: list[Any]) -> None:
        queued = [(r[0], r[1]) for r in rows if r[2] == TaskState.QUEUED]
        suspects = [(r[0], r[1]) for r in rows if r[2] == TaskState.RUNNING and r[3] > 1 and r[4] > 1]
        lost = [r for r in rows if r[2] == TaskState.RUNNING and not (r[3] > 1 and r[4] > 1)]
        back = self.work.hand_back
        changes = back(node_id, queued, running=False, reason="handed back: its node was lost") if queued else []
        if suspects:
            reason = "its node was lost while it may have run: it runs alone next"
            changes += back(node_id, suspects, running=True, reason=reason, alone=True)
        if lost:
            now, why = time.time(), "its node was lost while it ran"
            ended = [Finished(r[0], r[1], Outcome.WORKER_LOST, r[5], max(now, r[5]), None, why) for r in lost]
            changes += self.work.record(node_id, ended)
        self.publish(changes)

    def delete_lines(self) -> int:
        """Delete the lines of workflows with a share of their own that have ended."""
        with self.db.conn.transaction():
            return ended_workflows.delete_lines(self.db.conn, BATCH)

    def gone_lately(self) -> list[int]:
        """The cell's nodes that were lost or left within the last hours."""
        return [row[0] for row in self.db.conn.execute(sql.leadership.GONE_LATELY, (self.conf.cell, BATCH)).fetchall()]

    def expire_claims(self) -> int:
        """Take back claims that were not started in time: a crash between commit and publish heals here."""
        count = transitions.return_queued(self.db.conn, self.conf.cell, expired_only=True)
        if count:
            self.publish([])
        return count

    def expire_late(self) -> int:
        """End tasks that may not start any more, and those given up when late; tell the clients of other late ones."""

        def work(conn: Any) -> list[Any]:
            rows = conn.execute(sql.due.LATE, (BATCH,)).fetchall()
            transitions.tell_late(conn, [task_id for task_id, on_late in rows if on_late == LateMark.TELL])
            late = [task_id for task_id, on_late in rows if on_late != LateMark.TELL]
            end = partial(transitions.end_if_waiting, conn, final=TaskState.EXPIRED, actor="upkeep")
            over = [row[0] for row in conn.execute(sql.due.EXPIRED, (BATCH,)).fetchall()]
            gone = end(over, reason="it was not started before it expired", hard=True)
            return gone + end(late, reason="its latest start passed", states=UNCLAIMED)

        gone = self.db.repeatable(work)
        followed = self.work.follow_up([(row[0], TaskState.EXPIRED, row[1], row[2]) for row in gone])
        over = [transitions.changed(row, TaskState.EXPIRED, {"reason": row[5]}) for row in gone]
        self.publish(over + followed)
        return len(gone)

    def release(self) -> int:
        """Tell dependants again whose release was lost between a finish and its follow-up."""
        rows = self.db.conn.execute(sql.dependencies.UNRELEASED, (BATCH,)).fetchall()
        if rows:
            ended = [(task_id, TaskState(state)) for task_id, state in rows]
            self.publish(self.work.release(ended))
        return len(rows)

    def advance_maps(self) -> int:
        """Make the elements of maps whose list is there, and end those whose elements have ended."""
        due = self.db.conn.execute(sql.due.MAPS, (MAPS,)).fetchall()
        if not due:
            return 0
        from slackwater_tasks.control import maps  # with all of submission, which few need here

        return _over_django(partial(maps.advance, due))

    def advance_bulk(self) -> int:
        """Do the next part of what an operator does to many tasks."""
        if self.db.conn.execute(sql.due.BULK).fetchone() is None:
            return 0
        from slackwater_tasks.control import bulk_operations  # as above

        return _over_django(bulk_operations.advance)

    def unpark(self) -> int:
        keys = [row[0] for row in self.db.conn.execute(sql.parking.PARKED_KEYS, (BATCH,)).fetchall()]
        return self.db.repeatable(lambda conn: transitions.unpark(conn, keys)) if keys else 0

    def check_forecasts(self) -> int:
        """Compare the predicted starts that were shown with what happened."""
        return self.db.repeatable(lambda conn: hits.check(conn, BATCH))

    def take_in(self) -> int:
        """Take ended tasks into the counters of tenants that submit no more: the version before knows no other."""
        return int(self.db.conn.execute(sql.store.TAKE_IN, (BATCH,)).rowcount)

    def forget_keys(self) -> int:
        return int(self.db.conn.execute(OLD_KEYS, (self.conf.idempotency_keys_s, BATCH)).rowcount)


def _over_django(work: Callable[[], int]) -> int:
    """Do what goes over Django's connection; its faults are raised as the other jobs tell of theirs."""
    connection.close_if_unusable_or_obsolete()
    try:
        return work()
    except (OperationalError, InterfaceError) as error:
        raise psycopg.OperationalError(str(error)) from error
