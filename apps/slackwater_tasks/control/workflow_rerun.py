"""Runs a part of a workflow again: chooses the tasks, and opens the edges between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import Conflict, NotFound, SlackwaterError
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import EdgeOutcome, RunCondition, TaskState, is_final, turn
from scheduler_ext.core.work import Changes
from slackwater_tasks.control import maps, stored_task
from slackwater_tasks.control.cancel import tell
from slackwater_tasks.control.edit import edit_ended
from slackwater_tasks.control.quiesce import quiesce, repeat_on_deadlock
from slackwater_tasks.control.rerun import Revived, revive
from slackwater_tenants.models import Tenant

LOCK = "SELECT 1 FROM slackwater_tasks_workflow WHERE id = %s AND tenant_id = %s FOR UPDATE"
WHOLE = "SELECT id FROM slackwater_tasks_task WHERE workflow_id = %s"
MEMBERS = """
SELECT t.id::text, coalesce(l.state, t.state), t.condition, t.name FROM slackwater_tasks_task t
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id WHERE t.workflow_id = %s ORDER BY t.id
"""
EDGES = """
SELECT d.parent_id::text, d.child_id::text, d.outcome FROM slackwater_tasks_dependency d
JOIN slackwater_tasks_task c ON c.id = d.child_id WHERE c.workflow_id = %s
"""
ELEMENTS = """
SELECT unnest(m.elements)::text FROM slackwater_tasks_task t JOIN slackwater_tasks_mapnode m ON m.task_id = t.id
WHERE t.workflow_id = %s
"""
REOPEN = named("""
WITH e AS (
    UPDATE slackwater_tasks_dependency SET outcome = :edge.PENDING
    WHERE parent_id = ANY(%s::uuid[]) AND child_id = ANY(%s::uuid[]) AND outcome <> :edge.PENDING RETURNING child_id),
n AS (SELECT child_id, count(*)::int AS c FROM e GROUP BY child_id)
UPDATE slackwater_tasks_livetask l SET pending = l.pending + n.c FROM n WHERE l.task_id = n.child_id
""")


@dataclass(slots=True)
class _Graph:
    """A workflow's tasks as they stand."""

    states: dict[str, TaskState]
    conditions: dict[str, RunCondition]
    parents: dict[str, list[tuple[str, EdgeOutcome]]]
    children: dict[str, list[str]]
    elements: set[str]
    """Those of maps."""
    names: dict[str, str]


def rerun(tenant: Tenant, workflow_id: UUID, *, task_id: UUID | None = None, changes: Any = None,
          actor: str = "", why: str = "") -> list[UUID]:  # fmt: skip
    """Run a workflow again: from its failed tasks, or ``task_id`` and all that follows; returns the tasks' ids.

    From the failed: every failed, expired or cancelled task whose turn can come again. They count against the
    tenant's limits like new ones. ``changes``: a merge patch of the fields of ``task_id``. ``Conflict`` when
    nothing is to be run again, or a task concerned has not ended. ``why`` goes into their history.
    """
    return repeat_on_deadlock(partial(_rerun, tenant, workflow_id, task_id, changes, actor, why))


def foretell(workflow_id: UUID, task_id: UUID) -> int:
    """How many tasks would run again from this one on; ``Conflict`` when one of them has not ended."""
    with connection.cursor() as cur:
        found = _read(cur, workflow_id)
    return sum(1 for task in _following(found, str(task_id)) if is_final(found.states[task]))


def _rerun(tenant: Tenant, workflow_id: UUID, task_id: UUID | None, changes: Any, actor: str, why: str,
           ) -> list[UUID]:  # fmt: skip
    told: Changes = []
    with connection.cursor() as cur:
        cur.execute(LOCK, (workflow_id, tenant.pk))
        if cur.fetchone() is None:
            raise NotFound(f"There is no workflow {workflow_id}.")
        cur.execute(WHOLE, (workflow_id,))
        quiesce(cur, [row[0] for row in cur.fetchall()], told)
        found = _read(cur, workflow_id)
        if task_id is None:
            chosen, reason = _failed(found), "run again from the failed tasks"
        else:
            following, reason = _following(found, str(task_id)), f"run again from {task_id} on"
            maps.run_again(cur, [UUID(task) for task in following])
            chosen = {task for task in following if is_final(found.states[task])}
        if not chosen:
            raise Conflict("no task of the workflow failed, expired or was cancelled and could run now")
        if changes and task_id is not None:
            try:
                edit_ended(stored_task.find(tenant.pk, task_id), changes, actor=actor)
            except SlackwaterError as error:
                error.field = f"changes.{error.field}"
                raise
        again = _reset(cur, tenant, found, chosen, actor, f"{reason}: {why}" if why else reason)
    transaction.on_commit(partial(tell, tenant.cell, told + again, set()))
    return [UUID(change[0]) for change in again]


