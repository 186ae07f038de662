"""Traced tasks that have ended and wait to be sent: claimed, read whole, marked as sent.

A row of ``slackwater_tasks_tasktrace`` is the task's place in the backlog, so nothing is lost with a process. Two that send the
same task after a crash send spans of the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler_ext.core.states import Category, Outcome, TaskState
from slackwater_monitoring.outbox import LeasedOutbox, Sent, outcomes
from slackwater_monitoring.tracing.spans import MAX_EVENTS, AttemptRow, EventRow, Traced

MAX_LOOKED_AT: Final = 10_000
"""Rows looked at in one go for tasks that have ended: most of them may still wait."""
FIRST: Final = "00000000-0000-0000-0000-000000000000"

SEEN = """
SELECT count(*), (array_agg(task_id::text ORDER BY task_id DESC))[1] FROM (
    SELECT task_id FROM slackwater_tasks_tasktrace WHERE export_at IS NOT NULL AND task_id > %(after)s::uuid
    ORDER BY task_id LIMIT %(look)s) x
"""
# Without a live row a task has ended, or was deleted.
CLAIM = """
WITH ended AS (
    SELECT x.task_id FROM slackwater_tasks_tasktrace x
    WHERE x.export_at IS NOT NULL AND x.task_id > %(after)s::uuid AND x.task_id <= %(upto)s::uuid
        AND x.export_at <= clock_timestamp()
        AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_livetask l WHERE l.task_id = x.task_id)
    ORDER BY x.task_id LIMIT %(most)s FOR UPDATE OF x SKIP LOCKED)
UPDATE slackwater_tasks_tasktrace x SET export_at = clock_timestamp() + %(lease)s * interval '1 second'
FROM ended e WHERE x.task_id = e.task_id
RETURNING x.task_id::text, x.run, x.sent_fence
"""
TASKS = """
SELECT t.id::text, n.slug, t.name, coalesce(nullif(t.handler, ''), nullif(t.script_path, ''), 'script'), t.handler = '',
       t.category, r.slug, t.priority, t.workflow_id::text, t.submitted_at, coalesce(x.since, t.submitted_at),
       t.start_at, t.finished_at, t.state, right(t.error, 2000), t.reason, x.trace_id, x.parent_id, x.tracestate, x.run
FROM slackwater_tasks_tasktrace x JOIN slackwater_tasks_task t ON t.id = x.task_id
    JOIN slackwater_tenants_tenant n ON n.id = t.tenant_id
JOIN slackwater_resources_tier r ON r.id = t.tier_id
WHERE x.task_id = ANY(%s::uuid[]) AND t.state IS NOT NULL ORDER BY t.id
"""
ATTEMPTS = """
SELECT a.task_id::text, a.number, a.fence, a.queued_at, a.started_at, a.finished_at, a.outcome, right(a.error, 2000),
       a.exit_code, a.cpu_ms, a.peak_memory_mb, a.worker, coalesce(d.name, '')
FROM slackwater_tasks_attempt a JOIN unnest(%s::uuid[], %s::int[]) AS u(id, fence) ON a.task_id = u.id AND a.fence > u.fence
LEFT JOIN slackwater_resources_node d ON d.id = a.node_id ORDER BY a.task_id, a.fence
"""
EVENTS = """
SELECT e.task_id::text, e.at, e.to_state, e.reason, e.actor
FROM slackwater_tasks_tasktrace x CROSS JOIN LATERAL (
    SELECT * FROM slackwater_tasks_taskevent e WHERE e.task_id = x.task_id ORDER BY e.id DESC LIMIT %s) e
WHERE x.task_id = ANY(%s::uuid[]) AND (x.since IS NULL OR e.at >= x.since) ORDER BY e.id
"""
PARENTS = """
SELECT d.child_id::text, d.parent_id::text, p.trace_id, p.run
FROM slackwater_tasks_dependency d JOIN slackwater_tasks_tasktrace p ON p.task_id = d.parent_id AND p.sampled
WHERE d.child_id = ANY(%s::uuid[]) ORDER BY d.parent_id
"""
# A task that has begun to run again since its claim has another run, and stays to be sent.
RECORD = f"""
UPDATE slackwater_tasks_tasktrace x SET export_at = clock_timestamp() + u.wait * interval '1 second',
    sent_fence = greatest(x.sent_fence, (u.note->>'fence')::int)
FROM {outcomes("uuid")} WHERE x.task_id = u.id AND x.run = u.token AND (u.wait IS NULL OR x.export_at IS NOT NULL)
"""  # noqa: S608 - statements of ours
TRACES: Final = LeasedOutbox(claim_sql=CLAIM, record_sql=RECORD)
WAITING = """
SELECT count(*) FROM (
    SELECT 1 FROM slackwater_tasks_tasktrace x WHERE x.export_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_livetask l WHERE l.task_id = x.task_id) LIMIT %s) x
"""
GIVE_UP = """
UPDATE slackwater_tasks_tasktrace SET export_at = NULL WHERE task_id = ANY(ARRAY(
    SELECT x.task_id FROM slackwater_tasks_tasktrace x WHERE x.export_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_livetask l WHERE l.task_id = x.task_id)
    ORDER BY x.task_id LIMIT %s FOR UPDATE OF x SKIP LOCKED))
