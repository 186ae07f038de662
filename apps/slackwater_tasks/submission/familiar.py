"""Submits tasks like those that came a moment ago, one by one: what they have in common is not worked out again.

To read, admit and write out a task takes several times as long as to tell that one like it was admitted. Only what is
plain comes this way; all else, and whatever is wrong with a task, is left to the ordinary way, which says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction
from psycopg.adapt import PyFormat, Transformer

from scheduler_ext.core.errors import InvalidInput, TooLarge
from scheduler_ext.task.arguments import Arguments
from slackwater_resources import components
from slackwater_tasks.ledger import active_policies, copy_format, reference_cache, rows, transitions
from slackwater_tasks.ledger.connection import prepared_cursor
from slackwater_tasks.ledger.rows import LIVE_COLUMNS, TASK_COLUMNS, USUAL_LIVE, USUAL_TASK, Accepted, Own
from slackwater_tasks.ledger.sql.store import OF_TASK, Count, Fixed, store_statement
from slackwater_tasks.models import new_id
from slackwater_tasks.models.base import new_ids
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.spec import NO_PAYLOAD, Payload, own_payload, shape_of
from slackwater_tasks.submission import admission, limits
from slackwater_tasks.submission.store import (
    AT_ONCE,
    MAX_KINDS,
    Part,
    Wish,
    claimable,
    openings_missed,
    tell,
    urgent_of,
)
from slackwater_tenants.models import Tenant

KEPT_S: Final = 1.0
"""So long a kind is remembered: so much later than else is seen what changed in what admission looks up."""
MOST: Final = 1_000
"""The most kinds remembered."""
UNHEARD_OF: Final = object()
TABLES: Final = (TASK_COLUMNS, LIVE_COLUMNS)
OWN: Final = frozenset({*OF_TASK, "task_id"})
"""The columns that are a task's own."""
VARY: Final = ("submitted_at", "rank_group", "rank", "latest_start", "promote_at")
"""The columns that go by the moment of submission, each in one of the two tables."""
NOT_ALIKE: Final = frozenset({*OWN, *VARY})


@dataclass(slots=True, kw_only=True)
class Admitted:
    """What admission has said of tasks of one kind."""

    until: float
    """By this process's clock."""
    plan: dict[str, Any]
    task: Accepted
    """One of them."""

    def holds(self, tenant: Tenant) -> bool:
        """Whether nothing has changed of which this can know."""
        plan = tenant.plan.__dict__
        return time.monotonic() < self.until and (
            plan == self.plan or {**plan, "_state": self.plan["_state"]} == self.plan  # mostly it is read but once
        )


@dataclass(slots=True, kw_only=True)
class _Kind(Admitted):
    """What tasks of one kind have in common, as they are stored one by one."""

    orders: active_policies.Orders
    admitted_by: int | None
    arguments: Arguments | None
    most_bytes: int
    count: Count
    opening: tuple[int, int | None, bool] | None
    """What an opening for it is for, where it may take one."""
    columns: tuple[tuple[str, ...], tuple[str, ...]]
    """Of the task table and of the live table, those whose values are given; it has the usual ones of the others."""
    usual: tuple[Fixed, Fixed]
    texts: tuple[dict[str, bytes | None], dict[str, bytes | None]]
    """The values of all columns of the two tables, by name."""
    statement: str
    opening_statement: str
    values: list[bytes | None]
    """The statement's parameters, as PostgreSQL reads them."""
    opening_values: list[bytes | None]
    own: int
    """The place of a task's id among them; its arguments follow."""
    moments: tuple[int, ...]
    """The places of what varies."""
    after: tuple[timedelta | None, ...]
    """How long after the moment of submission the latest start and the promotion are."""
    alike: tuple[Any, ...]
    """The values that its tasks have in common, as they are."""

    def is_as_stored(self, tenant: Tenant) -> bool:
        """Whether what is written of one now is what was written then."""
        return active_policies.current(tenant.cell) is self.orders and components.own.id == self.admitted_by


