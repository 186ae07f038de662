"""Reservations: room kept for a task that does not fit yet, so that smaller ones never starve it (EASY backfill).

The first tasks a round has to leave for want of room each get the node on which they can start soonest. Until then
others may use that node only if they are expected to be done by that time, or fit beside the one that waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler_ext.core.resources import add, fits, peak, scale, subtract, zero
from scheduler_ext.core.types import MILLI, Vector, WorkKind
from scheduler_ext.round.node_account import Node, Reservation, Shape

MAX_RESERVATIONS: Final = 4
"""Reservations of one round."""
MAX_NODES: Final = 256
"""Nodes considered for one reservation."""


def choose(nodes: Iterable[Node], shape: Shape, now: float) -> tuple[Node, Reservation] | None:
    """Return the node on which a task of ``shape`` can start soonest, if any could take it; of equals the smaller."""
    best: tuple[tuple[float, int, int], Node, Reservation] | None = None
    looked = 0
    for node in nodes:
        if node.reserved is not None or not offers(node, shape):
            continue
        looked += 1
        if looked > MAX_NODES:
            break
        reservation = _reservation(node, shape, now)
        at = reservation.at if reservation.at is not None else float("inf")
        key = (at, node.size, node.index)
        if best is None or key < best[0]:
            best = (key, node, reservation)
    return (best[1], best[2]) if best else None


def allows_exclusive(node: Node, shape: Shape, ends_at: float | None) -> bool:
    """Whether a task that holds a slot until ``ends_at`` would not delay the one the room is kept for."""
    kept = node.reserved
    if kept is None or kept.is_before(ends_at):
        return True
    return (shape.kind is not kept.kind or kept.extra_slots > 0) and fits(shape.vector, kept.extra)


def use_extra(node: Node, shape: Shape, ends_at: float | None) -> None:
    """Note that a task now takes part of what is left beside the reservation."""
    kept = node.reserved
    if kept is None or kept.is_before(ends_at):
        return
    kept.extra = subtract(kept.extra, shape.vector)
    if shape.kind is kept.kind:
        kept.extra_slots -= 1


def allows_short(node: Node, milli: int, vector: Vector, ends_at: float | None) -> bool:
    """The same for a short task, which must leave the slot and the vector of the reserved task."""
    kept = node.reserved
    if kept is None or kept.is_before(ends_at):
        return True
    children = node.children - (1 if kept.kind is WorkKind.PROCESS else 0)
    if node.batch_milli + milli > children * MILLI:
        return False
    largest = peak(node.batch_peak, vector)
    held = add(node.exclusive_used, scale(largest, min(children, node.batch_count + 1)))
    # While longer tasks still stand in its way, short ones are gone before it could start.
    blocked = not fits(add(node.exclusive_used, kept.vector), node.capacity)
    return blocked or fits(add(held, kept.vector), node.capacity)


def offers(node: Node, shape: Shape) -> bool:
    """Whether the node could take a task of this shape if it were empty."""
    return (
        shape.kind in node.slots
        and (shape.handler is None or shape.handler in node.handlers)
        and (shape.among is None or node.index in shape.among)
        and fits(shape.vector, node.capacity)
    )


def _reservation(node: Node, shape: Shape, now: float) -> Reservation:
    """When enough of the node's tasks will have ended; short ones count as over."""
    free = subtract(node.capacity, node.exclusive_used)
    slots = node.slots[shape.kind] - node.counts[shape.kind]
    at = now
    for end in sorted(node.ends):
        if slots >= 1 and fits(shape.vector, free):
            break
        at = max(now, end[0])
        free = add(free, end[2])
        slots += 1 if end[1] is shape.kind else 0
    if slots >= 1 and fits(shape.vector, free):
        return Reservation(shape, at, subtract(free, shape.vector), slots - 1)
    extra = subtract(node.free, shape.vector) if fits(shape.vector, node.free) else zero()
    return Reservation(shape, None, extra, 0)
