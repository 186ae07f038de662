"""Equal turns: inside each category the tenant that holds least for its weight is served next.

A tenant below its guaranteed share comes first, then the categories in their order. What a tenant holds is
counted in thousandths of slots over all its categories, so marking work urgent, or handing in more of it,
wins nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from scheduler_ext.core.types import (
    MILLI,
    LineView,
    NodeView,
    Reason,
    Snapshot,
    TaskView,
    TenantView,
    WorkKind,
)
from scheduler_ext.policies.base import CATEGORY_REASONS, LINE_REASONS, TENANT_REASONS, Chooser

WEIGHT_SCALE = 1 << 32
"""Use divided by weight is kept as a whole number of 2^-32 thousandths of a slot: exact enough, and never
drifting."""
AFTER_GUARANTEED = 100
"""Added to the category of tenants that have their guaranteed share."""

_Tie = tuple[int, float, int]
_Entry = tuple[int, int, _Tie, "_Seat"]


class _Tenant:
    """What one tenant holds, with what was accepted in this round."""

    __slots__ = ("floor", "open", "used", "weight")

    def __init__(self, view: TenantView, slots_milli: int) -> None:
        self.used = view.used_slots_milli
        self.weight = max(1, view.weight)
        self.floor = view.guaranteed_permille * slots_milli // 1000
        self.open = True


class _Cursor:
    """A line and the place reached in it."""

    __slots__ = ("at", "heads", "view")

    def __init__(self, view: LineView) -> None:
        self.view = view
        self.heads = view.heads
        self.at = 0


class _Seat:
    """One tenant's lines in one category; it stands once in the heap of seats."""

    __slots__ = ("category", "lines", "number", "seen", "tenant")

    def __init__(self, tenant: _Tenant, category: int, number: int) -> None:
        self.tenant = tenant
        self.category = category
        self.number = number
        self.lines: list[tuple[tuple[int, int], _Tie, _Cursor]] = []
        self.seen = 0

    def add(self, line: LineView) -> None:
        head = line.heads[0]
        cursor = _Cursor(line)
        self.lines.append((head.rank, (-head.priority, head.submitted_at, line.line_id), cursor))

    def entry(self) -> _Entry:
        """Its present place in the heap."""
        tenant = self.tenant
        self.seen = tenant.used
        stage = self.category if tenant.used < tenant.floor else self.category + AFTER_GUARANTEED
        return (stage, tenant.used * WEIGHT_SCALE // tenant.weight, self.lines[0][1], self)

    def __lt__(self, other: _Seat) -> bool:
        return self.number < other.number

    def advance(self) -> None:
        """Go on to the next head of the line just served."""
        cursor = self.lines[0][2]
        cursor.at += 1
        if cursor.at < len(cursor.heads):
            head = cursor.heads[cursor.at]
            tie = (-head.priority, head.submitted_at, cursor.view.line_id)
            heapreplace(self.lines, (head.rank, tie, cursor))
        else:
            heappop(self.lines)


class EqualChooser:
    """One round of equal turns; each answer costs the logarithm of the number of tenants."""

    __slots__ = ("_closed", "_heap")

    def __init__(self, snapshot: Snapshot) -> None:
        slots_milli = slots_milli_of(snapshot.nodes)
        tenants: dict[int, _Tenant] = {}
        seats: dict[tuple[int, int], _Seat] = {}
        for line in snapshot.lines:
            if not line.heads:
                continue
            tenant = tenants.get(line.tenant_id)
            if tenant is None:
                view = snapshot.tenants.get(line.tenant_id) or TenantView(tenant_id=line.tenant_id)
                tenant = tenants[line.tenant_id] = _Tenant(view, slots_milli)
            place = (line.tenant_id, int(line.category))
            seat = seats.get(place)
            if seat is None:
                seat = seats[place] = _Seat(tenant, place[1], len(seats))
            seat.add(line)
        for seat in seats.values():
            heapify(seat.lines)
        self._heap: list[_Entry] = [seat.entry() for seat in seats.values()]
        heapify(self._heap)
        self._closed: set[int] = set()

    def pick(self) -> tuple[LineView, TaskView] | None:
        """The next task to try, or ``None`` when nothing is left."""
        heap = self._heap
        while heap:
            seat = heap[0][3]
            if not seat.lines or not seat.tenant.open or seat.category in self._closed:
                heappop(heap)
            elif seat.seen != seat.tenant.used:
                heapreplace(heap, seat.entry())
            else:
                cursor = seat.lines[0][2]
                return cursor.view, cursor.heads[cursor.at]
        return None

    def accept(self, line: LineView, task: TaskView, milli: int = MILLI) -> None:
        """The task just picked was placed; it takes ``milli`` thousandths of a slot."""
        del line, task  # always the one last picked
        seat = self._heap[0][3]
        seat.tenant.used += milli
        self._advance(seat)

    def reject(self, line: LineView, task: TaskView, reason: Reason) -> None:
        """The task just picked stays, and with it what the reason covers."""
        del task
        seat = self._heap[0][3]
        if reason in TENANT_REASONS:
            seat.tenant.open = False
        elif reason in CATEGORY_REASONS:
            self._closed.add(int(line.category))
        elif reason in LINE_REASONS:
            heappop(seat.lines)
            self._replace(seat)
        else:
            self._advance(seat)

    def _advance(self, seat: _Seat) -> None:
        seat.advance()
        self._replace(seat)

    def _replace(self, seat: _Seat) -> None:
        if seat.lines:
            heapreplace(self._heap, seat.entry())
        else:
            heappop(self._heap)


def slots_milli_of(nodes: tuple[NodeView, ...]) -> int:
    """Thousandths of process and script slots of all nodes: what guaranteed shares are shares of."""
    slots = 0
    for node in nodes:
        slots += node.slots.get(WorkKind.PROCESS, 0) + node.slots.get(WorkKind.SCRIPT, 0)
    return slots * MILLI


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualShare:
    """Equal turns by weight between tenants inside each category."""

    name: str = "equal"

    def start(self, snapshot: Snapshot) -> Chooser:
        """Begin a round over ``snapshot``."""
        return EqualChooser(snapshot)