def submit(tenant: Tenant, data: Any, actor: str) -> UUID | None:
    """Submit a task of a kind that is known, and return its id. None: nothing was done, it is to go the ordinary way.

    Raises what :func:`slackwater_tasks.submission.limits.refuse` raises.
    """
    known = _known(tenant, data, actor)
    if known is None:
        return None
    task_id = new_id()
    _store(tenant, known[0], task_id, known[1])
    return task_id


def submit_for_many(wishes: Sequence[Wish], patience_ms: int) -> dict[int, list[UUID]] | None:
    """Submit for several tenants as :func:`slackwater_tasks.submission.many_tenants.submit_if_free` does.

    Returns the ids by the tenants of whom something was stored. None: nothing was done, it is to go the ordinary way.
    """
    numbers: dict[int, tuple[int, _Kind]] = {}
    counts: list[Count] = []
    own: list[Own] = []
    ids: dict[int, list[UUID]] = {}
    for wish in wishes:
        tenant, urgent = wish.tenant, 0
        ids[tenant.pk] = new_ids(len(wish.items))
        for data, actor, task_id in zip(wish.items, wish.actors, ids[tenant.pk], strict=True):
            known = _known(tenant, data, actor)
            if known is None:
                return None
            kind, payload = known
            number, _ = numbers.setdefault(id(kind), (len(numbers), kind))
            urgent += kind.count.urgent
            own.append(Own(number, task_id, *payload))
        try:
            counts.append(limits.count_of(tenant, n=len(wish.items), urgent=urgent, charged=len(wish.items)))
        except TooLarge:
            return None
    kinds = [kind for _, kind in numbers.values()]
    if len(own) > AT_ONCE or len(kinds) > MAX_KINDS:
        return None
    ours = transaction.get_connection()
    stored = transitions.store_known_if_counted(ours, *_together(counts, own, kinds, patience_ms))
    for wish in wishes:
        if wish.tenant.pk in stored:
            limits.note(wish.tenant, *stored[wish.tenant.pk])
    for cell in {wish.tenant.cell for wish in wishes if wish.tenant.pk in stored}:
        tell(cell, (), None, ours)
    return {tenant: ids[tenant] for tenant in stored}


def _together(counts: Sequence[Count], own: Sequence[Own], kinds: Sequence[_Kind],
              patience_ms: int) -> tuple[str, list[bytes | None]]:  # fmt: skip
    """The statement that stores tasks of several kinds, and its parameters."""
    alike = all(kind.columns == kinds[0].columns for kind in kinds)
    columns, usual = (kinds[0].columns, kinds[0].usual) if alike else (TABLES, ((), ()))
    values: list[bytes | None] = [str(value).encode() for count in counts for value in count]
    values += [text.encode() for text in copy_format.arrays_of(own)]
    moments = [_moments(kind) for kind in kinds]
    for table, names in enumerate(columns):
        for kind, now in zip(kinds, moments, strict=True):
            row = {**kind.texts[table], **now}
            values += [row[name] for name in names if name not in OWN]
    statement = store_statement(len(counts), len(kinds), *columns, lone=False, patience_ms=patience_ms, usual=usual)
    return statement, values


def _known(tenant: Tenant, data: Any, actor: str) -> tuple[_Kind, Payload] | None:
    """A task's kind, where it is remembered, and its arguments; None where either is not plain or at fault."""
    try:
        kind: _Kind | None = reference_cache.made_of_it.get((tenant.pk, tenant.cell, actor, shape_of(data)))
        if kind is None or not (kind.holds(tenant) and kind.is_as_stored(tenant)):
            return None
        payload = own_payload(data, "")
        if payload is None or len(payload[0]) + len(payload[1]) > kind.most_bytes:
            return None
        if kind.arguments is not None and (kind.arguments.required or payload != NO_PAYLOAD):
            admission.check_arguments(kind.task.spec.handler, kind.arguments, payload)
    except (InvalidInput, TypeError):  # at fault; or an array or an object among its fields
        return None
    return kind, payload


