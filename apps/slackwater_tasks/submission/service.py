"""What can be done to tasks. Every way in (REST, Python, admin, commands, schedules) calls these functions.

Each does permission by tenant, rules, write and event in one transaction; hints go out after the commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import (
    IdempotencyMismatch,
    InvalidInput,
    LimitExceeded,
    TooLarge,
    UnknownDependency,
)
from scheduler_ext.core.states import (
    Category,
    EdgeOutcome,
    RunCondition,
    TaskState,
    condition_holds,
    edge_outcome,
)
from scheduler_ext.core.types import MAX_SCRIPT_BYTES
from slackwater_tasks.control.changing import cancel, edit, retry
from slackwater_tasks.graph import relatives
from slackwater_tasks.ledger import active_policies, hints, reference_cache
from slackwater_tasks.models import IdempotencyKey, Script
from slackwater_tasks.runtime import checkpoints, trace_context
from slackwater_tasks.runtime.trace_context import TraceContext
from slackwater_tasks.spec import FIELDS, Payload, TaskSpec, body_hash, parse_task, parse_tasks
from slackwater_tasks.submission import admission, refusal_cache, store, webhook_address
from slackwater_tasks.submission.store import EDGE_COLUMNS
from slackwater_tenants.models import Tenant

__all__ = [
    "Submission",
    "cancel",
    "edit",
    "retry",
    "store_script",
    "submit",
    "submit_many",
    "submit_workflow",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The answer to a submission."""

    task_ids: list[UUID]
    workflow_id: UUID | None = None
    created: bool = True
    """False when its idempotency key returned the first answer."""


def submit(tenant: Tenant, data: Mapping[str, Any], *, actor: str = "", idempotency_key: str | None = None,
           trace: TraceContext | None = None) -> Submission:  # fmt: skip
    """Submit one task; ``data`` has the fields of :data:`slackwater_tasks.spec.FIELDS`.

    ``trace``: whose trace it belongs to; without one, that of OpenTelemetry's current span, if there is any.
    Raises the errors of ``scheduler_ext.core.errors``; nothing is stored then. Inside a transaction of the caller's
    own, the task runs only if that commits.
    """
    if not idempotency_key and not (isinstance(data, dict) and data.get("idempotency_key")):
        refusal_cache.check(tenant, 1)
    spec = parse_task(data)
    key = one_key(idempotency_key, spec.idempotency_key)
    return _store(tenant, [spec], actor=actor, key=key, body=data, trace=trace)


def submit_many(tenant: Tenant, items: Sequence[Mapping[str, Any]], *, actor: str | Sequence[str] = "",
                idempotency_key: str | None = None, trace: TraceContext | None = None) -> Submission:  # fmt: skip
    """Submit several tasks, all or none; they may depend on one another by name.

    ``actor``: one for all, or each its own. ``trace``: as :func:`submit` takes it.
    """
    check_list(items, "tasks")
    if not idempotency_key:
        refusal_cache.check(tenant, len(items))
    specs, payloads = parse_tasks(items, "tasks")
    no_inner_keys(specs)
    key = one_key(idempotency_key, "")
    return _store(tenant, specs, payloads=payloads, actor=actor, key=key, body=items, where="tasks", trace=trace)


def submit_workflow(tenant: Tenant, data: Mapping[str, Any], *, actor: str = "",
                    idempotency_key: str | None = None, trace: TraceContext | None = None,
                    ) -> Submission:  # fmt: skip
    """Submit a graph of named tasks as one workflow: ``{"name": …, "tasks": [{"name": …, "depends_on": […]}, …]}``."""
    if not isinstance(data, Mapping):
        raise InvalidInput("must be an object")
    unknown = set(data) - {"name", "tasks", "idempotency_key"}
    if unknown:
        known = "known are name, tasks, idempotency_key"
        raise InvalidInput(f"there is no such field; {known}", field=str(min(map(str, unknown)))[:60] or '""')
    header = parse_header(data)
    items = data.get("tasks")
    check_list(items, "tasks")
    if not idempotency_key and not header["idempotency_key"]:
        refusal_cache.check(tenant, len(items or ()))
    specs, payloads = parse_tasks(items or (), "tasks")
    no_inner_keys(specs)
    key = one_key(idempotency_key, header["idempotency_key"])
    return _store(
        tenant,
        specs,
        payloads=payloads,
        actor=actor,
        key=key,
        body=data,
        where="tasks",
        workflow=header["name"],
        trace=trace,
    )


