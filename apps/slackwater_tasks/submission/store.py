"""The one way in which tasks become rows: those of any number of tenants, each counted against its plan's limits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, Protocol
from uuid import UUID

import psycopg
from django.db import connection, transaction

from scheduler_ext.core.states import Category, EdgeOutcome, TaskState
from slackwater_tasks.ledger import active_policies, copy_format, hints, rows, transitions
from slackwater_tasks.ledger.connection import prepared_cursor
from slackwater_tasks.ledger.rows import GRAPH_COLUMNS, TASK_COLUMNS, Accepted, LiveRow, Own, Place
from slackwater_tasks.ledger.sql.store import Count
from slackwater_tasks.runtime import checkpoints, trace_context
from slackwater_tasks.runtime.trace_context import TraceContext
from slackwater_tasks.submission import limits, webhook_address
from slackwater_tenants.models import Tenant

EDGE_COLUMNS: Final = ("parent_id", "child_id", "outcome")
MAP_COLUMNS: Final = ("task_id", "tenant_id", "given")
MAX_KINDS: Final = 7
AT_ONCE: Final = 256
"""So many tasks, of so many kinds, are written and counted by one statement."""

LOOK_AGAIN_S: Final = 0.05
"""Where there was no opening, none is looked for again for so long."""
MOST_MISSED: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a tenant is to get, all or nothing."""

    tenant: Tenant
    items: Sequence[Mapping[str, Any]]
    """Tasks, as :func:`slackwater_tasks.submission.service.submit_many` takes them."""
    actors: Sequence[str]
    """Who submits each task."""


@dataclass(frozen=True, slots=True)
class NewRows:
    """What is written of a tenant's tasks, made when asked for: a row of each kind, or lines to copy."""

    tenant: Tenant
    count: Count
    kinds: Sequence[Any]
    own: Sequence[tuple[UUID, str, str]]
    """Of each task its id and arguments."""
    wide: Callable[[int], Sequence[Any]] | None
    """The wide row of the task at this place; None where they have one already."""
    narrow: Callable[[int], Sequence[Any]]
    wide_lines: Callable[[], Iterable[str]]
    narrow_lines: Callable[[], Iterable[str]]


class Storable(Protocol):
    """What a tenant gets, all or nothing."""

    @property
    def tenant(self) -> Tenant: ...
    @property
    def ids(self) -> Sequence[UUID]: ...
    @property
    def kinds(self) -> Sequence[Any]:
        """Of each task its kind: two of one kind differ in their ids and arguments alone."""

    @property
    def has_more(self) -> bool:
        """Whether anything is written beside the two rows of each task."""

    def rows(self, at: datetime) -> NewRows:
        """What is written of them, submitted ``at`` a time."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Tasks of any kind, each with what admission has found."""

    tenant: Tenant
    tasks: Sequence[Accepted]
    actors: Sequence[str]
    """Who submits each task."""
    edges: Sequence[tuple[UUID, UUID]] = ()
    """(parent, child) among the tasks."""
    workflow_id: UUID | None = None
    trace: TraceContext | None = None

    @cached_property
    def ids(self) -> list[UUID]:
        return [task.id for task in self.tasks]

    @cached_property
    def has_more(self) -> bool:
        return bool(
            self.edges
            or any(task.checkpoints or task.spec.webhook or task.spec.map for task in self.tasks)
            or trace_context.wanted(self.tasks, self.trace)
        )

    @cached_property
    def kinds(self) -> list[Any]:
        # One specification means one tier, line, handler and cap: what is left of a row is the same.
        return [(*_alike(task), task.spec.name, actor) for task, actor in zip(self.tasks, self.actors, strict=True)]

    def rows(self, at: datetime) -> NewRows:
        tenant, tasks, n = self.tenant, self.tasks, len(self.tasks)
        chosen = active_policies.current(tenant.cell)

        def wide(item: tuple[Accepted, str]) -> Sequence[Any]:
            return rows.task_row(tenant.pk, self.workflow_id, item[0], at, item[1])

        def narrow(task: Accepted) -> Sequence[Any]:
            return rows.live_row(tenant.pk, task, at, at, chosen)

        items = list(zip(tasks, self.actors, strict=True))
        return NewRows(
            tenant, limits.count_of(tenant, n=n, urgent=urgent_of(tasks), charged=n),
            self.kinds, [(task.id, *task.payload) for task in tasks],
            lambda place: wide(items[place]), lambda place: narrow(tasks[place]),
            partial(copy_format.alike, items, lambda item: (_shape(item[0]), item[1]), wide, _WIDE_VARIES),
            partial(copy_format.alike, tasks, _alike, narrow, _NARROW_VARIES),
        )  # fmt: skip


