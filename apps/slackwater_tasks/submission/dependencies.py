"""Dependencies of new tasks on tasks that exist already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import connection

from scheduler_ext.core.errors import Conflict, UnknownDependency
from scheduler_ext.core.states import EdgeOutcome, TaskState, edge_outcome, turn
from slackwater_tasks.ledger import active_policies, copy_format, precedence
from slackwater_tasks.ledger.rows import Accepted
from slackwater_tasks.submission.admission import Outside
from slackwater_tasks.submission.store import EDGE_COLUMNS
from slackwater_tenants.models import Tenant

LOCK_PARENTS = """
WITH l AS (SELECT task_id FROM slackwater_tasks_livetask WHERE task_id = ANY(%s) ORDER BY task_id FOR UPDATE),
marked AS (
    UPDATE slackwater_tasks_livetask x SET has_children = true FROM l WHERE x.task_id = l.task_id AND NOT x.has_children)
SELECT task_id FROM l
"""
PARENTS = "SELECT id, state, workflow_id FROM slackwater_tasks_task WHERE id = ANY(%s) AND tenant_id = %s"
OPEN = """
UPDATE slackwater_tasks_workflow SET detail = detail || '{"open": true}' WHERE id = ANY(%s) AND NOT detail ? 'open'
"""


def link_outside(cur: Any, tenant: Tenant, new: Sequence[Accepted], outside: Sequence[Outside],
                 workflow_id: UUID | None) -> Sequence[Accepted]:  # fmt: skip
    """Write edges from tasks that exist already; a parent that is final counts as it ended."""
    if not outside:
        return new
    parents = list({parent for parent, _, _ in outside})
    cur.execute(LOCK_PARENTS, (parents,))
    live = {row[0] for row in cur.fetchall()}
    cur.execute(PARENTS, (parents, tenant.pk))
    found = cur.fetchall()
    known = {row[0]: row[1] for row in found}
    if foreign := {row[2] for row in found} - {workflow_id}:
        # Their graphs now reach beyond themselves: nobody may answer for them from a workflow's rows alone.
        cur.execute(OPEN, ([w for w in [workflow_id, *foreign] if w is not None],))
    tasks = list(new)
    rows: set[tuple[UUID, UUID, int]] = set()
    for parent, n, field in outside:
        if parent not in known:
            raise UnknownDependency(f"there is no task {parent}", field=field)
        outcome = EdgeOutcome.PENDING if parent in live else edge_outcome(TaskState(known[parent]))
        row = (parent, tasks[n].id, int(outcome))
        if row in rows:
            continue
        rows.add(row)
        if outcome is EdgeOutcome.PENDING:
            tasks[n] = replace(tasks[n], pending=tasks[n].pending + 1)
    _refuse_unsatisfiable(tasks, rows, outside)
    copy_format.insert(cur, "slackwater_tasks_dependency", EDGE_COLUMNS, sorted(rows))
    return tasks


def _refuse_unsatisfiable(tasks: Sequence[Accepted], rows: set[tuple[UUID, UUID, int]],
                          outside: Sequence[Outside]) -> None:  # fmt: skip
    """Refuse a task whose parents are all final already, and not as it needs them: it could never run."""
    for _, n, field in outside:
        task = tasks[n]
        if task.pending:
            continue
        outcomes = {EdgeOutcome(row[2]) for row in rows if row[1] == task.id}
        if turn(task.spec.condition, outcomes) is not TaskState.READY:
            raise Conflict(
                f"this dependency has ended, and not as {task.spec.condition.name.lower()} needs it", field=field
            )


def press_outside(tenant: Tenant, tasks: Sequence[Accepted], outside: Sequence[Outside]) -> None:
    """Pass the urgency and priority of new tasks to earlier ones that they need."""
    children = {n for _, n, _ in outside}
    ids = [tasks[n].id for n in children if tasks[n].pending and (tasks[n].priority or tasks[n].pressed)]
    if ids:
        with connection.cursor() as cur:
            precedence.press(cur, active_policies.current(tenant.cell), ids)
