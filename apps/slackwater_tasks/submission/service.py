"""Submits tasks: one, several, or a workflow. Every way in (REST, Python, admin, commands, schedules) comes through here.

A submission is parsed, admitted by the tenant's plan, and stored in one transaction; the dispatcher is told after the
commit.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from psycopg.errors import UniqueViolation

from scheduler_ext.core.errors import Conflict, DoesNotFit, InvalidInput, TooLarge
from scheduler_ext.core.types import MAX_SCRIPT_BYTES
from slackwater_conf.database import in_ledger
from slackwater_tasks.field_kinds import Whole
from slackwater_tasks.graph import relatives
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.models import MutexScope, Script, new_id
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.runtime.trace_context import TraceContext
from slackwater_tasks.spec import (
    FIELDS,
    OF_WORKFLOW,
    Payload,
    TaskSpec,
    dump_metadata,
    parse_task,
    parse_tasks,
)
from slackwater_tasks.submission import admission, alike, familiar, idempotency, refusal_cache
from slackwater_tasks.submission.dependencies import link_outside, press_outside
from slackwater_tasks.submission.idempotency import Key, Submission, body_hash
from slackwater_tasks.submission.store import Part, are_plain, store
from slackwater_tenants.models import Tenant

__all__ = [
    "Single",
    "Submission",
    "put",
    "store_script",
    "submit",
    "submit_many",
    "submit_spec",
    "submit_together",
    "submit_workflow",
]

OWN_ID_AGE_MS: Final = 86_400_000
"""The greatest age of a client's own id: as long as its repeats are known."""
OWN_ID_AHEAD_MS: Final = 60_000
INSERT_WORKFLOW: Final = """
INSERT INTO slackwater_tasks_workflow (id, tenant_id, name, task_count, edge_count, submitted_at, detail, tags, metadata,
    max_running, share_weight)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
WHOLES: Final = {"max_running": Whole(1, 10_000), "share_weight": Whole(1, 1_000)}
WORKFLOW_FIELDS: Final = ("name", "tags", "metadata", *WHOLES, "tasks", "idempotency_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a workflow is given beside its tasks."""

    name: str
    tags: tuple[str, ...] = ()
    metadata: str | None = None
    """As JSON."""
    max_running: int | None = None
    share_weight: int | None = None
    id: UUID = field(default_factory=new_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """One task, as :func:`submit` takes it."""

    data: Any
    actor: str = ""
    idempotency_key: str | None = None

    def may_repeat(self) -> bool:
        """Whether it has an idempotency key, whose first answer is given whatever the limits are."""
        return may_repeat(self.data, self.idempotency_key)


def may_repeat(data: Any, idempotency_key: str | None) -> bool:
    """As :meth:`Single.may_repeat`, of one that is not made."""
    return bool(idempotency_key or (isinstance(data, dict) and data.get("idempotency_key")))


class Inseparable(Exception):
    """Several submissions that cannot be stored in one transaction, though each may be by itself."""


@in_ledger
def submit(tenant: Tenant, data: Mapping[str, Any], *, actor: str = "", idempotency_key: str | None = None,
           trace: TraceContext | None = None) -> Submission:  # fmt: skip
    """Submit one task; ``data`` has the fields of :data:`slackwater_tasks.spec.FIELDS`.

    ``trace``: whose trace it belongs to; without one, that of OpenTelemetry's current span, if there is any.
    Raises the errors of ``scheduler_ext.core.errors``; nothing is stored then. Inside a transaction of the caller's
    own, the task runs only if that commits.
    """
    with refusal_cache.gate(tenant, 1, repeat=may_repeat(data, idempotency_key)):
        if not idempotency_key and trace is None and (known := familiar.submit(tenant, data, actor)) is not None:
            return Submission(task_ids=[known])
        spec = parse_task(data)
        key = Key.of(idempotency_key, spec.idempotency_key, data)
        trace = trace or trace_context.current()
        return _accept(tenant, [spec], [spec.payload], [actor], key=key, where="", trace=trace, lone=data)


def submit_spec(tenant: Tenant, spec: TaskSpec, *, actor: str) -> UUID:
    """Submit one parsed task; returns its id."""
    with refusal_cache.gate(tenant, 1, repeat=False):
        return _accept(tenant, [spec], [spec.payload], [actor], where="", trace=trace_context.current()).task_ids[0]


@in_ledger
def put(tenant: Tenant, task_id: UUID, data: Mapping[str, Any], *, actor: str = "",
        trace: TraceContext | None = None) -> Submission:  # fmt: skip
    """Submit one task under an id that the client has made, once however often it is repeated.

    ``Conflict`` where there is a task of that id, ``IdempotencyMismatch`` where it was submitted with other fields.
    """
    age_ms = time.time() * 1000 - (task_id.int >> 80)
    if task_id.version != 7:
        raise InvalidInput("must be a UUID of version 7", field="task_id")
    if not -OWN_ID_AHEAD_MS <= age_ms <= OWN_ID_AGE_MS:
        raise DoesNotFit("must be a UUID of version 7, made within the last day", field="task_id")
    with refusal_cache.gate(tenant, 1, repeat=True):
        spec = parse_task(data)
        if spec.idempotency_key:
            raise InvalidInput("is not needed: the id itself tells a repeat", field="idempotency_key")
        key = Key(f"task {task_id}", body_hash(data))
        try:
            return _accept(tenant, [spec], [spec.payload], [actor], key=key, where="", ids=[task_id],
                           trace=trace or trace_context.current())  # fmt: skip
        except (IntegrityError, UniqueViolation):
            raise Conflict("there is a task of this id already", field="task_id") from None


@in_ledger
def submit_many(tenant: Tenant, items: Sequence[Mapping[str, Any]], *, actor: str | Sequence[str] = "",
                idempotency_key: str | None = None, trace: TraceContext | None = None) -> Submission:  # fmt: skip
    """Submit several tasks, all or none; they may depend on one another by name.

    ``actor``: one for all, or each its own. ``trace``: as :func:`submit` takes it.
    """
    return _submit_list(tenant, items, items, actor, idempotency_key, "", trace)


@in_ledger
def submit_workflow(tenant: Tenant, data: Mapping[str, Any], *, actor: str = "", idempotency_key: str | None = None,
                    trace: TraceContext | None = None) -> Submission:  # fmt: skip
    """Submit a graph of named tasks as one workflow: ``{"name": …, "tasks": [{"name": …, "depends_on": […]}, …]}``.

    ``tags`` and ``metadata``: words to find it by, and an object of yours that comes back with it and its events.
    ``max_running``: so many of its tasks are with nodes at a time, at most. ``share_weight``: it is a member of its
    tenant's share, with this weight.
    """
    found, inner = parse_header(data)
    return _submit_list(tenant, data.get("tasks"), data, actor, idempotency_key, inner, trace, workflow=found)


def parse_header(data: Any) -> tuple[Header, str]:
    """What a workflow is given beside its tasks, and its idempotency key; ``InvalidInput`` names the field."""
    if not isinstance(data, Mapping):
        raise InvalidInput("must be an object")
    unknown = set(data) - set(WORKFLOW_FIELDS)
    if unknown:
        known = f"known are {', '.join(WORKFLOW_FIELDS)}"
        raise InvalidInput(f"there is no such field; {known}", field=str(min(map(str, unknown)))[:60] or '""')
    header = {name: FIELDS[name].kind.check(data.get(name, ""), name) for name in ("name", "idempotency_key")}
    tags = FIELDS["tags"].kind.check(data.get("tags", []), "tags")
    metadata = dump_metadata(data.get("metadata"), "metadata")
    wholes: dict[str, Any] = {
        name: kind.check(data[name], name) for name, kind in WHOLES.items() if data.get(name) is not None
    }
    return Header(name=header["name"], tags=tags, metadata=metadata, **wholes), header["idempotency_key"]


def _submit_list(tenant: Tenant, items: Any, body: Any, actor: str | Sequence[str], given: str | None, inner: str,
                 trace: TraceContext | None, workflow: Header | None = None) -> Submission:  # fmt: skip
    check_list(items, "tasks")
    with refusal_cache.gate(tenant, len(items), repeat=bool(given or inner)):
        if workflow is None and trace is None and isinstance(actor, str):
            key_of = partial(Key.of, given, inner, body)
            if (found := alike.submit(tenant, items, actor, key_of, keyed=bool(given or inner))) is not None:
                return found
        specs, payloads = parse_tasks(items, "tasks")
        no_inner_keys(specs)
        if workflow is not None and workflow.max_running:
            specs = limited(specs, workflow.id, workflow.max_running)
        actors = [actor] * len(specs) if isinstance(actor, str) else actor
        key = Key.of(given, inner, body)
        trace = trace or trace_context.current()
        return _accept(tenant, specs, payloads, actors, key=key, workflow=workflow, trace=trace)


def submit_together(tenant: Tenant, singles: Sequence[Single]) -> list[Submission]:
    """Submit single tasks in one transaction, all or none.

    Raises :class:`Inseparable` where one depends on others or repeats a key: each is to be submitted by itself.
    """
    with refusal_cache.gate(tenant, len(singles), repeat=any(single.may_repeat() for single in singles)):
        specs, payloads = parse_tasks([single.data for single in singles], "tasks")
        pairs = zip(singles, specs, strict=True)
        keys = [Key.of(one.idempotency_key, spec.idempotency_key, one.data) for one, spec in pairs]
        taken = [key.key for key in keys if key is not None]
        if len(set(taken)) < len(taken) or any(spec.depends_on for spec in specs):
            raise Inseparable  # a repeat; or names, which mean nothing from one submission to another
        actors = [single.actor for single in singles]
        found = _accept(tenant, specs, payloads, actors, keys=keys if taken else ())
    return [Submission(task_ids=[task_id]) for task_id in found.task_ids]


def check_list(items: Any, field: str) -> None:
    """``InvalidInput`` for what is no array of tasks, or an empty one."""
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Sequence):
        raise InvalidInput("must be an array of tasks", field=field)
    if not items:
        raise InvalidInput("must not be empty", field=field)


