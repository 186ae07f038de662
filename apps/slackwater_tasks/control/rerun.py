"""Runs tasks again that have ended.

A task that runs again is reset as a whole: its attempts count anew and its dead letter goes. Its past stays readable,
for attempts and events are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.dag import Dag
from scheduler_ext.core.errors import Conflict, InvalidInput, NotGranted
from scheduler_ext.core.precedence import weigh
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import TaskState
from scheduler_ext.core.work import Changes
from slackwater_conf.database import in_ledger
from slackwater_tasks.control import maps, stored_task
from slackwater_tasks.control.cancel import tell
from slackwater_tasks.control.quiesce import quiesce, repeat_on_deadlock
from slackwater_tasks.ledger import active_policies, events, learnt, precedence, reference_cache, rows, transitions
from slackwater_tasks.ledger.rows import Accepted
from slackwater_tasks.models import Task
from slackwater_tasks.runtime import checkpoints, trace_context
from slackwater_tasks.submission.store import store_again, urgent_of
from slackwater_tenants.models import Tenant

MAY_RUN_AGAIN: Final = (TaskState.FAILED, TaskState.CANCELLED, TaskState.EXPIRED)
# By id: how many parents it waits for; and whether others wait for it.
OPEN_EDGES: Final = named("""
SELECT u.id,
    (SELECT count(*)::int FROM slackwater_tasks_dependency WHERE child_id = u.id AND outcome = :edge.PENDING),
    EXISTS (SELECT 1 FROM slackwater_tasks_dependency WHERE parent_id = u.id AND outcome = :edge.PENDING)
FROM unnest(%s::uuid[]) AS u(id)
""")
# Who waits for which of them, and the path before those that wait.
NEEDED_BY: Final = named("""
SELECT d.parent_id, d.child_id, l.path_us FROM slackwater_tasks_dependency d
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = d.child_id
WHERE d.parent_id = ANY(%s::uuid[]) AND d.outcome = :edge.PENDING
""")
# The workflows' rows first, the tasks' after: everybody locks in this order. Held, upkeep does not end them meanwhile.
LOCK_WORKFLOWS: Final = """
SELECT w.id FROM slackwater_tasks_workflow w
WHERE w.id IN (SELECT t.workflow_id FROM slackwater_tasks_task t WHERE t.id = ANY(%s::uuid[]) AND t.tenant_id = %s)
ORDER BY w.id FOR UPDATE
"""
REOPEN_WORKFLOWS: Final = "UPDATE slackwater_tasks_workflow SET status = NULL, finished_at = NULL WHERE id = ANY(%s)"
FORGET_DEAD_LETTERS: Final = "DELETE FROM slackwater_tasks_deadletter WHERE task_id = ANY(%s::uuid[])"
LAST_FENCES: Final = """
SELECT id, max(fence) FROM (
    SELECT task_id AS id, fence FROM slackwater_tasks_attempt WHERE task_id = ANY(%(ids)s::uuid[])
    UNION ALL SELECT task_id, fence FROM slackwater_tasks_taskevent WHERE task_id = ANY(%(ids)s::uuid[])) x GROUP BY id
