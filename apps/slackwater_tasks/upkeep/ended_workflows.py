"""The end of workflows: noticed once, and stored with them; and the deletion of ended workflows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import Conflict, NotFound
from scheduler_ext.core.sql import named
from slackwater_tasks.upkeep.retention import forget

# Locked first, counted after, by a statement that sees what was committed meanwhile: who makes a task live again, or
# adds one, holds the workflow's row.
OPEN = """
SELECT w.id FROM slackwater_tasks_workflow w WHERE w.status IS NULL AND NOT EXISTS (
    SELECT 1 FROM slackwater_tasks_task t WHERE t.workflow_id = w.id AND t.state IS NULL)
ORDER BY w.id LIMIT %s FOR UPDATE OF w SKIP LOCKED
"""
END = named("""
UPDATE slackwater_tasks_workflow w SET status = x.status, finished_at = x.at
FROM (SELECT t.workflow_id, max(t.finished_at) AS at, CASE
          WHEN bool_and(t.state IN (:state.SUCCEEDED, :state.SKIPPED)) THEN :status.DONE ELSE :status.FAILED END AS status
      FROM slackwater_tasks_task t WHERE t.workflow_id = ANY(%s) GROUP BY 1 HAVING bool_and(t.state IS NOT NULL)) x
WHERE w.id = x.workflow_id
RETURNING w.id::text, w.tenant_id, w.name, w.task_count, w.submitted_at, w.finished_at, w.status, w.tags, w.metadata
""")
# A line that its workflow may still need is locked by who makes a task of it live again; and what is being submitted
# has lines before its workflow is there.
LINES_OVER = """
SELECT n.id FROM slackwater_tasks_line n LEFT JOIN slackwater_tasks_workflow w ON w.id = nullif(n.workflow, '')::uuid
WHERE n.workflow <> '' AND (w.finished_at < clock_timestamp() - interval '1 minute' OR (w.id IS NULL AND n.workflow < %s))
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_policychoice c WHERE c.line_id = n.id)
ORDER BY n.id LIMIT %s FOR UPDATE OF n SKIP LOCKED
"""
DELETE_LINES = """
DELETE FROM slackwater_tasks_line n WHERE n.id = ANY(%s)
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_livetask l WHERE l.line_id = n.id)
"""
LEFT_S = 3600
"""A line whose workflow was not stored is deleted after so long."""
LOCK = "SELECT 1 FROM slackwater_tasks_workflow WHERE id = %s AND tenant_id = %s FOR UPDATE"
MEMBERS = "SELECT id, state, release_pending FROM slackwater_tasks_task WHERE workflow_id = %s FOR UPDATE"
NEEDED = """
SELECT 1 FROM slackwater_tasks_dependency d JOIN slackwater_tasks_livetask l ON l.task_id = d.child_id
WHERE d.parent_id = ANY(%s) LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A workflow that has just ended."""

    id: str
    tenant_id: int
    name: str
    task_count: int
    submitted_at: datetime
    finished_at: datetime
    status: int
    tags: list[str]
    metadata: Any


def end(conn: Any, most: int) -> list[Ended]:
    """Mark up to ``most`` workflows whose tasks have all ended, in the transaction of ``conn``."""
    ids = [row[0] for row in conn.execute(OPEN, (most,)).fetchall()]
    return [Ended(*row) for row in conn.execute(END, (ids,)).fetchall()] if ids else []


def delete_lines(conn: Any, most: int) -> int:
    """Delete lines of workflows with a share of their own that have ended, in the transaction of ``conn``."""
    before_ms = int((time.time() - LEFT_S) * 1000)
    ids = [
        row[0] for row in conn.execute(LINES_OVER, (f"{before_ms >> 16:08x}-{before_ms & 0xFFFF:04x}", most)).fetchall()
    ]
    return int(conn.execute(DELETE_LINES, (ids,)).rowcount) if ids else 0


def delete(tenant_id: int, workflow_id: UUID) -> int:
    """Delete a workflow with its tasks and all that belongs to them; returns how many tasks there were.

    ``Conflict`` while one of them has not ended, or a task elsewhere still waits for its result.
    """
    with transaction.atomic(), connection.cursor() as cur:
        cur.execute(LOCK, (workflow_id, tenant_id))
        if cur.fetchone() is None:
            raise NotFound(f"There is no workflow {workflow_id}.")
        cur.execute(MEMBERS, (workflow_id,))
        rows = cur.fetchall()
        if any(state is None or told for _, state, told in rows):
            raise Conflict("it has not ended; cancel it first")
        cur.execute(NEEDED, ([row[0] for row in rows],))
        if cur.fetchone() is not None:
            raise Conflict("a task that has not ended depends on one of its tasks")
        count = forget(cur, rows)
        cur.execute("DELETE FROM slackwater_tasks_workflow WHERE id = %s", (workflow_id,))
    return count
