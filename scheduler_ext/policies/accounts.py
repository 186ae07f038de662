"""Accounts: exact counts of what each tenant, pool and queue holds and may hold.

A *share* is a whole number: the held part of the cell times :attr:`Measure.whole`. The whole is a common
multiple of the capacities, so that equal shares are equal numbers whatever resource they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import Any, Final, NamedTuple

from scheduler_ext.core.resources import SIZE, total, zero
from scheduler_ext.core.types import CLIENT, MILLI, PROCESS, Slots, Snapshot, Vector, WorkKind

MAX_WHOLE: Final = 1 << 240
"""The largest common multiple used. Beyond it comparisons would be slow, so shares are rounded down."""
ROUNDED_WHOLE: Final = 1 << 80
LAST: Final = ((1 << 32, 0), 0, 0.0, 0)
"""The place of an account in which nothing waits: behind all others."""
FINE: Final = 1 << 32
"""Ratios of shares are kept in parts of one in this many."""


class Measure:
    """How shares of the cell are counted: by the dominant kind of slots alone, or of slots and resources."""

    __slots__ = ("asked", "counted", "parts", "slot_parts", "vectors", "whole")

    def __init__(self, snapshot: Snapshot, *, vectors: bool) -> None:
        slots = {kind: MILLI * sum(node.slots.get(kind, 0) for node in snapshot.nodes) for kind in WorkKind}
        capacity = total(node.capacity for node in snapshot.nodes)
        wholes = [*slots.values(), *capacity] if vectors else [*slots.values()]
        whole = lcm(*[number for number in wholes if number > 0])
        self.vectors = vectors
        self.whole = whole if whole <= MAX_WHOLE else ROUNDED_WHOLE
        self.slot_parts = {kind: self.whole // number if number else 0 for kind, number in slots.items()}
        self.parts = tuple(self.whole // number if number else 0 for number in capacity)
        self.counted = tuple((dimension, part) for dimension, part in enumerate(self.parts) if part)
        """The dimensions of which the cell has anything."""
        asks = list(map(any, zip(*{line.vector for line in snapshot.lines}, strict=True))) or [False] * SIZE
        self.asked = tuple(each for each in self.counted if asks[each[0]])
        """Those of which any line asks for something: of the others nobody will hold more."""

    def share(self, slots: Slots, vector: Sequence[int]) -> int:
        """The share of the cell that so much is."""
        best = 0
        for kind, milli in slots.items():
            best = max(best, milli * self.slot_parts[kind])
        if self.vectors:
            for held, part in zip(vector, self.parts, strict=True):
                if held and held * part > best:
                    best = held * part
        return best

    def permille(self, permille: int) -> int:
        return self.whole * permille // 1000


class Account:
    """One tenant, pool or queue in all its categories: what it holds, and what it may."""

    __slots__ = (
        "counts", "floor", "kept", "kept_below", "key", "limit", "measure", "name", "parent", "past", "place",
        "served", "served_at", "share", "slots", "tie", "turns", "vector", "version", "waits", "weight",
    )  # fmt: skip

    def __init__(self, name: str, parent: Account | None, measure: Measure) -> None:
        self.name = name
        self.parent = parent
        self.measure = measure
        self.slots: dict[WorkKind, int] = {}
        """Thousandths of slots held, for each kind it has ever held."""
        self.vector = [0] * SIZE
        self.share = 0
        self.past = 0
        """The share added for past use, if the policy remembers it."""
        self.served = self.served_at = 0.0
        """What it was served lately, and until when that is counted; both on the scale of the tree's growth."""
        self.tie = 0.0
        """Breaks ties between equal keys, less first: what each was served lately for its weight, less what it holds.
        """
        self.turns = 1
        """Its weight: how much of the cell it is due beside the others."""
        self.waits = 0
        """The number of tasks that wait below it; counted at the top only."""
        self.weight = 1
        """What the policy multiplies by instead of dividing by its weight: the common multiple of all weights over
        this one.
        """
        self.floor = 0
        """Its guaranteed share: below it, it is served before those that have theirs."""
        self.limit: int | None = None
        """The hard maximum of its share."""
        self.kept = 0
        """How much of its guaranteed share stays free for it while it is idle."""
        self.counts = False
        self.kept_below = 0
        """How much all accounts below it still keep free in that way."""
        self.version = 0
        self.place: Any = LAST
        """For an account with others below it: the place of the first task that waited there when the round began."""
        self.key: Any = 0
        """Its place among its siblings, smaller first; written by the tree after each change."""

    def charge(self, slots: Slots, vector: Vector) -> None:
        """Add what is held here and in every account above.

        The top keeps an account only where something below it keeps a share though it is idle.
        """
        account = self
        while account.parent is not None:
            account.hold_all(slots, vector)
            account = account.parent
        if account.counts:
            account.hold_all(slots, vector)

    def hold_all(self, slots: Slots, vector: Vector) -> None:
        """Add what is held, in slots of any kind, to this account alone."""
        self.hold(PROCESS, slots.get(PROCESS, 0), vector)
        for kind, milli in slots.items():
            if milli and kind is not PROCESS:
                self.hold(kind, milli, zero())

    def hold(self, kind: WorkKind, milli: int, vector: Vector) -> None:
        """Add what is held, in slots of one kind, to this account alone; negative for what is given back."""
        slots, before, measure = self.slots, self.share, self.measure
        taken = slots[kind] = slots.get(kind, 0) + milli
        best = taken * measure.slot_parts[kind]
        if len(slots) > 1:
            parts = measure.slot_parts
            for other, taken in slots.items():
                if (share := taken * parts[other]) > best:
                    best = share
        if measure.vectors:
            held = self.vector
            vector = vector or zero()
            for dimension, part in measure.counted:
                amount = held[dimension]
                if need := vector[dimension]:
                    amount = held[dimension] = amount + need
                if (share := amount * part) > best:
                    best = share
        self.share = best
        self.version += 1
        if self.kept:
            self._keeps_less(before)

    def take(self, kind: WorkKind, milli: int, vector: Vector) -> None:
        """The same for a task that starts: of what it does not ask for the share stays, so it is not looked at."""
        slots, best, measure = self.slots, self.share, self.measure
        before, taken = best, slots.get(kind, 0) + milli
        slots[kind] = taken
        # Compared, not passed to max(): it runs for every decision.
        if (share := taken * measure.slot_parts[kind]) > best:
            best = share
        if measure.vectors:
            held = self.vector
            for dimension, part in measure.asked:
                if need := vector[dimension]:
                    amount = held[dimension] = held[dimension] + need
                    if (share := amount * part) > best:
                        best = share
        self.share = best
        self.version += 1
        if self.kept:
            self._keeps_less(before)

    def _keeps_less(self, before: int) -> None:
        """Tell the account above how much is still kept free for it, now that it holds another share than before."""
        if self.parent is not None:
            self.parent.kept_below += self._keeps(self.share) - self._keeps(before)

    def keep(self, kept: int) -> None:
        """Keep so much of the guaranteed share free while it is idle."""
        self.kept = kept
        if self.parent is not None:
            self.parent.counts = True
            self.parent.kept_below += self._keeps(self.share)

    def _keeps(self, share: int) -> int:
        """How much is kept free for it while it holds ``share``."""
        return self.kept - share if share < self.kept else 0

    def allows(self, kind: WorkKind, milli: int, vector: Vector) -> bool:
        """Whether with this task it and every account above stay within their maximum and leave free what others keep.

        A client's maximum is that of a plan: however small the cell, it lets one task in.
        """
        account: Account | None = self
        used_up = 0
        while account is not None:
            limit, kept = account.limit, account.kept_below - used_up
            if kept and limit is None:
                limit = account.measure.whole
            used_up = 0
            if limit is not None or account.kept:
                then = account.share_with(kind, milli, vector)
                if limit is not None and then + kept > limit and (account.share or not account.name.startswith(CLIENT)):
                    return False
                used_up = account._keeps(account.share) - account._keeps(then)
            account = account.parent
        return True

    def share_with(self, kind: WorkKind, milli: int, vector: Vector) -> int:
        """Its share with so much more held (or less, for negative amounts)."""
        measure, best = self.measure, (self.slots.get(kind, 0) + milli) * self.measure.slot_parts[kind]
        if len(self.slots) > 1:
            for other, taken in self.slots.items():
                if other is not kind:
                    best = max(best, taken * measure.slot_parts[other])
        if measure.vectors:
            held = self.vector
            for dimension, part in measure.counted:
                best = max(best, (held[dimension] + vector[dimension]) * part)
        return best


class Stand(NamedTuple):
    """How an account stands before anything is decided."""

    share: float
    """The part of the cell that it holds."""
    weight: int
    waits: bool
    """Whether a task that is not paused waits in it itself, not only in an account below."""