def parse_header(data: Mapping[str, Any]) -> dict[str, str]:
    """Name and idempotency key of a workflow, checked."""
    return {name: FIELDS[name].kind.check(data.get(name, ""), name) for name in ("name", "idempotency_key")}


def check_list(items: Any, field: str) -> None:
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Sequence):
        raise InvalidInput("must be an array of tasks", field=field)
    if not items:
        raise InvalidInput("must not be empty", field=field)


def one_key(given: str | None, inner: str) -> str | None:
    if given and inner and given != inner:
        raise InvalidInput("differs from the Idempotency-Key header", field="idempotency_key")
    key = given or inner or None
    if key is not None and len(key) > 200:
        raise InvalidInput("must be at most 200 characters", field="idempotency_key")
    return key


def no_inner_keys(specs: Sequence[TaskSpec]) -> None:
    for n, spec in enumerate(specs):
        if spec.idempotency_key:
            raise InvalidInput("belongs to the whole submission", field=f"tasks[{n}].idempotency_key")


def _store(tenant: Tenant, specs: Sequence[TaskSpec], **how: Any) -> Submission:
    try:
        return _stored(tenant, specs, **how)
    except LimitExceeded as error:
        refusal_cache.remember(tenant, error, len(specs))
        raise


def _stored(tenant: Tenant, specs: Sequence[TaskSpec], *, actor: str | Sequence[str], key: str | None, body: Any,
            payloads: Sequence[Payload] | None = None, where: str = "", workflow: str | None = None,
            trace: TraceContext | None = None) -> Submission:  # fmt: skip
    batch = admission.admit(tenant, specs, payloads=payloads, where=where, workflow=workflow is not None)
    at = reference_cache.now()
    trace = trace or trace_context.current()
    workflow_id = store.fresh_ids(1)[0] if workflow is not None else None
    if (
        len(batch.tasks) == 1
        and key is None
        and workflow_id is None
        and not batch.outside
        and not specs[0].aside
        and not trace_context.wanted(batch.tasks, trace)
    ):
        write_alone(tenant, batch.tasks[0], at, actor if isinstance(actor, str) else actor[0])
        return Submission(task_ids=[batch.tasks[0].id])
    with transaction.atomic(), connection.cursor() as cur:
        if key is not None:
            first = claim_key(tenant, key, body, [task.id for task in batch.tasks], workflow_id)
            if first is not None:
                return first
            refusal_cache.check(tenant, len(specs))  # no repeat: what is known to be refused need not be written first
        tasks = link_outside(cur, tenant, batch, workflow_id)
        if workflow_id is not None:
            cur.execute(
                "INSERT INTO slackwater_tasks_workflow (id, tenant_id, name, task_count, edge_count, submitted_at, detail) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (
                    workflow_id,
                    tenant.pk,
                    workflow,
                    len(tasks),
                    len(batch.edges) + len(batch.outside),
                    at,
                    '{"open": true}' if batch.outside else "{}",
                ),
            )
        write_tasks(cur, tenant, tasks, batch.edges, workflow_id, at, actor, trace)
        if workflow_id is not None and len(batch.edges) >= relatives.AT_ONCE and not batch.outside:
            transaction.on_commit(partial(relatives.keep_new, tenant.pk, workflow_id, tasks, batch.edges), robust=True)
    return Submission(task_ids=[t.id for t in tasks], workflow_id=workflow_id)


