"""Submits a lone task like one that came a moment ago: what the two have in common is not worked out again.

To read, admit and write out a task takes several times as long as to tell that one like it was admitted. Only what is
plain comes this way; all else, and whatever is wrong with a task, is left to the ordinary way, which says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction
from psycopg.adapt import PyFormat, Transformer

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.task.arguments import Arguments
from slackwater_resources import components
from slackwater_tasks.ledger import active_policies, copy_format, reference_cache, rows, transitions
from slackwater_tasks.ledger.connection import prepared_cursor
from slackwater_tasks.ledger.rows import LIVE_COLUMNS, TASK_COLUMNS, USUAL_LIVE, USUAL_TASK, Accepted
from slackwater_tasks.ledger.sql.store import OF_TASK, Count, Fixed, store_statement
from slackwater_tasks.models import new_id
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.spec import NO_PAYLOAD, own_payload, shape_of
from slackwater_tasks.submission import admission, limits
from slackwater_tasks.submission.store import Part, claimable, openings_missed, tell, urgent_of
from slackwater_tenants.models import Tenant

KEPT_S: Final = 1.0
"""So long a kind is remembered: so much later than else is seen what changed in what admission looks up."""
MOST: Final = 1_000
"""The most kinds remembered."""
VARY: Final = ("submitted_at", "rank_group", "rank", "latest_start", "promote_at")
"""The columns that go by the moment of submission, each in one of the two tables."""


@dataclass(slots=True, kw_only=True)
class _Kind:
    """What tasks of one kind have in common."""

    until: float
    """By this process's clock."""
    plan: dict[str, Any]
    orders: active_policies.Orders
    admitted_by: int | None
    task: Accepted
    """One of them."""
    arguments: Arguments | None
    most_bytes: int
    count: Count
    opening: tuple[int, int | None, bool] | None
    """What an opening for it is for, where it may take one."""
    statement: str
    opening_statement: str
    values: list[str | None]
    """The statement's parameters, as PostgreSQL reads them."""
    opening_values: list[str | None]
    own: int
    """The place of a task's id among them; its arguments follow."""
    moments: tuple[int, ...]
    """The places of what varies."""

    def holds(self, tenant: Tenant) -> bool:
        """Whether nothing has changed of which this can know."""
        return (
            time.monotonic() < self.until
            and {**tenant.plan.__dict__, "_state": None} == self.plan
            and active_policies.current(tenant.cell) is self.orders
            and components.own.id == self.admitted_by
        )


def submit(tenant: Tenant, data: Any, actor: str) -> UUID | None:
    """Submit a task of a kind that is known, and return its id. None: nothing was done, it is to go the ordinary way.

    Raises what :func:`slackwater_tasks.submission.limits.refuse` raises.
    """
    kind: _Kind | None = None
    try:
        kind = reference_cache.made_of_it.get((tenant.pk, tenant.cell, actor, shape_of(data)))
        if kind is None or not kind.holds(tenant):
            return None
        payload = own_payload(data, "")
        if payload is None or len(payload[0]) + len(payload[1]) > kind.most_bytes:
            return None
        if kind.arguments is not None and (kind.arguments.required or payload != NO_PAYLOAD):
            admission.check_arguments(kind.task.spec.handler, kind.arguments, payload)
    except (InvalidInput, TypeError):  # at fault; or an array or an object among its fields
        return None
    task_id = new_id()
    _store(tenant, kind, task_id, payload)
    return task_id


def _store(tenant: Tenant, kind: _Kind, task_id: UUID, payload: tuple[str, str]) -> None:
    opening, ours = kind.opening, transaction.get_connection()
    opens = opening is not None and not ours.in_atomic_block and openings_missed.may_be_there(opening)
    values = kind.opening_values.copy() if opens else kind.values.copy()
    own = kind.own
    values[own : own + len(OF_TASK)] = copy_format.uuid_text(task_id), *payload
    for column, value in zip(kind.moments, _moments(tenant.pk, kind.task, kind.orders), strict=True):
        values[column] = value
    with prepared_cursor(ours) as cur:
        statement = kind.opening_statement if opens else kind.statement
        stored, place = transitions.store_like_if_counted(cur, statement, values)
        if opens and stored:
            openings_missed.note(opening, missed=place is None or place.places < 0)
        if not stored:
            limits.refuse(cur, tenant, kind.count)
    limits.note(tenant, *stored[tenant.pk])
    tell(tenant.cell, (task_id,), place, ours)