def are_plain(parts: Sequence[Storable]) -> bool:
    """Whether one statement writes them, which needs no transaction around it."""
    if sum(len(part.ids) for part in parts) > AT_ONCE or any(part.has_more for part in parts):
        return False
    return sum(len(set(part.kinds)) for part in parts) <= MAX_KINDS


def urgent_of(tasks: Iterable[Accepted]) -> int:
    return sum(1 for task in tasks if task.spec.category is Category.URGENT)


def store(parts: Sequence[Storable], at: datetime, *, patience_ms: int | None = None) -> set[int]:
    """Write and count tasks submitted at ``at``; returns the tenants whose limits allowed theirs.

    The refusal of a single part is raised (see :func:`slackwater_tasks.submission.limits.refuse`). Needs a transaction
    of the caller's, unless they :func:`are_plain`. ``patience_ms``: of several plain parts, those of tenants whose
    counters somebody else holds are waited for so long, and then nothing is stored (``LockNotAvailable``); with 0 they are
    left out.
    """
    stored, place = _write([part.rows(at) for part in parts], patience_ms=patience_ms)
    for part in parts:
        if isinstance(part, Part) and part.tenant.pk in stored:
            _write_rest(part)
    if place is not None:
        (part,) = parts
        tell(part.tenant.cell, part.ids, place)
        return stored
    for cell in {part.tenant.cell for part in parts if part.tenant.pk in stored}:
        tell(cell, (), None)
    return stored


def tell(cell: str, ids: Sequence[UUID], place: Place | None, ours: Any = None) -> None:
    """Tell after the commit of new tasks: the node that has them where there was an opening, else the dispatcher.

    ``ours``: the connection, where the caller has looked it up.
    """
    ours = ours or transaction.get_connection()
    if place is None:
        ours.on_commit(partial(hints.wake_dispatcher, cell))
    else:
        ours.on_commit(partial(_hand_over, place, ids, cell), robust=True)  # stored, whatever comes of that


def _hand_over(place: Place, ids: Sequence[UUID], cell: str) -> None:
    """Give the node what it has claimed; what cannot be given to it is decided by a round."""
    claims = [(str(task_id), 1) for task_id in ids[: len(ids) + min(0, place.places)]]
    if hints.hand_over(place, claims, cell):
        return
    with prepared_cursor() as cur:
        transitions.hand_back(
            psycopg.Cursor(cur.connection), place.node_id, claims, state=TaskState.QUEUED, actor="submission",
            reason="handed back unbegun: its node could not be told",
        )  # fmt: skip


def store_again(tenant: Tenant, live: Sequence[LiveRow], *, urgent: int) -> None:
    """Write and count the live rows of tasks that run again, like those of new ones."""
    count = limits.count_of(tenant, n=len(live), urgent=urgent, charged=len(live))
    own = [(row.task_id, "null", "null") for row in live]
    lines = partial(map, copy_format.line, live)
    _write([NewRows(tenant, count, range(len(live)), own, None, live.__getitem__, tuple, lines)])


_WIDE_VARIES: Final[Sequence[tuple[int, Callable[[tuple[Accepted, str]], str]]]] = (
    (TASK_COLUMNS.index("id"), lambda item: copy_format.uuid_text(item[0].id)),
    (TASK_COLUMNS.index("args"), lambda item: copy_format.json_text(item[0].payload[0])),
    (TASK_COLUMNS.index("kwargs"), lambda item: copy_format.json_text(item[0].payload[1])),
    (TASK_COLUMNS.index("name"), lambda item: copy_format.text(item[0].spec.name)),
)
_NARROW_VARIES: Final[Sequence[tuple[int, Callable[[Accepted], str]]]] = (
    (GRAPH_COLUMNS.index("task_id"), lambda task: copy_format.uuid_text(task.id)),
)


def _shape(task: Accepted) -> int:
    """The same for tasks whose wide rows differ in their ids, arguments and names alone."""
    return id(task.spec.shape or task.spec)


def _alike(task: Accepted) -> Any:
    """The columns in which the live rows of two tasks differ, beside their ids."""
    known = (_shape(task), bool(task.spec.depends_on), task.pending, task.has_children)
    return known if task.weight is None else (*known, task.weight, task.inherited, task.line_id)