def _store(tenant: Tenant, kind: _Kind, task_id: UUID, payload: tuple[str, str]) -> None:
    opening, ours = kind.opening, transaction.get_connection()
    opens = opening is not None and not ours.in_atomic_block and openings_missed.may_be_there(opening)
    values = kind.opening_values.copy() if opens else kind.values.copy()
    own = kind.own
    values[own : own + len(OF_TASK)] = map(str.encode, (copy_format.uuid_text(task_id), *payload))
    for column, value in zip(kind.moments, _moments(kind).values(), strict=True):
        values[column] = value
    statement = kind.opening_statement if opens else kind.statement
    stored, place = transitions.store_like_if_counted(ours, statement, values)
    if not stored:
        with prepared_cursor(ours) as cur:
            limits.refuse(cur, tenant, kind.count)
    if opens:
        openings_missed.note(opening, missed=place is None or place.places < 0)
    limits.note(tenant, *stored[tenant.pk])
    tell(tenant.cell, (task_id,), place, ours)


def _moments(kind: _Kind) -> dict[str, bytes | None]:
    """What goes by the moment of submission, in the order of the columns that vary."""
    at = reference_cache.now()
    group, rank = rows.rank_of(kind.count.tenant, kind.task, at, kind.orders)
    latest, promote = [_text(at + after) if after is not None else None for after in kind.after]
    return dict(zip(VARY, (_text(at), b"%d" % group, b"%d" % rank, latest, promote), strict=True))


def _text(moment: datetime) -> bytes:
    return moment.isoformat().encode()


def first(part: Part, data: Any) -> bool:
    """Store the lone task of a plain part, made of ``data``, and remember its kind. False: it is nothing to remember."""
    tenant, task, actor = part.tenant, part.tasks[0], part.actors[0]
    key = _key(tenant, task, data, actor)
    if key is None:
        return False
    kind = _kind(tenant, task, actor, reference_cache.made_of_it.get(key))
    _store(tenant, kind, task.id, task.payload)
    remember(key, kind)
    return True


def kinds_of(part: Part, items: Sequence[Any]) -> list[tuple[Any, _Kind | None]]:
    """What is to be remembered, and by what, once a plain part is stored that is made of ``items``.

    A kind as soon as there are two tasks of it, since to make one is dear; of the first it is that there was one.
    """
    found: list[tuple[Any, _Kind | None]] = []
    for task, actor, data in zip(part.tasks, part.actors, items, strict=True):
        key = _key(part.tenant, task, data, actor)
        if key is None:
            continue
        kind: Any = reference_cache.made_of_it.get(key, UNHEARD_OF)
        if kind is UNHEARD_OF:
            found.append((key, None))
        elif kind is None or not (kind.holds(part.tenant) and kind.is_as_stored(part.tenant)):
            found.append((key, _kind(part.tenant, task, actor, kind)))
    return found


def _key(tenant: Tenant, task: Accepted, data: Any, actor: str) -> Any:
    """What a task's kind is remembered by; None where it is nothing to remember."""
    shape = shape_of(data)
    if shape is None or not lasts(tenant, task) or trace_context.is_on():
        return None
    key = (tenant.pk, tenant.cell, actor, shape)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def lasts(tenant: Tenant, task: Accepted) -> bool:
    """Whether what admission has said of a task holds for one like it that comes a moment later."""
    spec, plan = task.spec, tenant.plan
    timed = (spec.start_at, spec.start_in_ms, spec.expires_at, spec.expires_in_ms) != (None, None, None, None)
    # What a rolled back transaction made is not there; whether a plan's limits by wait or room hold, only a look tells.
    rare = connection.in_atomic_block or plan.refuse_impossible or plan.refuse_late or plan.handler_defaults
    return bool(spec.handler) and not timed and not rare


