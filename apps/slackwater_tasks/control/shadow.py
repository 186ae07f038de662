"""Notes what Celery does with tasks in the shadow, beside it: nothing here fails its caller, or holds it up.

In the caller's transaction, where the ledger is the same database: what is rolled back leaves no call.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from celery.exceptions import SoftTimeLimitExceeded
from django.db import InterfaceError, OperationalError, connections, transaction
from django.utils import timezone

from scheduler_ext.core.errors import InvalidInput, SlackwaterError
from scheduler_ext.task import celery_json, handlers
from scheduler_ext.task.arguments import Arguments
from scheduler_ext.task.celery_json import CALL
from scheduler_ext.task.celery_options import fields_of_call, meant, terms_of, unused
from scheduler_ext.task.in_flight import LINKS
from scheduler_ext.task.publishing import leads_to
from scheduler_ext.task.running import task as running_task
from scheduler_ext.task.signature import schema_of
from slackwater_conf import conf
from slackwater_tasks.spec import parse_task
from slackwater_tenants.scoping import tenant_in_context

log = logging.getLogger(__name__)

PAUSE_S: Final = 10.0
"""Nothing is noted for so long when the database is away."""
CANVAS: Final = ("chain", "chord", "group_id", "root_id")
"""Options of a call that is a step of a canvas, which the ledger would store as a whole."""
NOTE_CALL: Final = """
INSERT INTO slackwater_tasks_shadowcall (celery_id, task, watched, at, due_at, digest, size, fields, dropped, field, why, missed,
    tenant_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, coalesce(%s, (SELECT id FROM slackwater_tenants_tenant WHERE slug = %s)))
RETURNING id
"""
NOTE_RUN: Final = """
INSERT INTO slackwater_tasks_shadowrun (celery_id, task, retries, began_at, ended_at, limit_s, outcome, error, digest, fault)
VALUES (%s, %s, %s, clock_timestamp(), CASE WHEN %s THEN clock_timestamp() END, %s, %s, '', '', '') RETURNING id
"""
NOTE_END: Final = """
UPDATE slackwater_tasks_shadowrun SET ended_at = clock_timestamp(), outcome = %s, error = %s, digest = %s, fault = %s
WHERE id = %s RETURNING id
"""


@dataclass(slots=True)
class _Missed:
    """What this process could not note, and until when it does not try."""

    count: int = 0
    until: float = 0.0


missed: Final = _Missed()
_arguments: dict[str, Arguments | None] = {}
_running: dict[str, int] = {}
"""Runs of this process, by Celery's id: their rows."""


# -- calls ------------------------------------------------------------------------------------------------------------
def concerns(name: str, kwargs: Any, options: Mapping[str, Any]) -> bool:
    """Whether a message is one of a task in the shadow, or leads to one; a retry is the same call again."""
    if options.get("retries"):
        return False
    return handlers.is_shadowed(name) or any(map(handlers.is_shadowed, leads_to(name, kwargs, options)))


def note_call(
    app: Any, celery_id: str, name: str, args: Any, kwargs: Any, options: dict[str, Any], at: datetime
) -> None:
    """Note a message that Celery has published, and what the ledger would have made of it."""
    fields: dict[str, Any] = {}
    field = why = ""
    try:
        text = celery_json.dumps([list(args or ()), dict(kwargs or {})]).encode()
    except (TypeError, ValueError):
        text = b""
    try:
        fields = _foreseen(app, name, list(args or ()), dict(kwargs or {}), options)
    except SlackwaterError as error:
        field, why = (error.field or "")[:200], error.message[:300]
    except Exception as error:  # noqa: BLE001 - a call of somebody's own may be anything
        why = f"{type(error).__name__}: {error}"[:300]
    running = running_task.get()
    tenant_id = running.tenant_id if running is not None else tenant_in_context()
    if not why and tenant_id is None and not conf().tenant:
        field, why = "tenant", "no tenant is in context, and SLACKWATER_TENANT names none"
    due_at = fields.get("start_at") or at
    noted = _write(NOTE_CALL, (
        celery_id, name, handlers.is_shadowed(name), at, due_at, hashlib.sha256(text).hexdigest()[:16] if text else "", len(text),
        json.dumps(fields, default=str), unused(app, options), field, why, missed.count, tenant_id, conf().tenant,
    ))  # fmt: skip
    if noted is not None:
        missed.count = 0


