"""The gate that every start passes, in a round and in the simulator: limits, ceilings, mutex keys, and room on a node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from scheduler_ext.conf import LOOKAHEAD_US, SHORT_US, SchedulerConf
from scheduler_ext.core.ceiling_windows import open_ceilings
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    MILLI,
    PROCESS,
    LineView,
    Reason,
    Slots,
    Snapshot,
    TaskView,
    TenantView,
    WorkKind,
    add_slots,
)
from scheduler_ext.round.node_account import Node, Shape
from scheduler_ext.round.placement import Ledger

_URGENT: Final = Category.URGENT


def ceilings(conf: SchedulerConf, now: float) -> dict[Category, int]:
    """The utilization, in thousandths, below which each category may start work at a moment (Unix seconds)."""
    limits = {
        Category.URGENT: MILLI,
        Category.DELAYABLE: conf.delayable_permille,
        Category.PERIODIC: conf.delayable_permille,
        Category.OFFPEAK: conf.peak_permille,
    }
    for name, permille in open_ceilings(conf.ceiling_windows, now).items():
        limits[Category[name.upper()]] = permille
    return limits


def expected_end(task: TaskView, now: float) -> float | None:
    """When a task that starts now has surely ended, as far as others rely on it.

    Nine in ten of its runs have ended by then; with nothing learnt, its cap ends it.
    """
    span_us = task.long_us or task.expected_us
    return now + span_us / 1e6 if span_us else None


@cache
def share_milli(expected_us: int) -> int:
    """The thousandths of a slot that a short task takes while it is in flight."""
    return max(1, -(-MILLI * expected_us // LOOKAHEAD_US))


def short_milli(task: TaskView) -> int:
    """Thousandths of a process slot a short task takes; 0 for a task that takes a whole slot."""
    expected = task.expected_us
    if expected is None or expected > SHORT_US or task.kind is not PROCESS:
        return 0
    # The start of a task with a rate is to be known exactly, and not to wait for others of a batch.
    return 0 if task.rates else share_milli(expected)


class Use:
    """What one tenant holds, counted on through the round."""

    __slots__ = ("flight_left", "milli_left", "paused")

    def __init__(self, view: TenantView, slots_milli: Slots) -> None:
        self.paused = view.paused
        self.flight_left: int | None = None
        if view.max_in_flight is not None:
            self.flight_left = view.max_in_flight - view.in_flight
        self.milli_left: dict[WorkKind, int] | None = None
        """Thousandths of slots of each kind up to its plan's maximum; of what the cell has, one slot at least."""
        if view.maximum_permille < 1000:
            part = view.maximum_permille
            least = MILLI if part else 0  # else a quarter of two slots would hold nothing, for ever
            most = {kind: max(part * milli // 1000, min(milli, least)) for kind, milli in slots_milli.items()}
            self.milli_left = dict(add_slots(most, view.used_slots_milli, -1))


class Gate:
    """Working state of one round, or of a simulated run."""

    __slots__ = (
        "_ceilings", "_drained_in", "_first", "_opens", "_patience_s", "_pending", "_rates", "_reserve", "_shapes", "_shared",
        "_tenants", "_uses", "held", "ledger", "now",
    )  # fmt: skip

    def __init__(self, snapshot: Snapshot, conf: SchedulerConf, *, reserve: bool = True, short: bool = True) -> None:
        """``reserve``: keep a node for each of the first tasks that do not fit; ``short``: slots are shared."""
        self._reserve, self._shared = reserve, short
        self.ledger = Ledger(snapshot.nodes, short=short)
        self._shapes: dict[tuple[int, WorkKind, int | None], Shape] = {}
        self.now = snapshot.now
        self.held = dict(snapshot.mutex_held)
        """Live holders by mutex key."""
        self._rates = dict(snapshot.rates_left)
        self._patience_s = conf.reserve_after_s
        self._first: TaskView | None = None
        """The account that room is kept for under any order policy."""
        self._pending: Shape | None = None
        """What that task asks for, until its room is reserved."""
        self._drained_in = 2 * LOOKAHEAD_US / 1e6
        self._tenants = snapshot.tenants
        self._uses: dict[int, Use] = {}
        self.set_ceilings(conf, snapshot.now)

    def set_ceilings(self, conf: SchedulerConf, now: float) -> None:
        """Use the ceilings that hold at a moment (Unix seconds)."""
        self._opens: dict[tuple[int, int], bool] = {}
        self._ceilings = ceilings(conf, now)

    def starts_left(self, limit: int) -> int:
        """How many starts a rate limit still allows."""
        return self._rates.get(limit, 1)

    def give_start(self, limit: int) -> None:
        """Give a start back to its rate limit: its time frame has passed."""
        self._rates[limit] += 1

    def shape(self, line: LineView, kind: WorkKind, handler: int | None) -> Shape:
        """The shape of a line's tasks of a kind and handler."""
        key = (line.line_id, kind, handler)
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = self.ledger.shape(line.vector, kind, handler, line.labels)
        return known

    def use(self, tenant_id: int) -> Use:
        use = self._uses.get(tenant_id)
        if use is None:
            view = self._tenants.get(tenant_id) or TenantView(tenant_id=tenant_id)
            use = self._uses[tenant_id] = Use(view, self.ledger.slots_milli)
        return use

    def refusal(self, line: LineView, task: TaskView, milli: int, *, ended: int = 0) -> Reason | None:
        """Why the task may not start now, whatever room the nodes have; with ``ended``, once as many like it have."""
        use = self._uses.get(line.tenant_id) or self.use(line.tenant_id)
        if line.paused or use.paused:
            return Reason.PAUSED
        if use.flight_left is not None and use.flight_left <= 0:
            return Reason.TENANT_IN_FLIGHT
        if use.milli_left is not None and use.milli_left.get(task.kind, 0) < (milli or MILLI):
            return Reason.HARD_SHARE
        if line.category is not _URGENT:
            ceiling = self._ceilings[line.category]
            if ceiling < MILLI and not (self._would_be_below(line, task, ceiling, ended) if ended else
                                        self.ledger.below(ceiling, task.kind)):  # fmt: skip
                return Reason.PEAK
        key = task.mutex_key
        if key is not None and self.held.get(key, 0) >= task.mutex_limit:
            return Reason.MUTEX
        if task.rates:
            for limit in task.rates:
                if self._rates.get(limit, 1) <= 0:
                    return Reason.RATE
        return None

    def _would_be_below(self, line: LineView, task: TaskView, ceiling: int, ended: int) -> bool:
        shape = self.shape(line, task.kind, task.handler_id)
        return self.ledger.below_after(ceiling, shape, ended)

    def place(self, line: LineView, task: TaskView, milli: int) -> Node | Reason:
        """Take room on a node and count the start, or say why no node has room.

        The first tasks that find no room get a reservation.
        """
        ledger = self.ledger
        if self._pending is not None:
            self._reserve_first(task)
        shape = self.shape(line, task.kind, task.handler_id)
        if shape.impossible is not None:
            return shape.impossible
        if milli:
            node = ledger.find_short(shape, milli, task.avoid_node, self.now + self._drained_in)
            if node is not None:
                ledger.take_short(node, shape, milli)
        else:
            node = self._place_exclusive(shape, task)
        if node is None:
            return Reason.RESERVED if ledger.kept else Reason.NO_SLOT
        self.count(line, task, milli or MILLI)
        return node

    def more_alike(self, line: LineView, task: TaskView, milli: int) -> tuple[Node | None, int]:
        """Where the next tasks like the one just placed go, and how many before anything but counts changes.

        ``milli``: of a short task, else 0. Their tenants may start fewer: :meth:`may_start`.
        """
        if task.mutex_key is not None or task.avoid_node is not None or self._pending is not None or task.rates:
            return None, 0
        ledger, shape = self.ledger, self.shape(line, task.kind, task.handler_id)
        if milli:
            node = ledger.find_short(shape, milli, ends_at=self.now + self._drained_in)
        else:
            node = ledger.find_exclusive(shape, ends_at=self._ends_at(task))
        if node is None:
            return None, 0
        most = ledger.more_short(node, shape, milli) if milli else ledger.more_exclusive(node, shape)
        ceiling = self._ceilings[line.category]
        if line.category is not _URGENT and ceiling < MILLI and most > 0:
            most = min(most, ledger.below_for(ceiling, shape, milli))
        return node, most

    def may_start(self, tenant_id: int, kind: WorkKind, milli: int, most: int) -> int:
        """How many tasks of a kind that take ``milli`` each a tenant's own limits let start, ``most`` at the most."""
        use = self.use(tenant_id)
        if use.paused:
            return 0
        if use.flight_left is not None:
            most = min(most, use.flight_left)
        if use.milli_left is not None:
            most = min(most, use.milli_left.get(kind, 0) // milli)
        return most

    def count_more(self, line: LineView, task: TaskView, node: Node, milli: int, tasks: Mapping[int, int]) -> None:
        """Take room on the node for so many tasks of each tenant that are like one of that line, and count them."""
        count = sum(tasks.values())
        if milli:
            self.ledger.take_more_short(node, milli, count)
        else:
            shape = self.shape(line, task.kind, task.handler_id)
            self.ledger.take_exclusive(node, shape, self._ends_at(task), count)
        for tenant_id, count in tasks.items():
            use = self._uses[tenant_id]
            if use.flight_left is not None:
                use.flight_left -= count
            if use.milli_left is not None:
                use.milli_left[task.kind] -= (milli or MILLI) * count

    def has_waited(self, task: TaskView) -> bool:
        """Whether a task that takes a whole slot has waited long enough for a node to be kept for it."""
        return self.now - task.submitted_at >= self._patience_s and not (self._shared and short_milli(task))

    def finds_room(self, line: LineView, task: TaskView) -> bool:
        """Whether a node has room for a whole slot; skips the search where no node could ever have it."""
        shape = self.shape(line, task.kind, task.handler_id)
        return shape.impossible is not None or self.ledger.find_exclusive(shape) is not None

    def keep_room(self, line: LineView, task: TaskView) -> None:
        """Keep a node for this task before any that came after it starts."""
        shape = self.shape(line, task.kind, task.handler_id)
        self._first, self._pending = task, shape

    @property
    def keeps_room(self) -> bool:
        """Whether room is kept for a task under any order policy."""
        return self._first is not None

    def keep_no_room(self) -> None:
        """Keep one node free, for no task in particular."""
        self._first = self._pending = None

    def _reserve_first(self, task: TaskView) -> None:
        """Stop holding a node back: the task in turn came no earlier than the one the room is kept for."""
        first, shape = self._first, self._pending
        if first is None or shape is None or task.submitted_at < first.submitted_at:
            return
        self._pending = None
        self.ledger.reserve(shape, self.now, self.now - first.submitted_at, self._patience_s, first.task_id)

    def would_open(self, line: LineView, ended: int) -> bool:
        """Whether the line's category would be below its ceiling if so many exclusive tasks like its own had ended.

        Only where all tasks are alike: what is in use then says all.
        """
        key = (line.category, self.ledger.used_milli[line.kind] - MILLI * ended)
        known = self._opens.get(key)
        if known is None:
            ceiling = self._ceilings[line.category]
            shape = self.shape(line, line.kind, None)
            known = self._opens[key] = ceiling >= MILLI or self.ledger.below_after(ceiling, shape, ended)
        return known

    def count(self, line: LineView, task: TaskView, milli: int) -> None:
        """Count a start against its tenant's limits and its mutex key."""
        use = self._uses[line.tenant_id]
        if use.flight_left is not None:
            use.flight_left -= 1
        if use.milli_left is not None:
            use.milli_left[task.kind] -= milli
        if task.mutex_key is not None:
            self.held[task.mutex_key] = self.held.get(task.mutex_key, 0) + 1
        if task.rates:
            for limit in task.rates:
                if limit in self._rates:
                    self._rates[limit] -= 1

    def uncount(self, line: LineView, task: TaskView, milli: int, ends: int = 1) -> None:
        """Count an end; ``ends`` -1 takes that back."""
        use = self._uses[line.tenant_id]
        if use.flight_left is not None:
            use.flight_left += ends
        if use.milli_left is not None:
            use.milli_left[task.kind] += milli * ends
        if task.mutex_key is not None:
            self.held[task.mutex_key] = self.held.get(task.mutex_key, 0) - ends

    def _ends_at(self, task: TaskView) -> float | None:
        return expected_end(task, self.now) if self._reserve else None

    def _place_exclusive(self, shape: Shape, task: TaskView) -> Node | None:
        ledger = self.ledger
        ends_at = self._ends_at(task)
        node = ledger.find_exclusive(shape, task.avoid_node, ends_at)
        if node is not None:
            ledger.take_exclusive(node, shape, ends_at)
        elif self._reserve and task is not self._first and not ledger.kept and ledger.has_room((task.kind,)):
            ledger.reserve(shape, self.now, self.now - task.submitted_at, self._patience_s, task.task_id)
        return node
