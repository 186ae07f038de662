"""Turns rows of the ledger into the frozen values a round decides on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from scheduler_ext.core.labels import Labels, labels_of, with_names
from scheduler_ext.core.resources import add, least, scale, subtract, total, zero
from scheduler_ext.core.run_times import RunTime, RunTimes
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    MILLI,
    NO_SLOTS,
    PER_CHILD,
    NodeView,
    PoolView,
    RunEnd,
    Slots,
    TenantView,
    Vector,
    WorkKind,
    add_slots,
)
from scheduler_ext.round.claims_ahead import places
from slackwater_tasks.ledger.active_policies import Chosen

Sort = tuple[Any, ...]
Work = tuple[WorkKind, int | None, int]
"""The slot that a task holds, its expected run time, and the one that nine in ten of its runs do not exceed."""
Turn = tuple[int, str, bool, int, Sort, int | None, int, str]
"""Of a line: its tenant and how past use names it, whether it has no guaranteed share, its weight; sort, pool, tier, cell."""


@dataclass(slots=True)
class Flight:
    """What is in flight on one node."""

    exclusive_used: Vector = field(default_factory=zero)
    batch_peak: Vector = field(default_factory=zero)
    exclusive_count: dict[WorkKind, int] = field(default_factory=dict)
    batch_milli: int = 0
    batch_count: int = 0
    passing: int = 0
    ahead: int = 0
    least: Vector = ()

    def hold(self, kind: WorkKind, vector: Vector, count: int, *, over_soon: bool) -> None:
        """Count exclusive tasks; each takes ``vector``."""
        self.exclusive_used = add(self.exclusive_used, scale(vector, count))
        self.exclusive_count[kind] = self.exclusive_count.get(kind, 0) + count
        if kind is WorkKind.PROCESS:
            self.least = least(self.least, vector) if self.least else vector
            self.passing += count if over_soon else 0

    def set_apart(self, slots: int) -> None:
        """Count by itself what is claimed ahead: beyond the node's process slots, and followed by tasks over soon.

        None of it takes less than the least of all, so no more than that is counted as free for it.
        """
        ahead = self.exclusive_count.get(WorkKind.PROCESS, 0) - slots
        if 0 < ahead < self.passing:
            self.ahead, self.passing = ahead, self.passing - ahead
            self.exclusive_count[WorkKind.PROCESS] = slots
            self.exclusive_used = subtract(self.exclusive_used, scale(self.least, ahead))


@dataclass(frozen=True, slots=True)
class LineInfo:
    """The part of a line that stays the same."""

    tenant_id: int
    category: Category
    tier_id: int
    paused: bool
    cell: str
    vector: Vector
    pool_id: int | None = None
    labels: Labels | None = None
    workflow: str = ""
    weight: int = 1
    sort: Sort = ()
    """What its tasks have in common with those that they take turns with: category, tier, labels and pool."""
    alike: str = ""
    """The client whose tenants share one account with it; empty: it stands in a pool, or has no such client."""


@dataclass(slots=True)
class Reference:
    """What a round needs beside the hot rows, read anew every second."""

    read_at: float = float("-inf")
    changed: bool = False
    """Whether anything that rounds decide by is new since the last of them."""
    lines: dict[int, LineInfo] = field(default_factory=dict)
    tenants: dict[int, tuple[bool, int, int, int, int]] = field(default_factory=dict)
    plans: dict[int, str] = field(default_factory=dict)
    """The name of each tenant's plan."""
    idle: dict[int, TenantView] = field(default_factory=dict)
    """Each tenant as a round sees it while it holds nothing."""
    paused: frozenset[int] = frozenset()
    """The handlers that exist."""
    handlers: dict[int, tuple[str, WorkKind, bool]] = field(default_factory=dict)
    run_times: RunTimes = field(default_factory=RunTimes)
    unknown: set[str] = field(default_factory=set)
    """Handlers without a learnt run time that a round has met."""
    learnt_at: float = float("-inf")
    chosen: Chosen | None = None
    split: set[int] = field(default_factory=set)
    """The tenants that have workflows with a share of their own."""
    _turns: dict[int, Turn] | None = None
    _line_rows: dict[int, Any] = field(default_factory=dict)

    def turns(self) -> dict[int, Turn]:
        """The lines that may start work whenever it is their tenant's turn; made anew once lines or tenants have changed."""
        if self._turns is None:
            views = ((line_id, info, self.idle.get(info.tenant_id)) for line_id, info in self.lines.items())
            self._turns = {
                line_id: (info.tenant_id, f"tenant {info.tenant_id}", not tenant.guaranteed_permille, tenant.weight or 1,
                          info.sort, info.pool_id, info.tier_id, info.cell)
                for line_id, info, tenant in views
                if tenant is not None and tenant.max_in_flight != 0 and info.tenant_id not in self.split
                and not (info.alike or info.paused or tenant.paused)
            }  # fmt: skip
        return self._turns

    def learn_lines(self, rows: Iterable[Any]) -> None:
        """Rows of ``LINES``: nearly all of them say what they said before."""
        lines, before = self.lines, self._line_rows
        self._line_rows = {row[0]: row for row in rows}
        if before != self._line_rows:
            self._turns = None
        self.lines = {number: lines[number] if before.get(number) == row else line_info(row)
                      for number, row in self._line_rows.items()}  # fmt: skip
        self.split = {info.tenant_id for info in self.lines.values() if info.workflow}

    def learn_tenants(self, rows: Sequence[Any]) -> None:
        """Rows of ``TENANTS``."""
        before, self.tenants = self.tenants, {row[0]: row[1:6] for row in rows}
        self.plans = {row[0]: row[6] for row in rows}
        if before != self.tenants:
            self._turns = None
            self.idle = {number: tenant_view(number, row, None) for number, row in self.tenants.items()}

    def kind_of(self, kind: int, handler_id: int | None, by_itself: bool) -> WorkKind:
        """The slot that a task holds, from the numbers of its row."""
        if kind == 2 or handler_id is None:
            return WorkKind.SCRIPT
        known = self.handlers.get(handler_id)
        work = known[1] if known else WorkKind.PROCESS
        # Alone: in a child's main thread, beside nobody.
        return WorkKind.PROCESS if by_itself and work in PER_CHILD else work

    def learnt_of(
        self, tenant_id: int, kind: int, handler_id: int | None, by_itself: bool
    ) -> tuple[WorkKind, RunTime | None]:
        """The slot a task holds, and what its handler is expected to take."""
        work = self.kind_of(kind, handler_id, by_itself)
        known = None if work is WorkKind.SCRIPT else self.handlers.get(handler_id or 0)
        return work, self.run_times.of(tenant_id, known[:1]) if known else None

    def work_of(self, tenant_id: int, handler_id: int | None) -> Work | None:
        """What a tenant's tasks of a handler are; ``None`` while it is paused."""
        if handler_id is None:
            return WorkKind.SCRIPT, None, 0
        name, kind, paused = self.handlers[handler_id]
        if paused:
            return None
        learnt = self.run_times.of(tenant_id, (name,))
        if learnt is None:
            self.unknown.add(name)
        return kind, *(learnt or (None, 0))


