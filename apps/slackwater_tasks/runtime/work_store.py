"""The ledger as a worker uses it: start, record, hand back, and what a task needs to run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from statistics import fmean
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.run_times import GAMMA, LONG, Quantiles, bucket_of
from scheduler_ext.core.run_times import MEMORY as LEARNT_MEMORY
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Outcome, TaskState, is_final
from scheduler_ext.core.work import Changes, Finished, ScriptWork, Started, Written
from scheduler_ext.ports import TaskBackend, WorkStore
from slackwater_resources.faults import FAULTS
from slackwater_tasks.ledger import hints, sql, transitions
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.ledger.rows import Place
from slackwater_tasks.runtime import progress, trace_context
from slackwater_tasks.runtime.output import most_written, store_chunks, store_lines
from slackwater_tasks.runtime.task_backend import AddSubtasks, PgTaskBackend, no_subtasks

# The mean forgets, and so do the buckets: see scheduler_ext.core.run_times, whose merging this is.
LEARN = f"""
INSERT INTO slackwater_tasks_runtime AS r (tenant_id, key, samples, mean_us, long_us, buckets, updated_at)
SELECT u.*, now() FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::float8[], %s::float8[], %s::jsonb[])
    AS u(tenant, key, n, mean, long, buckets) ORDER BY tenant, key
ON CONFLICT (tenant_id, key) DO UPDATE SET
    mean_us = r.mean_us + (excluded.mean_us - r.mean_us)
        * (excluded.samples::float8 / (least(r.samples, %s) + excluded.samples)),
    samples = r.samples + excluded.samples, updated_at = now(),
    (buckets, long_us) = (
        SELECT jsonb_object_agg(b, n), min(2 * power({GAMMA}, b) / {1 + GAMMA}) FILTER (WHERE upto >= {LONG} * total)
        FROM (SELECT b, n, sum(n) OVER (ORDER BY b) AS upto, sum(n) OVER () AS total FROM (
            SELECT b, round(sum(n)::numeric, 2) AS n FROM (
                SELECT key::int AS b, value::float8 * least(1, {LEARNT_MEMORY} / sum(value::float8) OVER ()) AS n
                    FROM jsonb_each_text(r.buckets)
                UNION ALL SELECT key::int, value::float8 FROM jsonb_each_text(excluded.buckets)) parts
            GROUP BY b HAVING sum(n) >= 0.05) merged) counted)
"""  # noqa: S608 - numbers of ours
MEMORY = 200
"""The mean run time forgets: older samples together weigh no more than this many."""


def _script(columns: str = "", join: str = "") -> str:
    return f"""
SELECT s.content, n.script_root, n.trusted, r.cpu_milli, r.memory_mb, r.disk_mb, r.iops, r.bandwidth_kbps, r.ports,
       n.id, EXISTS (SELECT 1 FROM slackwater_tasks_secret x WHERE x.tenant_id = n.id), p.script_network,
       coalesce(c.declared, false), p.max_checkpoint_bytes,
       CASE WHEN c.declared AND c.attempt = l.attempts THEN c.used_ms ELSE 0 END, l.mutex_fence{columns}
FROM slackwater_tasks_task t JOIN slackwater_tenants_tenant n ON n.id = t.tenant_id
    JOIN slackwater_tenants_plan p ON p.id = n.plan_id
