"""A stored task as control reads it: its specification, and admission anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import TaskState
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.ledger.connection import fetch_value
from slackwater_tasks.ledger.rows import Accepted
from slackwater_tasks.models import Dependency, MutexScope, Task
from slackwater_tasks.spec import COLUMNS, TaskSpec, dump_payload
from slackwater_tasks.submission import admission

STATE = """
SELECT coalesce(l.state, t.state) FROM slackwater_tasks_task t
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id WHERE t.id = %s
"""


def find(tenant_id: int, task_id: UUID) -> Task:
    """The tenant's task; ``NotFound`` without one."""
    # The tenant is named: another tenant's task is not found.
    tasks = Task.objects.unscoped().for_tenant(tenant_id)
    task: Task | None = tasks.select_related("tenant__plan", "tier", "workflow").filter(pk=task_id).first()
    if task is None:
        raise NotFound(f"there is no task {task_id}")
    return task


def in_order(tenant_id: int, ids: Sequence[UUID]) -> Iterable[Task]:
    """The tenant's tasks with these ids, in the order of their ids."""
    tasks = Task.objects.unscoped().for_tenant(tenant_id)  # the tenant is named
    return tasks.select_related("tenant__plan", "tier", "workflow").filter(pk__in=ids).order_by("pk")


def state_now(task_id: UUID) -> TaskState:
    """The state of an existing task."""
    return TaskState(fetch_value(STATE, (task_id,)))


def spec_of(task: Task) -> TaskSpec:
    columns = {field.attribute: field.kind.loaded(getattr(task, column)) for column, field in COLUMNS.items()}
    columns |= {
        "tier": task.tier.slug,
        "depends_on": _parents(task),
        "payload": dump_payload(task.args, task.kwargs, ""),
    }
    return TaskSpec(**columns)


def names_of_parents(task: Task) -> set[str]:
    """The names that references in its arguments may use."""
    rows = Dependency.objects.filter(child_id=task.pk).values_list("parent_id", "parent__name")
    return {str(key) for row in rows for key in row if key}


def _parents(task: Task) -> tuple[str, ...]:
    """Its dependencies, if its mutex key asks for them; else nothing, without a query."""
    if task.mutex_scope == MutexScope.BOTH:
        return ()
    rows = Dependency.objects.filter(child_id=task.pk).values_list("parent_id", flat=True)
    return tuple(str(parent) for parent in rows)


def accepted_anew(task: Task, *, pending: int) -> Accepted:
    """A stored task as :func:`accepted_again` returns it: with its moments while its start is ahead, else at once."""
    spec = spec_of(task)
    if spec.start_at is None or spec.start_at <= reference_cache.now():
        spec = replace(spec, start_at=None, expires_at=None)
    return accepted_again(task, spec, pending=pending)


def accepted_again(task: Task, spec: TaskSpec, *, pending: int) -> Accepted:
    """Admit a stored task under its present plan; ``pending``: how many parents it waits for."""
    tier = admission.resolve_tier(task.tenant, spec.tier, "tier")
    share = str(task.workflow_id) if task.workflow is not None and task.workflow.share_weight else ""
    return Accepted(
        id=task.pk,
        spec=spec,
        payload=spec.payload,
        tier=tier,
        line_id=reference_cache.line_id(
            task.tenant_id, int(spec.category), tier.id, admission.labels_asked(task.tenant.plan, spec), share
        ),
        handler_id=reference_cache.handler_id(spec.handler) if spec.handler else None,
        tolerance_ms=admission.default_tolerance(task.tenant.plan, spec),
        cap_ms=spec.cap_ms or tier.default_cap_ms,
        pending=pending,
    )