def line_info(row: Any) -> LineInfo:
    """A row of ``LINES``."""
    _, tenant, category, tier, paused, cell, *vector, pool, client, require, prefer, workflow, weight = row
    labels = labels_of(require, prefer)
    return LineInfo(
        tenant, Category(category), tier, paused, cell, tuple(vector), pool, labels, workflow, weight or 1,
        sort=(category, tier, labels, pool), alike=client if pool is None else "",
    )  # fmt: skip


def read_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of ``NODES`` whose JSON came as text, as over Django's own connection."""
    return tuple(json.loads(v) if isinstance(v, str) and n == 3 else v for n, v in enumerate(row))


def submitted_s(task_id: str) -> float:
    """When a task was submitted, in Unix seconds: its id (UUIDv7) begins with that time in milliseconds."""
    return int(task_id[:8] + task_id[9:13], 16) / 1000


def tenant_view(tenant_id: int, row: tuple[Any, ...], used: tuple[Vector, int, Slots] | None) -> TenantView:
    """A tenant with its plan's numbers and what it holds: (resources, tasks, thousandths of slots)."""
    paused, weight, max_in_flight, guaranteed, maximum = row
    vector, tasks, slots = used or (zero(), 0, NO_SLOTS)
    return TenantView(
        tenant_id=tenant_id, weight=weight, in_flight=tasks, max_in_flight=max_in_flight,
        guaranteed_permille=guaranteed, maximum_permille=maximum, used=vector, used_slots_milli=slots, paused=paused,
    )  # fmt: skip


def pool_view(members: dict[int, tuple[Slots, Vector]]) -> PoolView:
    """A leaf pool, from what each tenant holds in it."""
    return PoolView(
        used=total(vector for _, vector in members.values()),
        used_slots_milli=reduce(add_slots, (slots for slots, _ in members.values())),
        tenants=members,
    )


def set_apart(flights: dict[int, Flight], rows: Iterable[Sequence[Any]]) -> dict[int, Flight]:
    """What is in flight; of each node of ``rows`` (``NODES``) what is claimed ahead is counted by itself."""
    for row in rows:
        if (flight := flights.get(row[0])) is not None:
            flight.set_apart(row[3].get(WorkKind.PROCESS.value, 0))
    return flights


def node_view(row: tuple[Any, ...], flight: Flight, ends: tuple[RunEnd, ...] = ()) -> NodeView:
    """A node with what is in flight on it, and the expected ends of that, if they were asked for."""
    node_id, name, capacity, slots, handlers, labels = row
    return NodeView(
        node_id=node_id, name=name, capacity=tuple(capacity),
        slots={WorkKind(kind): count for kind, count in slots.items()}, handlers=frozenset(handlers),
        labels=with_names(labels), exclusive_used=flight.exclusive_used, batch_peak=flight.batch_peak,
        exclusive_count=flight.exclusive_count, batch_milli=flight.batch_milli, batch_count=flight.batch_count,
        ends=ends, passing=flight.passing, ahead=flight.ahead, least=flight.least,
    )  # fmt: skip


def room_of(node: NodeView, kinds: Collection[WorkKind] = tuple(WorkKind)) -> int:
    """The most tasks of these kinds the node could take."""
    counts = node.exclusive_count
    room = sum(max(0, slots - counts.get(kind, 0)) for kind, slots in node.slots.items()
               if kind in kinds and kind is not WorkKind.PROCESS)  # fmt: skip
    if WorkKind.PROCESS not in kinds:
        return room
    children = max(0, node.slots.get(WorkKind.PROCESS, 0) - counts.get(WorkKind.PROCESS, 0))
    return room + max(0, children * MILLI - node.batch_milli) + MILLI * max(0, places(node.passing, node.ahead))
