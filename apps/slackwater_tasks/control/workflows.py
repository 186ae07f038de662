"""Workflows that are there already: adds tasks to them, and cancels them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import DuplicateName, NotFound
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import EdgeOutcome
from scheduler_ext.core.work import Started
from scheduler_ext.task.celery_json import GATHERS
from scheduler_ext.task.effects import AttemptReplaced
from slackwater_tasks.control.terminate import Subject, end_all
from slackwater_tasks.graph import relatives
from slackwater_tasks.ledger import active_policies, copy_format, precedence, reference_cache
from slackwater_tasks.ledger.rows import Accepted
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.runtime.trace_context import TraceContext
from slackwater_tasks.spec import TaskSpec, parse_task
from slackwater_tasks.submission import admission, idempotency, limits
from slackwater_tasks.submission.dependencies import link_outside, press_outside
from slackwater_tasks.submission.idempotency import Key, Submission
from slackwater_tasks.submission.service import check_list, limited, no_inner_keys
from slackwater_tasks.submission.store import EDGE_COLUMNS, Part, store
from slackwater_tenants.models import Tenant

LOCK = """
SELECT task_count, edge_count, max_running, share_weight FROM slackwater_tasks_workflow
WHERE id = %s AND tenant_id = %s FOR UPDATE
"""
NAMED = "SELECT name, id::text FROM slackwater_tasks_task WHERE workflow_id = %s AND name = ANY(%s)"
GROW = """
UPDATE slackwater_tasks_workflow SET task_count = task_count + %s, edge_count = edge_count + %s, status = NULL,
    finished_at = NULL WHERE id = %s
"""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where tasks are added."""

    workflow_id: UUID
    tasks: int
    edges: int
    max_running: int | None
    share_weight: int | None


def add_tasks(tenant: Tenant, workflow_id: UUID, items: Sequence[Mapping[str, Any]], *, actor: str = "",
              idempotency_key: str | None = None, trace: TraceContext | None = None) -> Submission:  # fmt: skip
    """Add tasks to a workflow, all or none, whether it runs or has ended.

    They may depend, by name or id, on tasks of the workflow and on one another; nothing that is there changes, so no
    cycle can arise. The plan's limits hold for the whole of it. ``NotFound`` when the tenant has no such workflow.
    """
    specs = _parse(items)
    key = Key.of(idempotency_key, "", items)
    with transaction.atomic(), connection.cursor() as cur:
        place = lock(cur, tenant, workflow_id)
        trace = trace or trace_context.current()
        return add(cur, tenant, place, specs, actor=actor, key=key, trace=trace)


def _parse(items: Sequence[Mapping[str, Any]]) -> list[TaskSpec]:
    check_list(items, "tasks")
    specs = [parse_task(item, f"tasks[{n}]") for n, item in enumerate(items)]
    no_inner_keys(specs)
    return specs


def lock(cur: Any, tenant: Tenant, workflow_id: UUID) -> _Place:
    """Hold a workflow that is to grow; ``NotFound`` when the tenant has none such."""
    cur.execute(LOCK, (workflow_id, tenant.pk))
    row = cur.fetchone()
    if row is None:
        raise NotFound(f"There is no workflow {workflow_id}.")
    return _Place(workflow_id, *row)


def add(cur: Any, tenant: Tenant, place: _Place | None, specs: Sequence[TaskSpec], *, actor: str,
        key: Key | None = None, before: Sequence[UUID] = (), trace: TraceContext | None = None,
         ) -> Submission:  # fmt: skip
    """Store tasks in a workflow, or in none; ``before``: blocked tasks that shall wait for all of them."""
    workflow_id = place.workflow_id if place else None
    # Asked first: what a repeat names is there already, and would be refused as a duplicate.
    if key is not None and (first := idempotency.first_answer(tenant, key)) is not None:
        return replace(first, workflow_id=workflow_id)
    if place is not None:
        specs = _resolve_names(cur, place, specs)
        if place.max_running:
            specs = limited(specs, place.workflow_id, place.max_running)
    batch = admission.admit(tenant, specs, where="tasks", workflow=place is not None,
                            share=str(workflow_id) if place is not None and place.share_weight else "")  # fmt: skip
    ids = [task.id for task in batch.tasks]
    if key is not None and (first := idempotency.first_or_claim(cur, tenant, key, ids)) is not None:
        return replace(first, workflow_id=workflow_id)
    tasks = link_outside(cur, tenant, batch.tasks, batch.outside, workflow_id)
    if before:
        tasks = [replace(task, has_children=True) for task in tasks]
    part = Part(tenant=tenant, tasks=tasks, actors=[actor] * len(tasks), edges=batch.edges, workflow_id=workflow_id,
                trace=trace)  # fmt: skip
    store([part], reference_cache.now())
    joined = _join(cur, tasks, before) if before else 0
    press_outside(tenant, tasks, batch.outside)
    if before:
        precedence.press(cur, active_policies.current(tenant.cell), before)
    if place is not None:
        edges = len(batch.edges) + len({(parent, n) for parent, n, _ in batch.outside}) + joined
        cur.execute(GROW, (len(tasks), edges, workflow_id))
        _check_size(tenant, place, len(tasks), edges)
    return Submission(task_ids=ids, workflow_id=workflow_id)


