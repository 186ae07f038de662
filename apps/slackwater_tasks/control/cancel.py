"""Cancels tasks: waiting ones end at once, running ones are asked to end, and killed if they do not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import Conflict
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import TaskState
from scheduler_ext.core.work import Changes
from slackwater_conf.database import in_ledger
from slackwater_tasks.control import stored_task
from slackwater_tasks.ledger import events, hints, transitions
from slackwater_tasks.read.tasks import word

DESCENDANTS = """
WITH RECURSIVE down AS (
    SELECT child_id FROM slackwater_tasks_dependency WHERE parent_id = %s
    UNION SELECT d.child_id FROM slackwater_tasks_dependency d JOIN down ON d.parent_id = down.child_id)
SELECT child_id::text FROM down
"""
# What changes at this moment has changed then: it waits, it runs, or it has ended.
LOCK = "SELECT 1 FROM slackwater_tasks_livetask WHERE task_id = ANY(%s::uuid[]) ORDER BY task_id FOR UPDATE"
ASK_TO_END = named("""
UPDATE slackwater_tasks_livetask SET cancel_requested = true
WHERE task_id = ANY(%s::uuid[]) AND state = :state.RUNNING AND NOT cancel_requested
RETURNING task_id, tenant_id, fence, node_id
""")


@in_ledger
def cancel(
    tenant_id: int, task_id: UUID, *, actor: str = "", dependents: bool = False, waiting_only: bool = False,
    reason: str = "cancelled on request",
) -> TaskState:  # fmt: skip
    """Cancel a task: at once when it waits; a running one is asked to end, then killed, and RUNNING is returned.

    ``dependents`` cancels all that depends on it too, whatever their conditions. ``waiting_only`` lets what runs go on:
    RUNNING is returned, and it is asked nothing. ``Conflict`` when it is final.
    """
    task = stored_task.find(tenant_id, task_id)
    with transaction.atomic(), connection.cursor() as cur:
        ids = [str(task_id)]
        if dependents:
            cur.execute(DESCENDANTS, (task_id,))
            ids += [row[0] for row in cur.fetchall()]
        cur.execute(LOCK, (ids,))
        changes, asked = cancel_some(cur, task.tenant.cell, ids, actor=actor, reason=reason, waiting_only=waiting_only)
        if str(task_id) in {change[0] for change in changes}:
            return TaskState.CANCELLED
        if task_id not in asked and (state := stored_task.state_now(task_id)) is not TaskState.RUNNING:
            raise Conflict(f"the task has ended already: {word(state)}", state=word(state))
    return TaskState.RUNNING


def cancel_some(cur: Any, cell: str, ids: Sequence[str], *, actor: str, reason: str,
                waiting_only: bool = False) -> tuple[Changes, list[UUID]]:  # fmt: skip
    """End waiting tasks and, unless ``waiting_only``, ask running ones to end; those that have ended stay as they are.

    Returns the changes, the dependants' included, and the tasks that were asked. All are told after the commit.
    """
    if not ids:
        return [], []
    gone = transitions.end_if_waiting(cur, ids, TaskState.CANCELLED, reason=reason, actor=actor)
    asked = []
    if not waiting_only:
        cur.execute(ASK_TO_END, (list(ids),))
        asked = cur.fetchall()
    events.write(
        cur,
        [
            events.row(owner, task_id, TaskState.RUNNING, actor=actor, reason=reason, fence=fence)
            for task_id, owner, fence, _ in asked
        ],
    )
    changes = [transitions.changed(row, TaskState.CANCELLED) for row in gone]
    ended = [(row[0], TaskState.CANCELLED) for row in gone if row[1]]
    transitions.release(cur, ended, changes)
    transitions.unpark(cur, [row[2] for row in gone if row[2]])
    transaction.on_commit(partial(tell, cell, changes, {row[3] for row in asked}))
    return changes, [row[0] for row in asked]


def tell(cell: str, changes: Changes, nodes: set[int]) -> None:
    """Send hints about committed changes: to those who wait for them, to the nodes, and to the dispatcher."""
    hints.tell_changes(changes)
    for node_id in nodes:
        hints.tell_node(node_id)
    hints.wake_dispatcher(cell)
