"""From a frozen snapshot to a plan: which tasks start now, on which node, and why each of the others waits.

Pure: the same snapshot, settings and policy always give the same plan, and the simulator runs this very code.
"""

from __future__ import annotations

from typing import Final

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    MILLI,
    Ceilings,
    Decision,
    LineView,
    Plan,
    QueueName,
    Reason,
    Snapshot,
    TaskView,
    TenantView,
    WorkKind,
)
from scheduler_ext.node_account import Node
from scheduler_ext.placement import Ledger
from scheduler_ext.policies.base import CATEGORY_REASONS, LINE_REASONS, TENANT_REASONS, Chooser, SharePolicy

PERIODIC_SOON_S: Final = 60.0
"""A periodic task that must start within this time goes through the delayable queue, any other through
off-peak."""

_QUEUES: Final = {
    Category.URGENT: QueueName.URGENT,
    Category.DELAYABLE: QueueName.DELAYABLE,
    Category.OFFPEAK: QueueName.OFFPEAK,
}


def prioritize(snapshot: Snapshot, conf: SchedulerConf, share: SharePolicy) -> Plan:
    """Decide one round: at most ``conf.round_limit`` claims; every nominated task left has its reason."""
    return _Round(snapshot, conf, share.start(snapshot)).run()


def ceilings(conf: SchedulerConf) -> Ceilings:
    """The utilization below which each category may start work."""
    return Ceilings(
        delayable=conf.delayable_permille, periodic=conf.delayable_permille, offpeak=conf.peak_permille
    )


def queue_of(category: Category, task: TaskView, now: float) -> QueueName:
    """The Redis queue a claim travels through; a periodic task's tolerance chooses it."""
    if category is Category.PERIODIC:
        soon = task.latest_start is not None and task.latest_start - now <= PERIODIC_SOON_S
        return QueueName.DELAYABLE if soon else QueueName.OFFPEAK
    return _QUEUES[category]