def write_alone(tenant: Tenant, task: store.Accepted, at: datetime, actor: str) -> None:
    """Write and count one task that depends on nothing: one statement, a transaction by itself."""
    if task.checkpoints:
        with transaction.atomic(), connection.cursor() as cur:
            write_tasks(cur, tenant, [task], [], None, at, actor)
        return
    conf = reference_cache.scheduler_conf()
    chosen = active_policies.current(conf, tenant.cell)
    store.insert_alone(
        tenant,
        store.task_row(tenant.pk, None, task, at, actor),
        store.live_row(tenant.pk, task, at, at, chosen, conf.promote_lead_s),
        urgent=int(task.spec.category is Category.URGENT),
    )
    transaction.on_commit(partial(hints.wake_dispatcher, tenant.cell))


def write_tasks(cur: Any, tenant: Tenant, tasks: Sequence[store.Accepted], edges: Sequence[tuple[UUID, UUID]],
                workflow_id: UUID | None, at: datetime, actor: str | Sequence[str],
                trace: TraceContext | None = None) -> None:  # fmt: skip
    """Write accepted tasks and the edges between them, and count them: the last part of a submission."""
    conf = reference_cache.scheduler_conf()
    chosen = active_policies.current(conf, tenant.cell)
    actors = [actor] * len(tasks) if isinstance(actor, str) else actor
    store.insert_tasks(cur, tenant.pk, workflow_id, tasks, at, actors, chosen, conf.promote_lead_s)
    store.write_aside(cur, tasks)
    webhook_address.write(cur, tenant.pk, tasks)
    trace_context.write(cur, tenant.pk, tasks, trace, workflow_id)
    resumable = [t for t in tasks if t.checkpoints]
    checkpoints.declare(cur, tenant.pk, [(t.id, store.first_level(tenant.pk, t.line_id, chosen)) for t in resumable])
    rows = [(parent, child, int(EdgeOutcome.PENDING)) for parent, child in edges]
    store.insert(cur, "slackwater_tasks_dependency", EDGE_COLUMNS, rows)
    urgent = sum(1 for t in tasks if t.spec.category is Category.URGENT)
    store.count_in(cur, tenant, tenant.plan, n=len(tasks), urgent=urgent, charged=len(tasks))
    transaction.on_commit(partial(hints.wake_dispatcher, tenant.cell))


def claim_key(tenant: Tenant, key: str, body: Any, task_ids: list[UUID], workflow_id: UUID | None) -> Submission | None:
    """Take an idempotency key, or return the first answer; a repeat under way is waited for by the database."""
    digest = body_hash(body)
    # One id, or a workflow's, tells the answer in most cases; only a plain list needs them all.
    several = task_ids if workflow_id is None and len(task_ids) > 1 else None
    with connection.cursor() as cur:
        cur.execute(
            "INSERT INTO slackwater_tasks_idempotencykey (tenant_id, key, body_hash, task_id, workflow_id, task_ids) "
            "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (tenant.pk, key, digest, task_ids[0], workflow_id, several),
        )
        if cur.rowcount == 1:
            return None
    return first_answer(tenant, key, digest)


def first_answer(tenant: Tenant, key: str, digest: str) -> Submission | None:
    """What the first submission with this key was answered; ``IdempotencyMismatch`` when it had another body."""
    first = IdempotencyKey.objects.filter(tenant=tenant, key=key).first()
    if first is None:
        return None
    if first.body_hash != digest:
        raise IdempotencyMismatch(field="idempotency_key")
    if first.workflow_id is not None:
        with connection.cursor() as cur:
            cur.execute("SELECT id FROM slackwater_tasks_task WHERE workflow_id = %s ORDER BY id", (first.workflow_id,))
            ids = [row[0] for row in cur.fetchall()]
        return Submission(task_ids=ids, workflow_id=first.workflow_id, created=False)
    return Submission(task_ids=first.task_ids or [i for i in [first.task_id] if i], created=False)


