"""Asks one running task to make room: it saves at its next checkpoint, goes back to its line, and goes on from there."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import Conflict
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import TaskState
from slackwater_conf.database import in_ledger
from slackwater_tasks.control import stored_task
from slackwater_tasks.ledger import events, hints

ASK = named("""
UPDATE slackwater_tasks_resumable r SET asked = :outcome.YIELDED, asked_fence = l.fence, asked_at = clock_timestamp(),
    lets_by = NULL
FROM slackwater_tasks_livetask l
WHERE r.task_id = %s AND l.task_id = r.task_id AND r.declared AND l.state = :state.RUNNING
    AND r.asked_fence IS DISTINCT FROM l.fence
RETURNING l.fence, l.node_id
""")


@in_ledger
def ask_to_yield(tenant_id: int, task_id: UUID, *, actor: str, reason: str) -> None:
    """Ask it; ``Conflict`` when it does not run, keeps no checkpoints, or was asked already."""
    task = stored_task.find(tenant_id, task_id)
    with transaction.atomic(), connection.cursor() as cur:
        cur.execute(ASK, (task_id,))
        found = cur.fetchone()
        if found is None:
            raise Conflict("the task does not run, keeps no checkpoints to go on from, or has been asked already")
        fence, node_id = found
        why = f"asked to make room: {reason}"
        events.write(
            cur, [events.row(task.tenant_id, task_id, TaskState.RUNNING, actor=actor, reason=why, fence=fence)]
        )
        transaction.on_commit(partial(hints.tell_node, node_id))
