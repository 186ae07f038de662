"""The ledger behind Celery's own API for submitting tasks: see :mod:`scheduler_ext.task.publishing`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import Conflict, NoTenant, NotFound
from scheduler_ext.core.states import EdgeOutcome, TaskState
from scheduler_ext.core.work import Started
from scheduler_ext.task.canvas import alone, compile_canvas
from scheduler_ext.task.context import TaskContext
from scheduler_ext.task.publishing import Ledger
from scheduler_ext.task.results import Seen
from scheduler_ext.task.running import task as running_task
from scheduler_ext.task.steps import Step, Stored
from slackwater_conf import conf
from slackwater_conf.database import in_ledger
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.edit import allow, rewrite
from slackwater_tasks.control.forget import forget_result
from slackwater_tasks.control.owner import owner
from slackwater_tasks.control.workflows import add_subtasks
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.runtime.task_backend import close_if_broken
from slackwater_tasks.submission.canvas import submit_canvas
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_in_context, tenant_scope

ACTOR = "celery"
LOOK = """
SELECT t.handler, coalesce(l.state, t.state), coalesce(l.attempts, t.attempts_used), t.result::text, t.error, t.reason,
    l.progress::text, t.finished_at, t.args::text, t.kwargs::text, t.cap_ms,
    CASE WHEN l.task_id IS NOT NULL THEN t.attempts_used ELSE 0 END
FROM slackwater_tasks_task t LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id
WHERE t.id = %s AND t.tenant_id = %s
"""
CHILDREN = """
SELECT task_id, task_ids FROM slackwater_tasks_idempotencykey WHERE tenant_id = %s AND key LIKE %s ORDER BY created_at
"""
UNSUCCESSFUL = """
SELECT p.id::text FROM slackwater_tasks_dependency d JOIN slackwater_tasks_task p ON p.id = d.parent_id
WHERE d.child_id = %s AND d.outcome = ANY(%s) AND p.name LIKE %s ORDER BY d.outcome, p.finished_at, p.id LIMIT 1
"""
_uncommitted: set[str] = set()
"""Tasks submitted in this process's open transactions."""


class CeleryCalls(Ledger):
    """Takes what an application publishes, for the tenant in context, or the one that ``SLACKWATER_TENANT`` names."""

    @in_ledger
    def is_handler(self, name: str) -> bool:
        return reference_cache.handler_id(name) is not None

    @in_ledger
    def submit(self, signature: Any, running: TaskContext | None) -> Stored:
        if running is not None:
            return _from_task(signature, running)
        tasks, last = compile_canvas(signature, now=reference_cache.now)
        tenant = owner(signature.task)
        if len(tasks) > 1:
            ids = [str(one) for one in submit_canvas(tenant, signature, actor=ACTOR).task_ids]
        else:
            ids = [str(submit(tenant, alone(tasks[0]), actor=ACTOR).task_ids[0])]
        if connection.in_atomic_block:
            _uncommitted.update(ids)
            transaction.on_commit(partial(_uncommitted.difference_update, ids))
        return _stored(tasks, last, ids)

    @in_ledger
    def go_on_as(self, canvas: Any, running: TaskContext) -> None:
        tasks, last, key = _compiled(canvas, running)
        close_if_broken()
        add_subtasks(running.task, tasks, join=False, key=key, gathers=last.feed)

    @in_ledger
    def unsuccessful(self, task: Started, *, gathered: bool) -> Seen | None:
        close_if_broken()
        outcomes = (
            [EdgeOutcome.PENDING, EdgeOutcome.FAILED, EdgeOutcome.CANCELLED] if gathered else [EdgeOutcome.FAILED]
        )
        named = f"{task.task_id}.%" if gathered else "%"
        rows = fetch_all(UNSUCCESSFUL, (task.task_id, list(map(int, outcomes)), named))
        return _seen(rows[0][0], task.tenant_id) if rows else None

    @contextmanager
    def of_tenant(self, task_id: str, tenant_id: int) -> Iterator[Seen | None]:
        close_if_broken()
        with tenant_scope(tenant_id):
            yield _seen(task_id, tenant_id)

    @in_ledger
    def release(self) -> None:
        connection.close()

    @in_ledger
    def rewrite(self, task: Started, args: list[Any], kwargs: dict[str, Any]) -> None:
        rewrite(task, args, kwargs)

    @in_ledger
    def allow(self, task: Started, attempts: int) -> None:
        allow(task, attempts)

    @in_ledger
    def look(self, task_id: str) -> Seen | None:
        return _seen(task_id, _tenant_id(task_id))

    @in_ledger
    def children(self, task_id: str) -> list[str]:
        rows = fetch_all(CHILDREN, (_tenant_id(task_id), f"celery:{task_id}:%"))
        return [str(one) for single, several in rows for one in (several or [single]) if one]

    @in_ledger
    def cancel(self, task_id: str, *, running: bool) -> bool:
        try:
            cancel(_tenant_id(task_id), UUID(task_id), actor=ACTOR, waiting_only=not running)
        except NotFound:
            return False
        except Conflict:  # it has ended: as with Celery nothing happens
            pass
        return True

    @in_ledger
    def forget(self, task_id: str) -> bool:
        return forget_result(_tenant_id(task_id), task_id)

    @in_ledger
    def unreachable(self, task_id: str) -> bool:
        return connection.in_atomic_block and task_id in _uncommitted