def _moments(tenant_id: int, task: Accepted, orders: active_policies.Orders) -> Sequence[str | None]:
    """What goes by the moment of submission, in the order of the columns that vary."""
    at = reference_cache.now()
    group, rank = rows.rank_of(tenant_id, task, at, orders)
    _, _, latest, promote = rows.timing(task, at)
    return _text(at), str(group), str(rank), _text(latest), _text(promote)


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def first(part: Part, data: Any) -> bool:
    """Store the lone task of a plain part, made of ``data``, and remember its kind. False: it is nothing to remember."""
    tenant, task = part.tenant, part.tasks[0]
    shape, spec, plan = shape_of(data), task.spec, tenant.plan
    timed = (spec.start_at, spec.start_in_ms, spec.expires_at, spec.expires_in_ms) != (None, None, None, None)
    # What a rolled back transaction made is not there; whether a plan's limits by wait or room hold, only a look tells.
    rare = connection.in_atomic_block or plan.refuse_impossible or plan.refuse_late or plan.handler_defaults
    if shape is None or timed or rare or not spec.handler or trace_context.is_on():
        return False
    key, known = (tenant.pk, tenant.cell, part.actors[0], shape), reference_cache.made_of_it
    try:
        hash(key)
    except TypeError:
        return False
    kind = _kind(part, task)
    _store(tenant, kind, task.id, task.payload)
    if len(known) >= MOST:
        known.clear()
    known[key] = kind
    return True


def _kind(part: Part, task: Accepted) -> _Kind:
    tenant, at = part.tenant, reference_cache.now()
    orders = active_policies.current(tenant.cell)
    narrow = rows.live_row(tenant.pk, task, at, at, orders)
    both = rows.task_row(tenant.pk, None, task, at, part.actors[0]), narrow[: len(LIVE_COLUMNS)]
    wide, wide_usual = _split(dict(zip(TASK_COLUMNS, both[0], strict=True)), USUAL_TASK)
    thin, thin_usual = _split(dict(zip(LIVE_COLUMNS, both[1], strict=True)), USUAL_LIVE)
    count = limits.count_of(tenant, n=1, urgent=urgent_of([task]), charged=1)
    own = len(count)
    shared = [(name, value) for name, value in (*wide.items(), *thin.items()) if name not in (*OF_TASK, "task_id")]
    values = _written([*count, *(None for _ in OF_TASK), *(value for _, value in shared)])
    names = [name for name, _ in shared]
    row = claimable([narrow])
    opening = row.opens if row is not None else None

    def statement(*, opens: bool) -> str:
        usual = (wide_usual, thin_usual)
        return store_statement(1, 1, tuple(wide), tuple(thin), lone=True, opens=opens, usual=usual)

    return _Kind(
        until=time.monotonic() + KEPT_S, plan={**tenant.plan.__dict__, "_state": None}, orders=orders,
        admitted_by=components.own.id, task=task,
        arguments=reference_cache.arguments(task.spec.handler),
        most_bytes=tenant.plan.max_payload_bytes // admission.UTF8_MOST, count=count, opening=opening,
        statement=statement(opens=False), opening_statement=statement(opens=True), values=values,
        opening_values=[*values, *_written([1, *opening, transitions.CLAIM_S])] if opening is not None else [],
        own=own, moments=tuple(own + len(OF_TASK) + names.index(name) for name in VARY),
    )  # fmt: skip


def _split(row: dict[str, Any], usual: dict[str, Any]) -> tuple[dict[str, Any], Fixed]:
    """A row without what it has as usual, and that as SQL; the row as it is where it has anything unusual."""
    if any(row[column] != value for column, value in usual.items()):
        return row, ()
    rest = {column: value for column, value in row.items() if column not in usual}
    return rest, tuple((column, _literal(value)) for column, value in usual.items() if value is not None)


def _literal(value: Any) -> str:
    if isinstance(value, (bool, str)):
        return f"'{value}'"
    return "'{}'" if isinstance(value, list) else str(int(value))  # no other array is usual


def _written(values: Sequence[Any]) -> list[str | None]:
    connection.ensure_connection()
    found = Transformer(connection.connection).dump_sequence(values, [PyFormat.TEXT] * len(values))
    return [bytes(value).decode() if value is not None else None for value in found]