def admitted(tenant: Tenant, task: Accepted) -> dict[str, Any]:
    """The fields of :class:`Admitted`."""
    return {"until": time.monotonic() + KEPT_S, "plan": {**tenant.plan.__dict__}, "task": task}


def remember(key: Any, kind: Admitted | None) -> None:
    """Remember a kind, of not too many; None: only that there was one of it."""
    known = reference_cache.made_of_it
    if len(known) >= MOST:
        known.clear()
    known[key] = kind


def _kind(tenant: Tenant, task: Accepted, actor: str, before: _Kind | None) -> _Kind:
    """The kind of a task; ``before``: as it was known, which is not written out again where all is alike."""
    at = reference_cache.now()
    orders = active_policies.current(tenant.cell)
    narrow = rows.live_row(tenant.pk, task, at, at, orders)
    both = rows.task_row(tenant.pk, None, task, at, actor), narrow[: len(LIVE_COLUMNS)]
    count = limits.count_of(tenant, n=1, urgent=urgent_of([task]), charged=1)
    row = claimable([narrow])
    opening = row.opens if row is not None else None
    after = tuple(when - at if when is not None else None for when in (narrow.latest_start, narrow.promote_at))
    pairs = [pair for names, values in zip(TABLES, both, strict=True) for pair in zip(names, values, strict=True)]
    alike = (count, opening, after, *(value for name, value in pairs if name not in NOT_ALIKE))
    found: dict[str, Any] = {
        **admitted(tenant, task), "orders": orders, "admitted_by": components.own.id,
        "arguments": reference_cache.arguments(task.spec.handler),
        "most_bytes": tenant.plan.max_payload_bytes // admission.UTF8_MOST,
    }  # fmt: skip
    if before is not None and before.alike == alike:
        return replace(before, **found)
    wide, wide_usual = _split(dict(zip(TASK_COLUMNS, both[0], strict=True)), USUAL_TASK)
    thin, thin_usual = _split(dict(zip(LIVE_COLUMNS, both[1], strict=True)), USUAL_LIVE)
    columns, usual = (wide, thin), (wide_usual, thin_usual)
    texts = tuple(dict(zip(names, _written(row), strict=True)) for names, row in zip(TABLES, both, strict=True))
    shared = [(table, name) for table, names in enumerate(columns) for name in names if name not in OWN]
    values = [*_written(count), *(None for _ in OF_TASK), *(texts[table][name] for table, name in shared)]
    names = [name for _, name in shared]
    own = len(count)
    statement = partial(store_statement, 1, 1, *columns, lone=True, usual=usual)

    return _Kind(
        **found, count=count, opening=opening, columns=columns, usual=usual, texts=(texts[0], texts[1]),
        statement=statement(opens=False), opening_statement=statement(opens=True), values=values,
        opening_values=[*values, *_written([1, *opening, transitions.CLAIM_S])] if opening is not None else [],
        own=own, moments=tuple(own + len(OF_TASK) + names.index(name) for name in VARY), after=after, alike=alike,
    )  # fmt: skip


def _split(row: dict[str, Any], usual: dict[str, Any]) -> tuple[tuple[str, ...], Fixed]:
    """The columns of a row that have not their usual value, and the others as SQL; all where it has anything unusual."""
    if any(row[column] != value for column, value in usual.items()):
        return tuple(row), ()
    rest = tuple(column for column in row if column not in usual)
    return rest, tuple((column, _literal(value)) for column, value in usual.items() if value is not None)


def _literal(value: Any) -> str:
    if isinstance(value, (bool, str)):
        return f"'{value}'"
    return "'{}'" if isinstance(value, list) else str(int(value))  # no other array is usual


def _written(values: Sequence[Any]) -> list[bytes | None]:
    connection.ensure_connection()
    found = Transformer(connection.connection).dump_sequence(values, [PyFormat.TEXT] * len(values))
    return [bytes(value) if value is not None else None for value in found]
