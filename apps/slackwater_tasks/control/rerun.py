"""Running a part of a workflow again: which tasks, and their rows made live in a few statements.

What is run again is reset as a whole: its edges are open again, its attempts anew, its dead letters gone; the past of
each task stays readable, for attempts and events are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from scheduler_ext.core.errors import Conflict, NotFound
from scheduler_ext.core.states import Category, EdgeOutcome, RunCondition, TaskState, condition_holds
from scheduler_ext.core.work import Changes
from slackwater_tasks.control.changing import accepted_again, spec_of
from slackwater_tasks.control.settle import settle
from slackwater_tasks.ledger import active_policies, reference_cache
from slackwater_tasks.models import Task
from slackwater_tasks.runtime import checkpoints, trace_context
from slackwater_tasks.submission import store
from slackwater_tasks.submission.store import LIVE_COLUMNS, Accepted
from slackwater_tenants.models import Tenant

WHOLE = "SELECT id FROM slackwater_tasks_task WHERE workflow_id = %s"
MEMBERS = """
SELECT t.id::text, coalesce(l.state, t.state), t.condition FROM slackwater_tasks_task t
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id WHERE t.workflow_id = %s ORDER BY t.id
"""
EDGES = """
SELECT d.parent_id::text, d.child_id::text, d.outcome FROM slackwater_tasks_dependency d
JOIN slackwater_tasks_task c ON c.id = d.child_id WHERE c.workflow_id = %s
"""
REVIVE = """
UPDATE slackwater_tasks_task SET state = NULL, finished_at = NULL, result = NULL, error = '', reason = '', release_pending = false
WHERE id = ANY(%s::uuid[]) AND state IS NOT NULL RETURNING id, attempts_used
"""
REOPEN = """
WITH e AS (
    UPDATE slackwater_tasks_dependency SET outcome = 0
    WHERE parent_id = ANY(%s::uuid[]) AND child_id = ANY(%s::uuid[]) AND outcome <> 0 RETURNING child_id),
n AS (SELECT child_id, count(*)::int AS c FROM e GROUP BY child_id)
UPDATE slackwater_tasks_livetask l SET pending = l.pending + n.c FROM n WHERE l.task_id = n.child_id
"""
LAST_FENCES = """
SELECT id, max(fence) FROM (
    SELECT task_id AS id, fence FROM slackwater_tasks_attempt WHERE task_id = ANY(%(ids)s::uuid[])
    UNION ALL SELECT task_id, fence FROM slackwater_tasks_taskevent WHERE task_id = ANY(%(ids)s::uuid[])) x GROUP BY id
"""
EVENT_COLUMNS = ("task_id", "tenant_id", "from_state", "to_state", "fence", "actor", "reason")


@dataclass(slots=True)
class _Graph:
    """A workflow's tasks as they stand."""

    states: dict[str, TaskState]
    conditions: dict[str, RunCondition]
    parents: dict[str, list[tuple[str, EdgeOutcome]]]
    children: dict[str, list[str]]


def rerun(cur: Any, tenant: Tenant, workflow_id: UUID, task_id: UUID | None, actor: str,
          ended: Changes) -> Changes:  # fmt: skip
    """Make a part of a workflow run again; returns the changes. The caller holds the workflow's row.

    What had to end first, because what it needed did not come, is added to ``ended``.
    """
    cur.execute(WHOLE, (workflow_id,))
    settle(cur, [row[0] for row in cur.fetchall()], ended)
    found = _read(cur, workflow_id)
    if task_id is None:
        chosen = _failed(found)
        reason = "run again from the failed tasks"
    else:
        chosen = _following(found, str(task_id))
        reason = f"run again from {task_id} on"
    if not chosen:
        raise Conflict("no task of the workflow failed, expired or was cancelled and could run now")
    return _reset(cur, tenant, workflow_id, found, chosen, actor, reason)


def _read(cur: Any, workflow_id: UUID) -> _Graph:
    cur.execute(MEMBERS, (workflow_id,))
    rows = cur.fetchall()
    found = _Graph({row[0]: TaskState(row[1]) for row in rows}, {row[0]: RunCondition(row[2]) for row in rows}, {}, {})
    cur.execute(EDGES, (workflow_id,))
    for parent, child, outcome in cur.fetchall():
        found.parents.setdefault(child, []).append((parent, EdgeOutcome(outcome)))
        found.children.setdefault(parent, []).append(child)
    return found


def _final(state: TaskState) -> bool:
    return state >= TaskState.SUCCEEDED


def _failed(found: _Graph) -> set[str]:
    """The tasks that ended without success, less those whose turn could not come even so."""
    chosen = {i for i, state in found.states.items() if _final(state) and state is not TaskState.SUCCEEDED}
    doubtful = list(chosen)
    while doubtful:
        task = doubtful.pop()
        if task not in chosen or _has_a_turn(found, task, chosen):
            continue
        chosen.discard(task)
        doubtful += [child for child in found.children.get(task, ()) if child in chosen]
    return chosen