def no_inner_keys(specs: Sequence[TaskSpec]) -> None:
    """``InvalidInput`` for a task of several that has an idempotency key of its own."""
    for n, spec in enumerate(specs):
        if spec.idempotency_key:
            raise InvalidInput("belongs to the whole submission", field=f"tasks[{n}].idempotency_key")


def limited(specs: Sequence[TaskSpec], workflow_id: UUID, most: int) -> list[TaskSpec]:
    """The tasks of a workflow that share a mutex key with so many holders: what is beyond waits beside its line."""
    for n, spec in enumerate(specs):
        if spec.mutex_key:
            raise DoesNotFit("cannot stand beside max_running of its workflow", field=f"tasks[{n}].mutex_key")
    key = f"{OF_WORKFLOW}{workflow_id}"
    return [replace(spec, mutex_key=key, mutex_limit=most, mutex_scope=MutexScope.BOTH) for spec in specs]


def _accept(tenant: Tenant, specs: Sequence[TaskSpec], payloads: Sequence[Payload], actors: Sequence[str], *,
            key: Key | None = None, keys: Sequence[Key | None] = (), where: str = "tasks", workflow: Header | None = None,
            trace: TraceContext | None = None, ids: Sequence[UUID] = (), lone: Any = None) -> Submission:  # fmt: skip
    """Check a submission against the tenant's plan and store it. ``key``: of all together; ``keys``: of each.

    ``ids``: the tasks' own, where the client has made them. ``lone``: what it was made of, where others like it may come.
    """
    share = str(workflow.id) if workflow is not None and workflow.share_weight else ""
    batch = admission.admit(tenant, specs, payloads=payloads, where=where, workflow=workflow is not None, ids=ids,
                            share=share)  # fmt: skip
    part = Part(tenant=tenant, tasks=batch.tasks, actors=actors, edges=batch.edges, trace=trace)
    if key is None and not keys and workflow is None and not batch.outside and are_plain([part]):
        if lone is None or not familiar.first(part, lone):
            store([part], reference_cache.now())
        return Submission(task_ids=[task.id for task in batch.tasks])
    with transaction.atomic():
        return _accept_in_transaction(part, batch.outside, key, keys, workflow)


