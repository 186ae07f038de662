"""One node's account in a round (what it holds, what is free), and the shape of what a task asks for."""

from __future__ import annotations

from scheduler_ext.core.resources import add, filled, fits, peak, scale, subtract, zero
from scheduler_ext.core.types import MILLI, PROCESS, NodeView, Reason, Vector, WorkKind

Place = tuple[int, int]
"""Entry in the order of exclusive room: (free room in the largest dimension, index)."""
BatchPlace = tuple[int, int, int]
"""Entry in the order of short tasks: (how full, size, index)."""


class Node:
    """One node's account, changed as the round goes on."""

    __slots__ = (
        "batch_count", "batch_milli", "batch_peak", "batch_place", "batch_stays", "capacity", "children", "counts", "ends",
        "exclusive_used", "free", "handlers", "held", "index", "labels", "node_id", "place", "reserved", "size", "slots",
    )  # fmt: skip

    def __init__(self, view: NodeView, index: int) -> None:
        self.index = index
        self.node_id = view.node_id
        self.capacity = filled(view.capacity)
        self.handlers = view.handlers
        self.labels = view.labels
        self.slots = {kind: count for kind, count in view.slots.items() if count > 0}
        self.counts = {kind: view.exclusive_count.get(kind, 0) for kind in self.slots}
        self.children = 0
        """Process slots not held by exclusive tasks: as many batches can run at once."""
        self.count_children()
        self.exclusive_used = filled(view.exclusive_used)
        self.batch_peak = filled(view.batch_peak)
        self.batch_milli = view.batch_milli
        self.batch_count = view.batch_count
        self.ends: list[tuple[float, WorkKind, Vector]] = [(end.at, end.kind, end.vector) for end in view.ends]
        self.reserved: Reservation | None = None
        """Room kept for a task that does not fit yet."""
        self.size = 0
        self.free: Vector = zero()
        self.held: Vector = zero()
        """What its tasks in flight hold; ``free`` is the rest of its capacity."""
        self.place: dict[WorkKind, Place] = {}
        """Its entry in the order of each kind it has room for."""
        self.batch_place: BatchPlace | None = None
        self.batch_stays = -1
        """With no more thousandths of slots in its batches it stays where it is in both orders."""
        self.weigh()

    def weigh(self) -> None:
        """Recompute ``held`` and ``free``."""
        held = self.exclusive_used
        if self.batch_count:
            held = add(held, scale(self.batch_peak, min(self.children, self.batch_count)))
        self.held = held
        self.free = subtract(self.capacity, held)

    def count_children(self) -> None:
        """Recompute ``children``."""
        self.children = max(0, self.slots.get(PROCESS, 0) - self.counts.get(PROCESS, 0))

    def room(self, kind: WorkKind) -> int:
        """Slots of ``kind`` an exclusive task could take; short tasks already claimed keep theirs."""
        room = self.slots.get(kind, 0) - self.counts.get(kind, 0)
        return room - -(-self.batch_milli // MILLI) if kind is PROCESS else room

    def takes_exclusive(self, kind: WorkKind, vector: Vector) -> bool:
        """Whether the vector fits beside what is in flight; a free slot is already known of."""
        if not self.batch_count:
            return fits(vector, self.free)
        children = self.children - (1 if kind is PROCESS else 0)
        held = add(self.exclusive_used, scale(self.batch_peak, min(children, self.batch_count)))
        return fits(add(held, vector), self.capacity)

    def takes_short(self, milli: int, vector: Vector) -> bool:
        """Whether one more short task finds its thousandths of a slot and room for its vector."""
        children = self.children
        if self.batch_milli + milli > children * MILLI:
            return False
        if self.batch_count >= children and (vector == self.batch_peak or fits(vector, self.batch_peak)):
            return True
        largest = peak(self.batch_peak, vector)
        held = add(self.exclusive_used, scale(largest, min(children, self.batch_count + 1)))
        return fits(held, self.capacity)


class Shape:
    """All tasks that ask for the same: which nodes could take them, and which searches are known to fail."""

    __slots__ = (
        "among", "choices", "floor", "full_at", "full_short", "handler", "impossible", "kind", "needs", "vector",
    )  # fmt: skip

    def __init__(
        self, vector: Vector, kind: WorkKind, handler: int | None, floor: int, among: frozenset[int] | None = None
    ) -> None:
        self.vector = vector
        self.kind = kind
        self.handler = handler
        self.floor = floor
        self.among = among
        """Places of the nodes that have the required labels; ``None``: no label is required."""
        self.choices: tuple[Shape, ...] = ()
        """The same on fewer nodes: first those with most of the preferred labels."""
        self.needs = tuple([(dimension, need) for dimension, need in enumerate(vector) if need])
        """The dimensions in which it asks for anything."""
        self.impossible: Reason | None = None
        self.full_at = -1
        """The ledger's count of releases when no node had room for an exclusive task of this shape."""
        self.full_short = (-1, 0)
        """The same for short tasks, with the smallest number of thousandths that found no room."""


class Reservation:
    """A node's room kept for one task."""

    __slots__ = ("at", "extra", "extra_slots", "kind", "task_id", "vector")

    def __init__(self, shape: Shape, at: float | None, extra: Vector, extra_slots: int) -> None:
        self.kind = shape.kind
        self.vector = shape.vector
        self.at = at
        """When the task can start; ``None`` while nobody knows when the node's tasks end."""
        self.extra = extra
        """What is left beside it then."""
        self.extra_slots = extra_slots
        self.task_id = ""
        """The account that the room is kept for."""

    def is_before(self, ends_at: float | None) -> bool:
        """Whether a task that ends at ``ends_at`` is over when the reserved one can start."""
        return ends_at is not None and self.at is not None and ends_at <= self.at