def _foreseen(app: Any, name: str, args: list[Any], kwargs: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The fields of the task that the ledger would have stored; an error of submission names what it would refuse."""
    for other in leads_to(name, kwargs, options):
        if not handlers.is_shadowed(name):
            raise InvalidInput(f"{name} is an ordinary Celery task: the durable {other} cannot follow or be part of it")
        if not other.startswith(handlers.RESERVED) and not _is_ours(other):
            raise InvalidInput(f"{other} is an ordinary Celery task: it cannot follow a durable one", field="canvas")
    in_canvas = any(map(options.get, CANVAS))
    if options.get("task_id") and not in_canvas:
        raise InvalidInput(f"{name}: the ledger gives its tasks their ids; use idempotency_key", field="task_id")
    task = options.get("task_type") or app.tasks.get(name)
    if task is not None:
        terms_of(task)
    own = meant({key: value for key, value in options.items() if key not in (*CANVAS, *LINKS, "task_id")})
    fields = fields_of_call(own, app, timezone.now())
    fields |= own.get("slackwater") or {}
    told = fields.pop(CALL, {})
    parsed = parse_task({"handler": name, "args": args, "kwargs": {**kwargs, CALL: told} if told else kwargs, **fields})
    check = _arguments_of(task)
    if check is not None and not (in_canvas and options.get("parent_id")):
        check.check_payload(parsed.payload, str)
    return {**fields, **dict.fromkeys(told, "kept")}


def _is_ours(name: str) -> bool:
    return handlers.is_shadowed(name) or handlers.is_declared(name) or handlers.of_task(name) is not None


def _arguments_of(task: Any) -> Arguments | None:
    """The check of a task's arguments, as its worker would publish it."""
    if task is None or not getattr(task, "typing", True):
        return None
    if task.name not in _arguments:
        schema = schema_of(task.run)
        _arguments[task.name] = Arguments(schema) if schema else None
    return _arguments[task.name]


# -- runs -------------------------------------------------------------------------------------------------------------
def note_begin(task: Any, celery_id: str) -> None:
    """Note that a run begins."""
    request = task.request
    hard, soft = request.timelimit or (None, None)
    limit = hard or task.time_limit or soft or task.soft_time_limit
    row = _write(NOTE_RUN, (celery_id, task.name, request.retries or 0, False, limit, ""))
    if row is not None:
        _running[celery_id] = row


def note_end(task: Any, celery_id: str, state: str, retval: Any) -> None:
    """Note how it has ended."""
    row = _running.pop(celery_id, None)
    if row is None:
        return
    error, digest, fault = "", "", ""
    if isinstance(retval, BaseException):
        error = type(retval).__name__[:100]
    elif state == "SUCCESS":
        digest, fault = _result(retval, exactly=task.app.conf.result_serializer != "json")
    _write(NOTE_END, (str(state)[:16], error, digest, fault[:300], row))


def note_revoked(name: str, request: Any) -> None:
    """Note a task that Celery did not run, or has stopped. Its process may be about to fork: nothing stays open."""
    _write(NOTE_RUN, (request.id, name, getattr(request, "retries", 0) or 0, True, None, "REVOKED"))
    connection = connections[conf().ledger_alias]
    if not connection.in_atomic_block:
        connection.close()


def _result(value: Any, *, exactly: bool) -> tuple[str, str]:
    """The digest of a result, and why the ledger could not return it as it is."""
    try:
        text = celery_json.dumps(value)
    except (TypeError, ValueError) as error:
        return "", f"JSON cannot hold it: {error}"
    most = conf().scheduler.max_result_bytes
    if len(text) > most:
        return "", f"it has {len(text)} bytes, more than the {most} of max_result_bytes"
    other = exactly and celery_json.revived(json.loads(text)) != value
    return hashlib.sha256(text.encode()).hexdigest()[:16], "it comes back from JSON as another value" if other else ""


# -- both -------------------------------------------------------------------------------------------------------------
def _write(statement: str, params: Sequence[Any]) -> int | None:
    """Write a row and return its id; ``None`` where it cannot be: that is logged and counted, and no more."""
    if time.monotonic() < missed.until:
        missed.count += 1
        return None
    try:
        with _beside(connections[conf().ledger_alias]) as cur:
            cur.execute(statement, params)
            found: int = cur.fetchone()[0]
            return found
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:  # noqa: BLE001 - no failure of ours is the caller's
        missed.count += 1
        log.warning("the shadow could not note a task of Celery: %s", error)
        if isinstance(error, (OperationalError, InterfaceError)):
            missed.until = time.monotonic() + PAUSE_S
        return None


@contextmanager
def _beside(connection: Any) -> Iterator[Any]:
    """A cursor whose failure leaves the caller's transaction as it was."""
    if connection.in_atomic_block or not connection.get_autocommit():
        with transaction.atomic(using=connection.alias), connection.cursor() as cur:
            yield cur
        return
    try:
        with connection.cursor() as cur:
            yield cur
    except (OperationalError, InterfaceError):
        connection.close()
        raise