def _has_a_turn(found: _Graph, task: str, chosen: set[str]) -> bool:
    """Whether a task can run: a parent runs again or is not final yet, or they ended as it needs them."""
    outcomes = []
    for parent, outcome in found.parents.get(task, ()):
        if parent in chosen or outcome is EdgeOutcome.PENDING:
            return True
        outcomes.append(outcome)
    failed, cancelled = outcomes.count(EdgeOutcome.FAILED), outcomes.count(EdgeOutcome.CANCELLED)
    return condition_holds(found.conditions[task], failed=failed, cancelled=cancelled)


def _following(found: _Graph, start: str) -> set[str]:
    """A task and all that follows; each must have ended, or wait for what is run again."""
    if start not in found.states:
        raise NotFound(f"The workflow has no task {start}.", field="task_id")
    chosen, stack = {start}, [start]
    while stack:
        for child in found.children.get(stack.pop(), ()):
            if child in found.states and child not in chosen:
                chosen.add(child)
                stack.append(child)
    for task in sorted(chosen):
        state = found.states[task]
        if not _final(state) and (state is not TaskState.BLOCKED or task == start):
            raise Conflict(f"the task {task} has not ended: it is {state.name.lower()}", field="task_id")
    return {task for task in chosen if _final(found.states[task])}


def _reset(cur: Any, tenant: Tenant, workflow_id: UUID, found: _Graph, chosen: set[str], actor: str,
           reason: str) -> Changes:  # fmt: skip
    ids = sorted(chosen)
    accepted = []
    tasks = Task.objects.unscoped().for_tenant(tenant.pk)  # the tenant is named
    for task in tasks.select_related("tenant__plan", "tier").filter(pk__in=ids).order_by("pk"):
        pending = sum(
            1 for parent, outcome in found.parents.get(str(task.pk), ())
            if parent in chosen or outcome is EdgeOutcome.PENDING
        )  # fmt: skip
        accepted.append((task, accepted_again(task, replace(spec_of(task), start_at=None), pending=pending)))
    waiting = [task for task, state in found.states.items() if state is TaskState.BLOCKED]
    cur.execute(REOPEN, (ids, [*ids, *waiting]))
    parents = {UUID(task) for task in ids if _is_needed(found, task, chosen)}
    before = {UUID(task): found.states[task] for task in ids}
    rows = revive(cur, tenant, accepted, before, parents, actor, reason)
    return [(str(row["task_id"]), row["state"], tenant.pk, str(workflow_id)) for row in rows]


def _is_needed(found: _Graph, task: str, chosen: set[str]) -> bool:
    return any(
        child in chosen or not _final(found.states.get(child, TaskState.SUCCEEDED))
        for child in found.children.get(task, ())
    )


def revive(cur: Any, tenant: Tenant, accepted: Sequence[tuple[Task, Accepted]], before: Mapping[UUID, TaskState],
           parents: Collection[UUID], actor: str, reason: str) -> list[dict[str, Any]]:  # fmt: skip
    """Make final tasks live again, in a few statements; returns their live rows, in the order given.

    ``before``: the state of each; ``parents``: those on which others wait. They count like new ones, last of all.
    ``Conflict`` when one of them is final no more.
    """
    ids = [task.pk for task, _ in accepted]
    cur.execute(REVIVE, (ids,))
    used = dict(cur.fetchall())
    if len(used) != len(ids):
        raise Conflict("the state of a task has just changed; try again")
    cur.execute("DELETE FROM slackwater_tasks_deadletter WHERE task_id = ANY(%s::uuid[])", (ids,))
    cur.execute(LAST_FENCES, {"ids": ids})
    fences = dict(cur.fetchall())
    conf, at = reference_cache.scheduler_conf(), reference_cache.now()
    chosen = active_policies.current(conf, tenant.cell)
    rows = []
    for task, again in accepted:
        values = store.live_row(tenant.pk, again, at, task.submitted_at, chosen, conf.promote_lead_s)
        row = dict(zip(LIVE_COLUMNS, values, strict=True))
        row |= {
            "fence": fences.get(task.pk, 0), "attempts": used[task.pk],
            "total_attempts": used[task.pk] + task.total_attempts, "has_children": task.pk in parents,
        }  # fmt: skip
        rows.append(row)
    store.insert(cur, "slackwater_tasks_livetask", LIVE_COLUMNS, [tuple(row[n] for n in LIVE_COLUMNS) for row in rows])
    checkpoints.run_again(cur, ids, anew=[task for task in ids if before[task] is not TaskState.FAILED])
    trace_context.run_again(cur, ids)
    events = [
        (
            row["task_id"],
            tenant.pk,
            int(before[row["task_id"]]),
            row["state"],
            row["fence"],
            actor[:120],
            reason,
        )
        for row in rows
    ]
    store.insert(cur, "slackwater_tasks_taskevent", EVENT_COLUMNS, events)
    urgent = sum(1 for task, _ in accepted if task.category == Category.URGENT)
    store.count_in(cur, tenant, tenant.plan, n=len(rows), urgent=urgent, charged=len(rows))
    return rows