@in_ledger
def _seen(task_id: str, tenant_id: int) -> Seen | None:
    rows = fetch_all(LOOK, (task_id, tenant_id))
    if not rows:
        return None
    handler, state, attempts, result, error, reason, progress, finished_at, args, kwargs, cap_ms, earlier = rows[0]
    return Seen(
        task_id=task_id, handler=handler, state=TaskState(state), attempts=attempts, result=_value(result),
        error=error, reason=reason, progress=_value(progress), finished_at=finished_at, args=_value(args),
        kwargs=_value(kwargs), cap_ms=cap_ms, earlier=earlier,
    )  # fmt: skip


def _tenant_id(task_id: str) -> int:
    """The tenant whose results are read: the running task's, the one in context, or the settings'."""
    running = running_task.get()
    tenant_id = running.tenant_id if running is not None else tenant_in_context()
    if tenant_id is None and conf().tenant:
        tenant_id = Tenant.objects.filter(slug=conf().tenant).values_list("pk", flat=True).first()
    if tenant_id is None:
        raise NoTenant(f"whose task is {task_id}? Name a tenant in SLACKWATER_TENANT, or ask inside tenant_scope()")
    return int(tenant_id)


def _value(found: Any) -> Any:
    """A JSON value, which Django's connection returns as text."""
    return json.loads(found) if isinstance(found, str) else found


def _from_task(signature: Any, running: TaskContext) -> Stored:
    """Submit for a running task. A repeated attempt that makes the same calls submits nothing twice."""
    tasks, last, key = _compiled(signature, running)
    items = tasks if len(tasks) > 1 else [alone(tasks[0])]
    return _stored(tasks, last, running.hand_in(items, key=key))


def _stored(tasks: list[dict[str, Any]], last: Step, ids: list[str]) -> Stored:
    return Stored(last, dict(zip((task["name"] for task in tasks), ids, strict=True)))


def _compiled(signature: Any, running: TaskContext) -> tuple[list[dict[str, Any]], Step, str]:
    """The tasks of a signature, its last step, and the key under which they are stored once."""
    number = running.next_call()
    tasks, last = compile_canvas(signature, prefix=f"{running.task_id}.{number}:", now=reference_cache.now)
    # Without the moments, which differ from one attempt to the next.
    said = [{key: value for key, value in task.items() if key not in {"start_at", "expires_at"}} for task in tasks]
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return tasks, last, f"celery:{running.task_id}:{number}:{digest}"