"""
NOTED: Final = """
SELECT task_id, extract(epoch FROM max(at))::float8 FROM slackwater_tasks_taskevent WHERE task_id = ANY(%s::uuid[])
GROUP BY task_id
"""
Skipped = list[tuple[UUID, InvalidInput | NotGranted]]
"""Tasks that the plan no longer allows, each with the reason."""


class Revived(NamedTuple):
    """A task that is to be live again."""

    task: Task
    accepted: Accepted
    before: TaskState
    """Its final state."""


@in_ledger
def retry(tenant_id: int, task_id: UUID, *, actor: str = "", reason: str = "run again on request") -> None:
    """Run a failed, cancelled or expired task again with fresh attempts; its dead letter is deleted.

    It counts against the tenant's limits like a new one. ``Conflict`` when it is waiting, running or succeeded.
    """
    tenant = stored_task.find(tenant_id, task_id).tenant
    done, skipped = repeat_on_deadlock(partial(run_again, tenant, [task_id], actor=actor, reason=reason))
    for _, error in skipped:
        raise error
    if not done:
        state = stored_task.state_now(task_id)
        raise Conflict(f"only a failed, cancelled or expired task can run again; it is {state.name.lower()}")


def run_again(tenant: Tenant, ids: Sequence[UUID], *, actor: str, reason: str) -> tuple[list[UUID], Skipped]:
    """Run those of the tasks again that failed, expired or were cancelled; returns their ids, and what was skipped.

    They count against the tenant's limits like new ones, all or none. In the caller's transaction.
    """
    changes: Changes = []
    skipped: Skipped = []
    revived = []
    with connection.cursor() as cur:
        cur.execute(LOCK_WORKFLOWS, (list(ids), tenant.pk))
        states = quiesce(cur, ids, changes)
        final = {i: state for i in ids if (state := states.get(i)) is not None and state in MAY_RUN_AGAIN}
        for element in maps.elements_of(cur, list(final)) & final.keys():
            del final[element]  # its map runs again, and makes them anew
        cur.execute(OPEN_EDGES, (list(final),))
        edges = {row[0]: row[1:] for row in cur.fetchall()}
        for task in stored_task.in_order(tenant.pk, list(final)):
            pending, has_children = edges[task.pk]
            try:
                accepted = stored_task.accepted_anew(task, pending=pending)
            except (InvalidInput, NotGranted) as error:
                skipped.append((task.pk, error))
                continue
            accepted.has_children = has_children
            revived.append(Revived(task, accepted, final[task.pk]))
        if revived:
            changes += revive(cur, tenant, revived, actor=actor, reason=reason)
    transaction.on_commit(partial(tell, tenant.cell, changes, set()))
    return [one.task.pk for one in revived], skipped


def revive(cur: Any, tenant: Tenant, revived: Sequence[Revived], *, actor: str, reason: str) -> Changes:
    """Make final tasks live again, in a few statements; returns the changes, in the order given.

    The caller holds the tasks' rows. ``Conflict`` when one of them is final no more.
    """
    ids = [one.task.pk for one in revived]
    if workflows := sorted({one.task.workflow_id for one in revived if one.task.workflow_id}):
        cur.execute(REOPEN_WORKFLOWS, (workflows,))
    mapped = maps.run_again(cur, ids)
    for one in revived:
        one.accepted.pending += one.task.pk in mapped
    used = transitions.revive_if_final(cur, ids)
    if len(used) != len(ids):
        raise Conflict("the state of a task has just changed; try again")
    cur.execute(FORGET_DEAD_LETTERS, (ids,))
    cur.execute(LAST_FENCES, {"ids": ids})
    fences = dict(cur.fetchall())
    at, chosen = reference_cache.now(), active_policies.current(tenant.cell)
    waited_for = [one.accepted for one in revived if one.accepted.has_children]
    if waited_for:
        _weigh(cur, tenant.pk, waited_for)
    live = [
        rows.live_row(tenant.pk, accepted, at, task.submitted_at, chosen)._replace(
            fence=fences.get(task.pk, 0),
            attempts=used[task.pk],
            total_attempts=used[task.pk] + task.total_attempts,
            alone=accepted.checkpoints or task.total_attempts == 1,
        )
        for task, accepted, _ in revived
    ]
    store_again(tenant, live, urgent=urgent_of(one.accepted for one in revived))
    checkpoints.run_again(cur, ids, anew=[one.task.pk for one in revived if one.before is not TaskState.FAILED])
    trace_context.run_again(cur, ids)
    told = [
        events.row(tenant.pk, row.task_id, TaskState(row.state), actor=actor, reason=reason, before=before,
                   fence=row.fence)
        for row, (_, _, before) in zip(live, revived, strict=True)
    ]  # fmt: skip
    events.write(cur, told)
    cur.execute(NOTED, (ids,))
    noted = dict(cur.fetchall())
    if pressing := [one.task.pk for one in revived if one.accepted.has_children or one.accepted.pending]:
        precedence.press(cur, chosen, pressing, itself=True)
    return [
        (str(row.task_id), row.state, tenant.pk, str(task.workflow_id) if task.workflow_id else None, None, None,
         noted[row.task_id])
        for row, (task, _, _) in zip(live, revived, strict=True)
    ]  # fmt: skip


def _weigh(cur: Any, tenant_id: int, tasks: Sequence[Accepted]) -> None:
    """Note the paths before tasks that others wait for, and the work that is left, as their submission did."""
    cur.execute(NEEDED_BY, ([task.id for task in tasks],))
    edges = cur.fetchall()
    times = learnt.of_tenant(tenant_id, [learnt.keys_of(task.spec) for task in tasks])
    before = {task.id: mean_us for task, mean_us in zip(tasks, times, strict=True)}
    expected = {child: path_us for _, child, path_us in edges} | before
    needs: dict[UUID, list[str]] = {task: [] for task in expected}
    for parent, child, _ in edges:
        needs[child].append(str(parent))
    weights = weigh(Dag.build([str(task) for task in needs], list(needs.values())), [expected[task] for task in needs])
    found = dict(zip(needs, weights, strict=True))
    for task in tasks:
        task.weight = found[task.id]