def _write(parts: Sequence[NewRows], *, patience_ms: int | None = None) -> tuple[set[int], Place | None]:
    """Write and count rows; returns their tenants, and where they are claimed if there was an opening for them.

    The refusal of a single part is raised.
    """
    counts = [part.count for part in parts]
    few = _of_few_kinds(parts) if sum(count.n for count in counts) <= AT_ONCE else None
    place = None
    with prepared_cursor() as cur:
        if few is not None:
            # What runs again waits for a round.
            row = claimable(few[1]) if few[0] and not connection.in_atomic_block else None
            claim_s = transitions.CLAIM_S if row is not None and openings_missed.may_be_there(row.opens) else 0.0
            stored, place = transitions.store_if_counted(cur, counts, *few, claim_s=claim_s, patience_ms=patience_ms)
            if claim_s and row is not None:
                openings_missed.note(row.opens, missed=place is None or place.places < 0)
        elif len(parts) == 1:
            # The counters last: nobody waits for them while the rows are written.
            transitions.store(cur, parts[0].wide_lines(), parts[0].narrow_lines())
            stored = transitions.count_if_allowed(cur, counts)
        else:
            stored = transitions.count_if_allowed(cur, counts)
            left = [part for part in parts if part.tenant.pk in stored]
            wide_lines = (line for part in left for line in part.wide_lines())
            transitions.store(cur, wide_lines, (line for part in left for line in part.narrow_lines()))
        if len(parts) == 1 and not stored:
            limits.refuse(cur, parts[0].tenant, counts[0])
    for part in parts:
        if part.tenant.pk in stored:
            limits.note(part.tenant, *stored[part.tenant.pk])
    return set(stored), place


def claimable(narrow: Sequence[Sequence[Any]]) -> LiveRow | None:
    """The row of tasks that may be claimed as they are stored: alike, ready, and nothing left that only a round decides.

    In a transaction they may not: its opening would be neither free nor taken as long as that lasts.
    """
    if len(narrow) > 1:
        return None
    row = LiveRow._make(narrow[0])
    plain = row.mutex_key is None and row.rate_key is None and row.handler_id is not None and row.work_us is None
    return row if plain and row.state == TaskState.READY else None


class _Missed:
    """For what this process lately found no opening: to look for one costs a third of a small submission."""

    def __init__(self) -> None:
        self._at: dict[Any, float] = {}

    def may_be_there(self, key: Any) -> bool:
        return time.monotonic() - self._at.get(key, -LOOK_AGAIN_S) >= LOOK_AGAIN_S

    def note(self, key: Any, *, missed: bool) -> None:
        if not missed:
            self._at.pop(key, None)
            return
        if len(self._at) >= MOST_MISSED:
            self._at.clear()
        self._at[key] = time.monotonic()

    def forget(self) -> None:
        self._at.clear()


openings_missed = _Missed()


def _of_few_kinds(parts: Sequence[NewRows]) -> tuple[list[Sequence[Any]], list[Sequence[Any]], list[Own]] | None:
    """A wide and a narrow row of each kind, and what each task has of its own; None where there are many kinds."""
    wide: list[Sequence[Any]] = []
    narrow: list[Sequence[Any]] = []
    tasks: list[Own] = []
    for part in parts:
        known: dict[Any, int] = {}
        for place, (kind, own) in enumerate(zip(part.kinds, part.own, strict=True)):
            number = known.get(kind)
            if number is None:
                if len(narrow) == MAX_KINDS:
                    return None
                number = known[kind] = len(narrow)
                narrow.append(part.narrow(place))
                if part.wide is not None:
                    wide.append(part.wide(place))
            tasks.append(Own(number, *own))
    return wide, narrow, tasks


def _write_rest(part: Part) -> None:
    """Write what some tasks have beside their two rows."""
    if not part.has_more:
        return
    tenant_id, tasks = part.tenant.pk, part.tasks
    with connection.cursor() as cur:
        webhook_address.write(cur, tenant_id, tasks)
        trace_context.write(cur, tenant_id, tasks, part.trace, part.workflow_id)
        resumable = [task for task in tasks if task.checkpoints]
        if resumable:
            chosen = active_policies.current(part.tenant.cell)
            levels = [
                (task.id, rows.first_level(chosen.order_of(tenant_id, task.line_id), task.line_id))
                for task in resumable
            ]
            checkpoints.declare(cur, tenant_id, levels)
        maps = [(task.id, tenant_id, json.dumps(task.spec.map)) for task in tasks if task.spec.map]
        copy_format.insert(cur, "slackwater_tasks_mapnode", MAP_COLUMNS, maps)
        edges = [(parent, child, int(EdgeOutcome.PENDING)) for parent, child in part.edges]
        copy_format.insert(cur, "slackwater_tasks_dependency", EDGE_COLUMNS, edges)