def _accept_in_transaction(part: Part, outside: Sequence[admission.Outside], key: Key | None,
                           keys: Sequence[Key | None], workflow: Header | None) -> Submission:  # fmt: skip
    tenant = part.tenant
    at = reference_cache.now()
    workflow_id = workflow.id if workflow is not None else None
    ids = [task.id for task in part.tasks]
    with connection.cursor() as cur:
        if key is not None:
            first = idempotency.first_or_claim(cur, tenant, key, ids, workflow_id)
            if first is not None:
                return first
        elif keys:
            pairs = [(own, task_id) for own, task_id in zip(keys, ids, strict=True) if own is not None]
            if not idempotency.claim(cur, tenant, pairs):
                raise Inseparable
        if key is not None or keys:
            refusal_cache.check(tenant, len(ids))  # no repeat: what is known to be refused need not be written first
        tasks = link_outside(cur, tenant, part.tasks, outside, workflow_id)
        if workflow is not None:
            edges, detail = len(part.edges) + len(outside), '{"open": true}' if outside else "{}"
            told = (list(workflow.tags), workflow.metadata, workflow.max_running, workflow.share_weight)
            named = (workflow.name, len(ids), edges, at, detail, *told)
            cur.execute(INSERT_WORKFLOW, (workflow_id, tenant.pk, *named))
    store([replace(part, tasks=tasks, workflow_id=workflow_id)], at)
    press_outside(tenant, tasks, outside)
    if workflow_id is not None and len(part.edges) >= relatives.PACKED_FROM and not outside:
        transaction.on_commit(partial(relatives.keep_new, tenant.pk, workflow_id, tasks, part.edges), robust=True)
    return Submission(task_ids=ids, workflow_id=workflow_id)


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