LOCK_PARENTS = """
WITH l AS (SELECT task_id FROM slackwater_tasks_livetask WHERE task_id = ANY(%s) ORDER BY task_id FOR UPDATE),
marked AS (UPDATE slackwater_tasks_livetask x SET has_children = true FROM l WHERE x.task_id = l.task_id AND NOT x.has_children)
SELECT task_id FROM l
"""


OPEN = """
UPDATE slackwater_tasks_workflow SET detail = detail || '{"open": true}' WHERE id = ANY(%s) AND NOT detail ? 'open'
"""


def link_outside(cur: Any, tenant: Tenant, batch: admission.Batch, workflow_id: UUID | None) -> list[store.Accepted]:
    """Write edges from tasks that exist already; a parent that is final counts as it ended."""
    if not batch.outside:
        return batch.tasks
    parents = list({parent for parent, _, _ in batch.outside})
    cur.execute(LOCK_PARENTS, (parents,))
    live = {row[0] for row in cur.fetchall()}
    cur.execute(
        "SELECT id, state, workflow_id FROM slackwater_tasks_task WHERE id = ANY(%s) AND tenant_id = %s",
        (parents, tenant.pk),
    )
    found = cur.fetchall()
    known = {row[0]: row[1] for row in found}
    if foreign := {row[2] for row in found} - {workflow_id}:
        # Their graphs now reach beyond themselves: nobody may answer for them from a workflow's rows alone.
        cur.execute(OPEN, ([w for w in [workflow_id, *foreign] if w is not None],))
    tasks = list(batch.tasks)
    rows: set[tuple[UUID, UUID, int]] = set()
    for parent, n, field in batch.outside:
        if parent not in known:
            raise UnknownDependency(f"there is no task {parent}", field=field)
        outcome = EdgeOutcome.PENDING if parent in live else edge_outcome(TaskState(known[parent]))
        row = (parent, tasks[n].id, int(outcome))
        if row in rows:
            continue
        rows.add(row)
        if outcome is EdgeOutcome.PENDING:
            tasks[n] = replace(tasks[n], pending=tasks[n].pending + 1)
    _refuse_hopeless(tasks, rows, batch.outside)
    store.insert(cur, "slackwater_tasks_dependency", EDGE_COLUMNS, sorted(rows))
    return tasks


def _refuse_hopeless(tasks: Sequence[store.Accepted], rows: set[tuple[UUID, UUID, int]],
                     outside: Sequence[tuple[UUID, int, str]]) -> None:  # fmt: skip
    """A task whose parents are all final already, and not as it needs them, could never run."""
    for _, n, field in outside:
        task = tasks[n]
        if task.pending:
            continue
        outcomes = [row[2] for row in rows if row[1] == task.id]
        failed, cancelled = outcomes.count(EdgeOutcome.FAILED), outcomes.count(EdgeOutcome.CANCELLED)
        if not condition_holds(RunCondition(task.spec.condition), failed=failed, cancelled=cancelled):
            raise InvalidInput(
                f"this dependency has ended, and not as {task.spec.condition.name.lower()} needs it",
                field=field,
            )


def store_script(tenant: Tenant, name: str, content: bytes) -> Script:
    """Put a script into the tenant's store; the same content gives the same row."""
    if not content:
        raise InvalidInput("must not be empty", field="content")
    if len(content) > MAX_SCRIPT_BYTES:
        raise TooLarge(f"a script has at most {MAX_SCRIPT_BYTES} bytes, this one has {len(content)}", field="content")
    if not name or len(name) > 200 or "/" in name or "\x00" in name:
        raise InvalidInput("must be a file name of at most 200 characters", field="name")
    digest = hashlib.sha256(content).hexdigest()
    scripts = Script.objects.unscoped()  # the tenant is named
    script: Script = scripts.get_or_create(
        tenant=tenant, sha256=digest, defaults={"name": name, "content": content, "size": len(content)}
    )[0]
    return script