def _resolve_names(cur: Any, place: _Place, specs: Sequence[TaskSpec]) -> list[TaskSpec]:
    """Names of tasks the workflow has already become their ids; a name it has may not be given again."""
    new = {spec.name: n for n, spec in enumerate(specs) if spec.name}
    wanted = {name for spec in specs for name in spec.depends_on}
    cur.execute(NAMED, (place.workflow_id, list(new.keys() | wanted)))
    known = dict(cur.fetchall())
    for name in new.keys() & known.keys():
        raise DuplicateName(f"the workflow has a task named {name!r} already", field=f"tasks[{new[name]}].name")
    return [replace(spec, depends_on=tuple(known.get(name, name) for name in spec.depends_on)) for spec in specs]


def _check_size(tenant: Tenant, place: _Place, tasks: int, edges: int) -> None:
    total = place.tasks + tasks
    # No graph is deeper than it has tasks: only one that could be too deep is measured.
    depth = 0
    if total > tenant.plan.max_dag_depth:
        with connection.cursor() as cur:
            depth = relatives.of_workflow(place.workflow_id, cur).depth
    limits.check_dag(tenant.plan, tasks=total, edges=place.edges + edges, depth=depth)


# -- from inside a running task ---------------------------------------------------------------------------------------
OWN = named("""
SELECT t.workflow_id FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
WHERE l.task_id = %s AND l.fence = %s AND l.state = :state.RUNNING FOR SHARE OF l
""")
FOLLOWERS = named("""
SELECT l.task_id FROM slackwater_tasks_dependency d JOIN slackwater_tasks_livetask l ON l.task_id = d.child_id
WHERE d.parent_id = %s AND d.outcome = :edge.PENDING AND l.state = :state.BLOCKED
ORDER BY l.task_id FOR UPDATE OF l
""")
# It goes on once all of them are final, however they ended; and its run may yield.
GATHER = named("""
WITH live AS (UPDATE slackwater_tasks_livetask SET condition = :condition.ALL_DONE WHERE task_id = %s
    RETURNING task_id, tenant_id),
turns AS (INSERT INTO slackwater_tasks_resumable (task_id, tenant_id, declared) SELECT task_id, tenant_id, true FROM live
    ON CONFLICT (task_id) DO UPDATE SET declared = true)
UPDATE slackwater_tasks_task t SET condition = :condition.ALL_DONE,
    kwargs = t.kwargs || jsonb_build_object('$celery', coalesce(t.kwargs -> '$celery', '{}') || %s::jsonb)
FROM live WHERE t.id = live.task_id
""")
WAIT_LONGER = "UPDATE slackwater_tasks_livetask SET pending = pending + %s WHERE task_id = ANY(%s)"


def add_subtasks(
    task: Started, items: Sequence[Mapping[str, Any]], *, join: bool, key: str | None = None, gathers: Any = None
) -> list[UUID]:
    """Store tasks for a running one: same tenant, same workflow; returns their ids.

    ``join``: what depends on the running task waits for them too. ``gathers``: it waits for them itself once this run
    has yielded, and runs again to gather the results that are named. ``AttemptReplaced`` when another attempt runs by now.
    """
    specs = _parse(items)
    tenant = Tenant.objects.select_related("plan").get(pk=task.tenant_id)
    with transaction.atomic(), connection.cursor() as cur:
        cur.execute("SELECT workflow_id FROM slackwater_tasks_task WHERE id = %s", (task.task_id,))
        workflow_id = cur.fetchone()[0]
        # The workflow's row first, the tasks' after: everybody locks in this order.
        place = lock(cur, tenant, workflow_id) if workflow_id is not None else None
        cur.execute(OWN, (task.task_id, task.fence))
        if cur.fetchone() is None:
            raise AttemptReplaced(f"attempt {task.attempt} of the task {task.task_id} was replaced by another")
        before: list[UUID] = []
        if join:
            cur.execute(FOLLOWERS, (task.task_id,))
            before = [row[0] for row in cur.fetchall()]
        if gathers is not None:
            before = [UUID(task.task_id)]
            cur.execute(GATHER, (task.task_id, json.dumps({GATHERS: gathers})))
        actor = f"task:{task.task_id}"
        trace = trace_context.current() or trace_context.of_running(cur, task.task_id, task.fence)
        # The key tells what was submitted; of a repeat the moments may differ that its tasks start at.
        taken = Key.of(key, "", key or "")
        found = add(cur, tenant, place, specs, actor=actor, key=taken, before=before, trace=trace)
    return found.task_ids


def _join(cur: Any, tasks: Sequence[Accepted], before: Sequence[UUID]) -> int:
    """Let blocked tasks wait for new ones too; returns how many edges that makes."""
    rows = [(task.id, child, int(EdgeOutcome.PENDING)) for task in tasks for child in before]
    copy_format.insert(cur, "slackwater_tasks_dependency", EDGE_COLUMNS, rows)
    cur.execute(WAIT_LONGER, (len(tasks), list(before)))
    return len(rows)


# -- cancel -----------------------------------------------------------------------------------------------------------
def cancel_workflow(
    tenant: Tenant, workflow_id: UUID, *, actor: str = "", reason: str = "its workflow was cancelled"
) -> dict[str, int]:
    """Cancel all that waits in a workflow and ask what runs to end: ``{"cancelled": …, "asked": …}``.

    In bounded transactions, so a crash in between leaves a part cancelled; doing it again does the rest.
    """
    found = end_all(Subject.of_workflow(tenant, workflow_id), actor=actor, reason=reason)
    return {"cancelled": found.cancelled, "asked": found.asked}