JOIN slackwater_resources_tier r ON r.id = t.tier_id
LEFT JOIN slackwater_tasks_resumable c ON c.task_id = t.id LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id
{join}
LEFT JOIN slackwater_tasks_script s ON s.tenant_id = t.tenant_id AND s.sha256 = t.script_sha256 WHERE t.id = %s
"""  # noqa: S608 - statements of ours


SCRIPT = _script()
# Where no collector is configured, nobody looks for traces.
SCRIPT_TRACED = _script(
    ", l.fence, x.trace_id, x.sampled, x.tracestate", "LEFT JOIN slackwater_tasks_tasktrace x ON x.task_id = t.id"
)
MEMORY_MB = "SELECT r.memory_mb FROM slackwater_tasks_task t JOIN slackwater_resources_tier r ON r.id = t.tier_id WHERE t.id = %s"
SECRETS = "SELECT name, sealed FROM slackwater_tasks_secret WHERE tenant_id = %s"
UPSTREAM = """
SELECT coalesce(nullif(p.name, ''), p.id::text), p.id::text, p.result
FROM slackwater_tasks_dependency d JOIN slackwater_tasks_task p ON p.id = d.parent_id
WHERE d.child_id = %s ORDER BY p.id
"""
SCRIPT_READ = """
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, at, from_state, to_state, fence, actor, reason, detail)
SELECT t.id, t.tenant_id, to_timestamp(%s), %s, %s, %s, '', left('read ' || t.script_path, 300), %s
FROM slackwater_tasks_task t WHERE t.id = %s
"""
MUTEX_FENCE = "SELECT mutex_fence FROM slackwater_tasks_livetask WHERE task_id = %s AND fence = %s"
PROGRESS = named("""
UPDATE slackwater_tasks_livetask l SET progress = %s::jsonb FROM slackwater_tasks_task t
WHERE l.task_id = %s AND l.fence = %s AND l.state = :state.RUNNING AND t.id = l.task_id
RETURNING l.tenant_id, t.workflow_id::text
""")


def _changes(rows: Sequence[Sequence[Any]], outcomes: Mapping[str, int]) -> Changes:
    """What is told of recorded ends, as rows of :func:`transitions.finish_if_running`; ``outcomes`` but successes."""
    return [
        (task_id, state, tenant_id, workflow_id, outcomes.get(task_id), None, at)
        for task_id, state, _, _, tenant_id, workflow_id, at in rows
    ]


class PgWorkStore(WorkStore):
    """:class:`scheduler_ext.ports.WorkStore` on PostgreSQL."""

    faults = FAULTS

    def __init__(self, conf: SchedulerConf, name: str, database: Database | None = None,
                 told: Callable[[], bool] = lambda: True, add_subtasks: AddSubtasks = no_subtasks) -> None:  # fmt: skip
        """``name`` is shown in ``pg_stat_activity``; ``told()`` is False while surely no tenant listens.

        ``add_subtasks`` stores what running tasks submit.
        """
        self._told = told
        self._add_subtasks = add_subtasks
        self.conf = conf
        self.db = database or Database(f"slackwater {name}", hot=True)
        self._rng = random.Random()

    def start(self, node_id: int, claims: Sequence[tuple[str, int]], *, again: bool = False) -> list[Started]:
        """Begin claims still held by this node; those cancelled or claimed anew are left out.

        Not repeated here after a broken connection. ``again``: a call for the same claims had no answer, so what it may
        have started is begun now.
        """
        return transitions.start_if_queued(self.db.conn, node_id, claims, told=self._told(), again=again)

    def record(self, node_id: int, finished: Sequence[Finished]) -> Changes:
        """Record ended attempts by fence; then tell dependants and release parked tasks.

        Returns the changes of state that were accepted, and those that followed from them. Safe to repeat.
        """
        outcomes: dict[str, int] = {}
        if all(each.is_plain() for each in finished):
            rows = self.db.repeatable(
                lambda conn: transitions.succeed_if_running(conn, node_id, finished, told=self._told()), single=True
            )
        else:
            rows = self.db.repeatable(lambda conn: transitions.record(conn, self.conf, node_id, finished, self._rng))
            outcomes = {f.task_id: int(f.outcome) for f in finished if f.outcome is not Outcome.SUCCEEDED}
        followed = self.follow_up(rows)
        return _changes(rows, outcomes) + followed

    def record_and_follow(
        self, node_id: int, finished: Finished, claim: tuple[str, int]
    ) -> tuple[Changes, Started | None]:
        """Record a plain success and, if it is room given ahead that it finds, begin its only dependant by one statement.

        Its followers are told here, as by :meth:`record`.
        """
        rows, begun, low = transitions.follow_if_running(self.db.conn, node_id, finished, claim, told=self._told())
        if low:
            self.tell_room()
        followed = self.follow_up(rows)
        return _changes(rows, {}) + followed, begun

    def record_and_go_on(
        self, node_id: int, finished: Sequence[Finished], note: Callable[[Sequence[tuple[str, int]]], None]
    ) -> tuple[Changes, list[Started]]:
        """Record plain successes, and begin as many more of their lines where this node may go on with them by itself.

        While a tenant listens nothing begins so: whoever begins a task would have to tell of it.
        """
        if self._told():
            return self.record(node_id, finished), []
        conn = self.db.conn
        with conn.transaction():
            rows, begun = transitions.go_on_if_running(conn, node_id, finished)
            if begun:
                note([(task.task_id, task.fence) for task in begun])
        followed = self.follow_up(rows)
        return _changes(rows, {}) + followed, begun

    def tell_room(self) -> None:
        """Tell the dispatcher of free room."""
        hints.tell_room(self.conf.cell)

    def follow_up(self, rows: Sequence[tuple[Any, ...]]) -> Changes:
        """After a committed finish: release dependants and mutex keys. Upkeep repeats what is lost here.

        Returns the dependants that were cancelled, because what they needed did not come.
        """
        cancelled: Changes = []
        parents = [(row[0], TaskState(row[1])) for row in rows if row[2] and is_final(TaskState(row[1]))]
        if parents:
            cancelled = self.release(parents)
        keys = [row[3] for row in rows if row[3]]
        if keys:
            self.db.repeatable(lambda conn: transitions.unpark(conn, keys))
        return cancelled

    def release(self, parents: Sequence[tuple[str, TaskState]]) -> Changes:
        """Tell the dependants of ended tasks; returns those that were cancelled by it."""

        def work(conn: Any) -> tuple[Changes, Any]:
            cancelled: Changes = []
            return cancelled, transitions.release(conn, parents, cancelled, claim_s=transitions.CLAIM_S)

        cancelled, freed = self.db.repeatable(work, pipelined=True)
        handed = [(row[0], row[1], Place(*row[2:])) for row in freed or () if row[2] is not None]
        for place, claims in groupby(handed, itemgetter(2)):
            # What does not arrive is taken back like any other claim that nobody begins.
            hints.hand_over(place, [(str(task_id), fence) for task_id, fence, _ in claims], self.conf.cell)
        return cancelled

    def listened(self) -> bool:
        row = self.db.conn.execute(sql.finish.LISTENED).fetchone()
        return row is None or bool(row[0])

    def hand_back(self, node_id: int, claims: Sequence[tuple[str, int]], *, running: bool, reason: str,
                  alone: bool = False) -> Changes:  # fmt: skip
        state = TaskState.RUNNING if running else TaskState.QUEUED
        rows = self.db.repeatable(
            lambda conn: transitions.hand_back(
                conn, node_id, claims, state=state, actor=f"node {node_id}", reason=reason, alone=alone
            )
        )
        keys = [row[1] for row in rows if row[1]]
        if keys:
            self.db.repeatable(lambda conn: transitions.unpark(conn, keys))
        return [(row[0], int(TaskState.READY), row[2], row[3], None, None, row[4]) for row in rows]

    def script(self, task_id: str) -> ScriptWork:
        traced = trace_context.is_on()
        row = self.db.conn.execute(SCRIPT_TRACED if traced else SCRIPT, (task_id,)).fetchone()
        if row is None:
            raise LookupError(f"there is no task {task_id}")
        content = bytes(row[0]) if row[0] is not None else None
        return ScriptWork(
            content=content, folder=row[1], trusted=row[2], vector=tuple(row[3:9]),
            secrets=self._secrets(row[9]) if row[10] else {}, network=row[11],
            checkpoints=row[12], max_checkpoint_bytes=row[13], used_ms=row[14], mutex_fence=row[15],
            trace=trace_context.headers(task_id, row[16] or 0, row[17:20]) if traced else {},
        )  # fmt: skip

    def memory_mb(self, task_id: str) -> int:
        row = self.db.conn.execute(MEMORY_MB, (task_id,)).fetchone()
        if row is None:
            raise LookupError(f"there is no task {task_id}")
        return int(row[0])

    def _secrets(self, tenant_id: int) -> dict[str, str]:
        from slackwater_tasks.runtime.sealed import open_all  # few workers need it, and it loads a library

        return open_all(tenant_id, self.db.conn.execute(SECRETS, (tenant_id,)).fetchall())

    def upstream(self, task_id: str) -> dict[str, Any]:
        return {name: result for name, _, result in self._parents(task_id)}

    def parents(self, task_id: str) -> dict[str, Any]:
        rows = self._parents(task_id)
        return {key: result for _, key, result in rows} | {name: result for name, _, result in rows}

    def _parents(self, task_id: str) -> list[tuple[str, str, Any]]:
        rows: list[tuple[str, str, Any]] = self.db.conn.execute(UPSTREAM, (task_id,)).fetchall()
        return rows

    def script_read(self, task_id: str, fence: int, at: float, sha256: str) -> None:
        running = int(TaskState.RUNNING)
        self.db.conn.execute(SCRIPT_READ, (at, running, running, fence, Jsonb({"sha256": sha256}), task_id))

    def most_written(self, task: Started) -> int:
        return most_written(self.db.conn, task)

    def write(self, written: Sequence[Written]) -> None:
        store_lines(self.db.conn, written)

    def emit(self, task: Started, chunks: Sequence[tuple[int, str]], total: int) -> None:
        store_chunks(self.db.conn, task, chunks, total)

    def progress(self, task_id: str, fence: int, value: str) -> None:
        row = self.db.conn.execute(PROGRESS, (value, task_id, fence)).fetchone()
        if row is not None:
            progress.teller.tell(task_id, row[0], row[1], value)

    def mutex_fence(self, task_id: str, fence: int) -> int | None:
        row = self.db.conn.execute(MUTEX_FENCE, (task_id, fence)).fetchone()
        return row[0] if row else None

    def backend(self, task: Started) -> TaskBackend:
        return PgTaskBackend(task, add_subtasks=self._add_subtasks)

    def learn(self, samples: Mapping[tuple[int, str], Sequence[float]]) -> None:
        columns: list[tuple[Any, ...]] = []
        for (tenant_id, key), seconds in samples.items():
            buckets = Counter([bucket_of(each * 1e6) for each in seconds])
            mean, long = fmean(seconds) * 1e6, Quantiles(buckets).at(LONG)
            columns.append((tenant_id, key[:200], len(seconds), mean, long, Jsonb(buckets)))
        if not columns:
            return
        try:
            self.db.conn.execute(LEARN, (*map(list, zip(*columns, strict=True)), MEMORY))
        except psycopg.OperationalError:
            self.db.close()  # a few samples less: nothing depends on them

    def held(self, node_id: int) -> list[tuple[str, int, int]]:
        rows = self.db.conn.execute(sql.leadership.HELD_BY, (node_id,)).fetchall()
        return [(row[0], row[1], row[2]) for row in rows]

    def close(self) -> None:
        self.db.close()