def _read(cur: Any, workflow_id: UUID) -> _Graph:
    cur.execute(MEMBERS, (workflow_id,))
    rows = cur.fetchall()
    states, conditions = {row[0]: TaskState(row[1]) for row in rows}, {row[0]: RunCondition(row[2]) for row in rows}
    found = _Graph(states, conditions, {}, {}, set(), {row[0]: row[3] for row in rows})
    cur.execute(ELEMENTS, (workflow_id,))
    found.elements.update(row[0] for row in cur.fetchall())
    cur.execute(EDGES, (workflow_id,))
    for parent, child, outcome in cur.fetchall():
        found.parents.setdefault(child, []).append((parent, EdgeOutcome(outcome)))
        found.children.setdefault(parent, []).append(child)
    return found


def _failed(found: _Graph) -> set[str]:
    """The tasks that ended without success, without those whose turn could not come even so."""
    chosen = {i for i, state in found.states.items() if is_final(state) and state is not TaskState.SUCCEEDED}
    doubtful = list(chosen)
    while doubtful:
        task = doubtful.pop()
        if task not in chosen or _has_a_turn(found, task, chosen):
            continue
        chosen.discard(task)
        doubtful += [child for child in found.children.get(task, ()) if child in chosen]
    return chosen


def _has_a_turn(found: _Graph, task: str, chosen: set[str]) -> bool:
    """Whether a task can run: a parent runs again or is not final yet, or the parents ended as it needs them."""
    outcomes = set()
    for parent, outcome in found.parents.get(task, ()):
        if parent in chosen or outcome is EdgeOutcome.PENDING:
            return True
        outcomes.add(outcome)
    return turn(found.conditions[task], outcomes) is TaskState.READY


def _following(found: _Graph, start: str) -> set[str]:
    """A task and all that follows it, without elements of maps; each must have ended, or wait for what runs again."""
    if start not in found.states:
        raise NotFound(f"The workflow has no task {start}.", field="task_id")
    chosen, stack = {start}, [start]
    while stack:
        for child in found.children.get(stack.pop(), ()):
            if child in found.states and child not in chosen and child not in found.elements:
                chosen.add(child)
                stack.append(child)
    going = [
        task
        for task in sorted(chosen)
        if not is_final(state := found.states[task]) and (state is not TaskState.BLOCKED or task == start)
    ]
    if going:
        first, others = going[0], len(going) - 1
        what = f"{found.names[first]!r} ({first})" if found.names[first] else first
        also = f", and {others} more that follow" if others else ""
        now = found.states[first].name.lower()
        raise Conflict(f"the task {what} has not ended: it is {now}{also}; cancel or await it", field="task_id")
    return chosen


def _reset(cur: Any, tenant: Tenant, found: _Graph, chosen: set[str], actor: str, reason: str) -> Changes:
    ids = sorted(chosen)
    revived = []
    for task in stored_task.in_order(tenant.pk, [UUID(task) for task in ids]):
        parents = found.parents.get(str(task.pk), ())
        pending = sum(1 for parent, outcome in parents if parent in chosen or outcome is EdgeOutcome.PENDING)
        accepted = stored_task.accepted_anew(task, pending=pending)
        children = found.children.get(str(task.pk), ())
        accepted.has_children = any(
            child in chosen or not is_final(found.states.get(child, TaskState.SUCCEEDED)) for child in children
        )
        revived.append(Revived(task, accepted, found.states[str(task.pk)]))
    waiting = [task for task, state in found.states.items() if state is TaskState.BLOCKED]
    cur.execute(REOPEN, (ids, [*ids, *waiting]))
    return revive(cur, tenant, revived, actor=actor, reason=reason)