class Costs:
    """What a task takes of a slot, by its expected run time."""

    __slots__ = ("_least", "_lookahead_us", "_short_us")

    def __init__(self, conf: SchedulerConf) -> None:
        self._short_us = conf.short_ms * 1000
        self._lookahead_us = conf.lookahead_ms * 1000
        self._least = max(1, -(-MILLI // max(1, conf.max_ahead)))

    def milli(self, task: TaskView) -> int:
        """Thousandths of a process slot a short task takes; 0 for a task that takes a whole slot."""
        expected = task.expected_us
        if expected is None or expected > self._short_us or task.alone or task.kind is not WorkKind.PROCESS:
            return 0
        return max(self._least, -(-MILLI * expected // self._lookahead_us))


class _Use:
    """What one tenant holds, counted on through the round."""

    __slots__ = ("flight_left", "milli_left", "paused")

    def __init__(self, view: TenantView, slots_milli: int) -> None:
        self.paused = view.paused
        self.flight_left: int | None = None
        if view.max_in_flight is not None:
            self.flight_left = view.max_in_flight - view.in_flight
        self.milli_left: int | None = None
        if view.maximum_permille < 1000:
            self.milli_left = view.maximum_permille * slots_milli // 1000 - view.used_slots_milli


class _Round:
    """One round's working state."""

    __slots__ = (
        "_category_stops",
        "_ceilings",
        "_chooser",
        "_conf",
        "_costs",
        "_decided",
        "_decisions",
        "_held",
        "_ledger",
        "_line_stops",
        "_reasons",
        "_snapshot",
        "_tenant_stops",
        "_uses",
    )

    def __init__(self, snapshot: Snapshot, conf: SchedulerConf, chooser: Chooser) -> None:
        self._snapshot = snapshot
        self._conf = conf
        self._chooser = chooser
        self._ledger = Ledger(snapshot.nodes)
        self._costs = Costs(conf)
        limits = ceilings(conf)
        self._ceilings = {
            Category.URGENT: limits.urgent,
            Category.DELAYABLE: limits.delayable,
            Category.PERIODIC: limits.periodic,
            Category.OFFPEAK: MILLI if snapshot.offpeak_open else limits.offpeak,
        }
        self._uses: dict[int, _Use] = {}
        self._held = dict(snapshot.mutex_held)
        self._decisions: list[Decision] = []
        self._decided: set[str] = set()
        self._reasons: dict[str, Reason] = {}
        self._line_stops: dict[int, Reason] = {}
        self._tenant_stops: dict[int, Reason] = {}
        self._category_stops: dict[Category, Reason] = {}

    def run(self) -> Plan:
        """Ask the chooser until nothing is left, nothing has room, or the round is full."""
        chooser, ledger, limit, decisions = (
            self._chooser,
            self._ledger,
            self._conf.round_limit,
            self._decisions,
        )
        before = ledger.utilization_permille()
        wanted = {task.kind for line in self._snapshot.lines for task in line.heads}
        while len(decisions) < limit and ledger.has_room(wanted):
            picked = chooser.pick()
            if picked is None:
                break
            line, task = picked
            milli = self._costs.milli(task)
            use = self._use(line.tenant_id)
            reason = (
                self._refusal(line, task, use, milli or MILLI)
                or chooser.refusal(line, task, milli or MILLI)
                or self._start(line, task, milli)
            )
            if reason is None:
                self._count(task, use, milli or MILLI)
                chooser.accept(line, task, milli or MILLI)
            else:
                self._leave(line, task, reason)
                chooser.reject(line, task, reason)
        full = not ledger.has_room(wanted)
        return Plan(decisions=tuple(decisions), left=self._left(full=full), utilization_permille=before)

    def _use(self, tenant_id: int) -> _Use:
        use = self._uses.get(tenant_id)
        if use is None:
            view = self._snapshot.tenants.get(tenant_id) or TenantView(tenant_id=tenant_id)
            use = self._uses[tenant_id] = _Use(view, self._ledger.slots_milli)
        return use

    def _refusal(self, line: LineView, task: TaskView, use: _Use, milli: int) -> Reason | None:
        """Why the task may not start now, whatever the nodes have room for."""
        if line.paused or use.paused:
            return Reason.PAUSED
        if use.flight_left is not None and use.flight_left <= 0:
            return Reason.TENANT_IN_FLIGHT
        if use.milli_left is not None and use.milli_left < milli:
            return Reason.HARD_SHARE
        if line.category is not Category.URGENT:
            ceiling = self._ceilings[line.category]
            if ceiling < MILLI and not self._ledger.below(ceiling):
                return Reason.PEAK
        key = task.mutex_key
        if key is not None and self._held.get(key, 0) >= task.mutex_limit:
            return Reason.MUTEX
        return None

    def _start(self, line: LineView, task: TaskView, milli: int) -> Reason | None:
        """Place the task and note the claim, or say why no node takes it."""
        ledger = self._ledger
        shape = ledger.shape(line.vector, task.kind, task.handler_id)
        if shape.impossible is not None:
            return shape.impossible
        node: Node | None
        if milli:
            node = ledger.find_short(shape, milli, task.avoid_node)
            if node is None:
                return Reason.NO_SLOT
            ledger.take_short(node, shape, milli)
        else:
            node = ledger.find_exclusive(shape, task.avoid_node)
            if node is None:
                return Reason.NO_SLOT
            ledger.take_exclusive(node, shape)
        self._decided.add(task.task_id)
        self._decisions.append(
            Decision(
                task_id=task.task_id,
                line_id=line.line_id,
                node_id=node.node_id,
                kind=task.kind,
                queue=queue_of(line.category, task, self._snapshot.now),
                fence=task.fence,
                expected_us=task.expected_us or 0,
                exclusive=not milli,
            )
        )
        return None

    def _count(self, task: TaskView, use: _Use, milli: int) -> None:
        if use.flight_left is not None:
            use.flight_left -= 1
        if use.milli_left is not None:
            use.milli_left -= milli
        if task.mutex_key is not None:
            self._held[task.mutex_key] = self._held.get(task.mutex_key, 0) + 1

    def _leave(self, line: LineView, task: TaskView, reason: Reason) -> None:
        self._reasons[task.task_id] = reason
        if reason in LINE_REASONS:
            self._line_stops[line.line_id] = reason
        elif reason in TENANT_REASONS:
            self._tenant_stops[line.tenant_id] = reason
        elif reason in CATEGORY_REASONS:
            self._category_stops[line.category] = reason

    # -- reasons of what the chooser was never asked for -------------------------------------------

    def _left(self, *, full: bool) -> dict[str, Reason]:
        left: dict[str, Reason] = {}
        for line in self._snapshot.lines:
            self._left_of_line(line, left, full=full)
        return left

    def _left_of_line(self, line: LineView, left: dict[str, Reason], *, full: bool) -> None:
        """The first task left is behind other lines or finds no room; the others are behind it."""
        decided, reasons = self._decided, self._reasons
        stop = self._stop_of(line)
        front = Reason.NO_SLOT if full else Reason.SHARE
        impossible: dict[tuple[WorkKind, int | None], Reason | None] = {}
        for task in line.heads:
            task_id = task.task_id
            if task_id in decided:
                continue
            reason = reasons.get(task_id)
            if reason is None and stop is not Reason.PAUSED:
                shape = (task.kind, task.handler_id)
                if shape not in impossible:
                    impossible[shape] = self._ledger.shape(line.vector, *shape).impossible
                reason = impossible[shape]
            if reason is None:
                reason = stop or front
                front = Reason.POSITION
            left[task_id] = reason

    def _stop_of(self, line: LineView) -> Reason | None:
        if line.paused or self._use(line.tenant_id).paused:
            return Reason.PAUSED
        return (
            self._line_stops.get(line.line_id)
            or self._tenant_stops.get(line.tenant_id)
            or self._category_stops.get(line.category)
        )
