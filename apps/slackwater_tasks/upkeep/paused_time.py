"""Paused time does not count against delay tolerances, whatever paused a tenant, line or handler.

Upkeep notes what is paused; when it goes on, the latest start of each of its waiting tasks moves by the time it was
held up. What two pauses held up at once is counted once. Meanwhile nothing of it is late, and nothing is promoted.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from scheduler_ext.conf import PROMOTE_LEAD_MS
from scheduler_ext.core.sql import named
from scheduler_ext.upkeep import Job
from slackwater_tasks.ledger.connection import Database

BATCH = 5_000
SOON_S = 5.0
PAUSES = ("pauses",)

NOTE = """
INSERT INTO slackwater_tasks_pause (kind, subject)
SELECT 'tenant', id FROM slackwater_tenants_tenant WHERE paused
UNION ALL SELECT 'line', id FROM slackwater_tasks_line WHERE paused
UNION ALL SELECT 'handler', id FROM slackwater_resources_handler WHERE paused
ON CONFLICT DO NOTHING
"""
END = """
UPDATE slackwater_tasks_pause p SET ended_at = clock_timestamp()
WHERE p.ended_at IS NULL AND NOT CASE p.kind
    WHEN 'tenant' THEN EXISTS (SELECT 1 FROM slackwater_tenants_tenant t WHERE t.id = p.subject AND t.paused)
    WHEN 'line' THEN EXISTS (SELECT 1 FROM slackwater_tasks_line n WHERE n.id = p.subject AND n.paused)
    ELSE EXISTS (SELECT 1 FROM slackwater_resources_handler h WHERE h.id = p.subject AND h.paused) END
"""
# Out of the way of the round, which would look at them each time: the real moment is set when the pause ends.
HOLD = named("""
WITH held AS (
    SELECT l.task_id FROM slackwater_tasks_livetask l
    WHERE l.phase = :phase.READY AND l.promote_at < statement_timestamp() + %s * interval '1 second'
        AND (EXISTS (SELECT 1 FROM slackwater_tasks_pause WHERE kind = 'tenant' AND subject = l.tenant_id)
             OR EXISTS (SELECT 1 FROM slackwater_tasks_pause WHERE kind = 'line' AND subject = l.line_id)
             OR EXISTS (SELECT 1 FROM slackwater_tasks_pause WHERE kind = 'handler' AND subject = l.handler_id))
    LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE slackwater_tasks_livetask l SET promote_at = '9000-01-01' FROM held WHERE l.task_id = held.task_id
""")
OVER = """
SELECT id, kind, subject, reached FROM slackwater_tasks_pause WHERE ended_at IS NOT NULL ORDER BY id LIMIT 1
    FOR UPDATE SKIP LOCKED
"""
# What remains of its tolerance begins where the waiting, less all pauses before, began: latest start - tolerance.
GIVE_BACK = named("""
WITH p AS (SELECT * FROM slackwater_tasks_pause WHERE id = %(pause)s),
picked AS (
    SELECT l.task_id FROM slackwater_tasks_livetask l
    WHERE l.{column} = %(subject)s AND l.task_id > %(reached)s AND l.latest_start IS NOT NULL
        AND l.phase IN (:phase.BLOCKED, :phase.SCHEDULED, :phase.READY)
    ORDER BY l.task_id LIMIT %(batch)s FOR UPDATE OF l),
due AS (
    SELECT l.task_id, greatest(interval '0', least(p.ended_at, coalesce(o.since, p.ended_at))
        - greatest(p.since, l.latest_start - l.tolerance_ms * interval '1 millisecond')) AS credit
    FROM picked JOIN slackwater_tasks_livetask l USING (task_id) CROSS JOIN p LEFT JOIN LATERAL (
        SELECT min(x.since) AS since FROM slackwater_tasks_pause x WHERE x.id <> p.id AND (
            (x.kind = 'tenant' AND x.subject = l.tenant_id) OR (x.kind = 'line' AND x.subject = l.line_id)
            OR (x.kind = 'handler' AND x.subject = l.handler_id))) o ON true),
moved AS (
    UPDATE slackwater_tasks_livetask l SET latest_start = l.latest_start + due.credit,
        promote_at = CASE WHEN l.promote_at IS NOT NULL THEN l.latest_start + due.credit
            - least(l.tolerance_ms, %(lead_ms)s) * interval '1 millisecond' END
    FROM due WHERE l.task_id = due.task_id)
SELECT count(*), max(task_id::text) FROM picked
""")
COLUMNS = {"tenant": "tenant_id", "line": "line_id", "handler": "handler_id"}
FIRST = "00000000-0000-0000-0000-000000000000"


def jobs(db: Database) -> list[Job]:
    """The jobs with their intervals, over upkeep's connection."""
    return [
        Job(name="pauses", every_s=1.0, run=partial(note, db), over=("tasks", "pauses")),
        Job(name="promotions held", every_s=1.0, run=partial(hold, db), over=PAUSES),
        Job(name="paused time given back", every_s=1.0, run=partial(db.repeatable, give_back), over=PAUSES),
    ]


def note(db: Database) -> int:
    """Note what is paused now, and what no longer is."""
    return int(db.conn.execute(NOTE).rowcount) + int(db.conn.execute(END).rowcount)


def hold(db: Database) -> int:
    """Keep tasks of what is paused from being promoted."""
    return int(db.conn.execute(HOLD, (SOON_S, BATCH)).rowcount)


def give_back(conn: Any) -> int:
    """Move the latest starts of a batch of tasks whose pause is over; returns how many."""
    over = conn.execute(OVER).fetchone()
    if over is None:
        return 0
    pause, kind, subject, reached = over
    params = {
        "pause": pause, "subject": subject, "reached": reached or FIRST, "batch": BATCH, "lead_ms": PROMOTE_LEAD_MS,
    }  # fmt: skip
    count, last = conn.execute(GIVE_BACK.format(column=COLUMNS[kind]), params).fetchone()
    if count < BATCH:
        conn.execute("DELETE FROM slackwater_tasks_pause WHERE id = %s", (pause,))
    else:
        conn.execute("UPDATE slackwater_tasks_pause SET reached = %s WHERE id = %s", (last, pause))
    return int(count)