"""
COUNT = """
INSERT INTO slackwater_monitoring_tracesending AS s (id, sent, refused, failing_since, error)
VALUES (1, %(sent)s, %(refused)s, CASE WHEN %(error)s::text <> '' THEN clock_timestamp() END, %(error)s)
ON CONFLICT (id) DO UPDATE SET sent = s.sent + excluded.sent, refused = s.refused + excluded.refused,
    error = excluded.error,
    failing_since = CASE WHEN excluded.error <> '' THEN coalesce(s.failing_since, excluded.failing_since) END
"""
NOTE = """
INSERT INTO slackwater_monitoring_tracesending AS s (id, backlog, dropped) VALUES (1, %(backlog)s, %(dropped)s)
ON CONFLICT (id) DO UPDATE SET backlog = excluded.backlog, dropped = s.dropped + excluded.dropped
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A task that this process sends now."""

    task_id: str
    run: int
    sent_fence: int


@dataclass(slots=True)
class Cursor:
    """How far the search for ended tasks has come; it goes round and round."""

    after: str = FIRST


def claim(conn: Any, cursor: Cursor, most: int) -> list[Claimed]:
    """The next ended tasks, at most ``most``; they are this process's for a minute."""
    count, upto = conn.execute(SEEN, {"after": cursor.after, "look": MAX_LOOKED_AT}).fetchone()
    if not count:
        cursor.after = FIRST
        return []
    found = TRACES.claim(conn, after=cursor.after, upto=upto, most=most)
    rows = [Claimed(task_id=row[0], run=row[1], sent_fence=row[2]) for row in found]
    if len(rows) == most:
        cursor.after = max(row.task_id for row in rows)
    else:
        cursor.after = upto if count == MAX_LOOKED_AT else FIRST
    return rows


def read(conn: Any, claimed: Sequence[Claimed]) -> list[Traced]:
    """Read the tasks with everything their spans need. A task that was deleted, or runs again, is left out."""
    ids = [one.task_id for one in claimed]
    fences = [one.sent_fence for one in claimed]
    attempts = _grouped((row[0], _attempt(row)) for row in conn.execute(ATTEMPTS, (ids, fences)).fetchall())
    events = _grouped(
        (row[0], EventRow(at=row[1], state=TaskState(row[2]), reason=row[3], actor=row[4]))
        for row in conn.execute(EVENTS, (MAX_EVENTS, ids)).fetchall()
    )
    parents = _grouped((row[0], (row[1], row[2], row[3])) for row in conn.execute(PARENTS, (ids,)).fetchall())
    return [
        Traced(
            task_id=row[0], tenant=row[1], name=row[2], handler=row[3], is_script=row[4], category=Category(row[5]),
            tier=row[6], priority=row[7], workflow_id=row[8], submitted_at=row[9], began_at=row[10], start_at=row[11],
            finished_at=row[12], state=TaskState(row[13]), error=row[14], reason=row[15], trace_id=row[16],
            parent_id=row[17], tracestate=row[18], run=row[19], attempts=attempts.get(row[0], []),
            events=events.get(row[0], []), parents=parents.get(row[0], []),
        )
        for row in conn.execute(TASKS, (ids,)).fetchall()
    ]  # fmt: skip


def _attempt(row: Sequence[Any]) -> AttemptRow:
    return AttemptRow(
        number=row[1], fence=row[2], queued_at=row[3], started_at=row[4], finished_at=row[5], outcome=Outcome(row[6]),
        error=row[7], exit_code=row[8], cpu_ms=row[9], peak_memory_mb=row[10], worker=row[11], node=row[12],
    )  # fmt: skip


def _grouped(rows: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, row in rows:
        found.setdefault(name, []).append(row)
    return found


def done(conn: Any, claimed: Sequence[Claimed], tasks: Sequence[Traced]) -> None:
    """Record that there is nothing more to send of these, until one runs again."""
    fences = {task.task_id: max((a.fence for a in task.attempts), default=0) for task in tasks}
    TRACES.record(
        conn,
        [
            Sent(id=one.task_id, token=one.run, arrived=True, note={"fence": fences.get(one.task_id, 0)})
            for one in claimed
        ],
    )


def later(conn: Any, claimed: Sequence[Claimed]) -> None:
    """Record that they were not sent: any process may try again."""
    TRACES.record(conn, [Sent(id=one.task_id, token=one.run, arrived=False, wait_s=0.0, note={}) for one in claimed])


def bound(conn: Any, most: int) -> tuple[int, int]:
    """Give up the oldest ended tasks beyond ``most``; returns how many still wait, and how many were given up."""
    waiting = conn.execute(WAITING, (most + MAX_LOOKED_AT,)).fetchone()[0]
    dropped = conn.execute(GIVE_UP, (waiting - most,)).rowcount if waiting > most else 0
    return waiting - dropped, dropped


def count(conn: Any, *, sent: int = 0, refused: int = 0, error: str = "") -> None:
    """Count sent and refused tasks for the metrics, and note an error of the collector."""
    conn.execute(COUNT, {"sent": sent, "refused": refused, "error": error[:300]})


def note(conn: Any, *, backlog: int, dropped: int) -> None:
    """Note for the metrics how many ended tasks wait, and how many were given up."""
    conn.execute(NOTE, {"backlog": backlog, "dropped": dropped})
