"""Makes a plan from a frozen snapshot: which tasks start now, on which node, and why each of the others waits.

Pure: the same snapshot, settings and policy always give the same plan, and the simulator runs this very code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    MILLI,
    NOBODY,
    PROCESS,
    Decision,
    Kept,
    LineView,
    Plan,
    QueueName,
    Reason,
    Snapshot,
    TaskView,
    WorkKind,
)
from scheduler_ext.policies.base import CATEGORY_REASONS, LINE_REASONS, TENANT_REASONS, Chooser, SharePolicy
from scheduler_ext.round.claims_ahead import CROWDED, Following, may_follow
from scheduler_ext.round.gate import Gate, short_milli
from scheduler_ext.round.longest_waiting import make_room
from scheduler_ext.round.node_account import Node

PERIODIC_SOON_S: Final = 60.0
"""A periodic task with less time than this until its latest start goes through the delayable queue, others through
off-peak.
"""

BACKFILL_DEPTH: Final = 64
"""Beyond so many tasks that may not take kept room no others are looked for that may; a simulated run looks at no more."""
TURNS_S: Final = 3600.0
"""How long a round remembers which accounts room was kept for."""

_QUEUES: Final = {
    Category.URGENT: QueueName.URGENT,
    Category.DELAYABLE: QueueName.DELAYABLE,
    Category.OFFPEAK: QueueName.OFFPEAK,
}


def prioritize(snapshot: Snapshot, conf: SchedulerConf, share: SharePolicy) -> Plan:
    """Decide one round: at most ``conf.round_limit`` claims, and a reason for every nominated task left."""
    return _Round(snapshot, conf, share.start(snapshot)).run()


def kept_for(snapshot: Snapshot, conf: SchedulerConf, share: SharePolicy) -> frozenset[str]:
    """The tasks that a round on this snapshot keeps room for, because they are too large to start yet."""
    deciding = _Round(snapshot, conf, share.start(snapshot))
    deciding.run()
    return deciding.gate.ledger.kept_for()


def queue_of(category: Category, task: TaskView, now: float) -> QueueName:
    """The Redis queue a claim travels through; a periodic task's tolerance chooses it."""
    if category is Category.PERIODIC:
        soon = task.latest_start is not None and task.latest_start - now <= PERIODIC_SOON_S
        return QueueName.DELAYABLE if soon else QueueName.OFFPEAK
    return _QUEUES[category]


def _submitted(task: TaskView) -> float:
    return task.submitted_at


def _ends_with(task: TaskView, other: TaskView) -> bool:
    """Whether two tasks that hold whole slots hold the same, as long as each other, and count against no rate."""
    return (
        task.kind is other.kind and task.expected_us == other.expected_us and task.long_us == other.long_us
        and not task.rates
    )  # fmt: skip


class _Round:
    """One round's working state."""

    __slots__ = (
        "_category_stops", "_chooser", "_conf", "_decisions", "_line_stops", "_reasons",
        "_snapshot", "_tenant_stops", "gate",
    )  # fmt: skip

    def __init__(self, snapshot: Snapshot, conf: SchedulerConf, chooser: Chooser) -> None:
        self._snapshot = snapshot
        self._conf = conf
        self._chooser = chooser
        self.gate = Gate(snapshot, conf)
        self._decisions: list[Decision] = []
        self._reasons: dict[str, Reason] = {}
        self._line_stops: dict[int, Reason] = {}
        self._tenant_stops: dict[int, Reason] = {}
        self._category_stops: dict[tuple[Category, WorkKind], Reason] = {}

    def run(self) -> Plan:
        """Ask the chooser until nothing is left, no room is left, or the round is full."""
        gate, chooser, ledger = self.gate, self._chooser, self.gate.ledger
        limit, decisions = self._conf.round_limit, self._decisions
        before = ledger.utilization_permille()
        wanted = {task.kind for line in self._snapshot.lines for task in line.heads}
        kept = self._make_room(wanted)
        last, rooms = None, ledger.rooms(wanted)
        while len(decisions) < limit and any(rooms):
            picked = chooser.pick()
            if picked is None:
                break
            line, task = picked
            milli = short_milli(task)
            taken = milli or MILLI
            reason = gate.refusal(line, task, milli)
            if reason is not None:
                self._stop(line, task.kind, reason)
            found = reason or chooser.refusal(line, task, taken) or gate.place(line, task, milli)
            if isinstance(found, Node):
                self._note(line, task, found, milli)
                chooser.accept(line, task, taken)
                shape = (milli, task.kind, task.handler_id, line.category, line.vector, line.labels)
                if shape == last and (milli or task.kind is not PROCESS):  # else the next is hardly like it either
                    self._start_alike(line, task, milli)
                last = shape
            else:
                self._reasons[task.task_id] = found
                chooser.reject(line, task, found)
        full = not ledger.has_room(wanted)
        if full and (kept.barred or not kept.task_id):
            self._claim_ahead()
        left = self._left(full=full)
        more = not full and (not left or self._refused_alone() or self._hidden())
        return Plan(
            decisions=tuple(decisions), left=left, utilization_permille=before, more=more,
            wants_ends=ledger.wants_ends, kept=kept, excludes=gate.held != self._snapshot.mutex_held,
        )  # fmt: skip

    def _make_room(self, wanted: set[WorkKind]) -> Kept:
        """Keep room for what has waited longest without fitting; not needed where all tasks ask for the same."""
        snapshot, before = self._snapshot, self._snapshot.kept
        vectors = {line.vector for line in snapshot.lines}
        if (len(vectors) < 2 and before is NOBODY) or not self.gate.ledger.has_room(wanted):
            return before
        least = tuple(map(min, zip(*vectors, strict=True)))
        large = [line for line in snapshot.lines if line.heads and line.vector != least]
        kept = None
        if before.task_id:
            waiting = ((line, task) for line in snapshot.lines for task in line.heads)
            kept = next((each for each in waiting if each[1].task_id == before.task_id), None)
        turns = dict(before.turns)
        oldest = ((line, min(line.heads, key=_submitted)) for line in large)
        found = make_room(self.gate, self._chooser, kept, turns, oldest, self._start_whole)
        if found is None and not turns:
            return NOBODY
        recent = {name: at for name, at in turns.items() if snapshot.now - at < TURNS_S}
        if found is None:
            return Kept(turns=recent)
        line, task = found
        return Kept(task_id=task.task_id, line_id=line.line_id, barred=not self.gate.keeps_room, turns=recent)

    def _claim_ahead(self) -> None:
        """Claim for full nodes what may follow tasks that are over soon; nothing is passed that would go before it."""
        gate, chooser, decisions = self.gate, self._chooser, self._decisions
        if self._snapshot.openings or gate.ledger.keeps_room or not CROWDED.isdisjoint(self._reasons.values()):
            return
        vectors = {line.line_id: line.vector for line in self._snapshot.lines}
        placed = [(decision, vectors[decision.line_id]) for decision in decisions if decision.exclusive]
        following = Following(self._snapshot.nodes, gate.ledger.nodes, placed)
        while following and len(decisions) < self._conf.round_limit and (picked := chooser.pick()) is not None:
            line, task = picked
            if not may_follow(task) or gate.refusal(line, task, 0, ended=1) or chooser.refusal(line, task, MILLI):
                return
            shape = gate.shape(line, task.kind, task.handler_id)
            node = following.take(shape, task.avoid_node)
            if node is None:
                return
            gate.count(line, task, MILLI)
            self._note(line, task, node, 0)
            chooser.accept(line, task, MILLI)

    def _refused_alone(self) -> bool:
        """Whether a refusal concerns only its task, so that one behind it may still start.

        Where room is kept, many refused are enough: to look further at each start was most of what rounds did meanwhile.
        """
        common = LINE_REASONS | TENANT_REASONS | CATEGORY_REASONS | {Reason.NO_SLOT}
        alone = [reason for reason in self._reasons.values() if reason not in common]
        return 0 < len(alone) <= BACKFILL_DEPTH or any(reason is not Reason.RESERVED for reason in alone)

    def _hidden(self) -> bool:
        """Whether refused tenants may stand before others that this round does not look at."""
        return bool(self._snapshot.behind) and not TENANT_REASONS.isdisjoint(self._reasons.values())

    def _start_alike(self, line: LineView, task: TaskView, milli: int) -> None:
        """Start those like the task just started that go to one node, as one by one they would.

        It is short, or does not run in a process's slot.
        """
        if line.category not in _QUEUES:
            return
        node, most = self.gate.more_alike(line, task, milli)
        most = min(most, self._conf.round_limit - len(self._decisions))
        if node is None or most <= 0:
            return
        behind = self._chooser.following(line)
        if behind:
            most = self.gate.may_start(line.tenant_id, task.kind, milli or MILLI, most)
            self._start_behind(line, task, behind[:most], node, milli)
        else:
            self._start_in_turns(line, task, most, node, milli)

    def _start_behind(self, line: LineView, task: TaskView, behind: Sequence[TaskView], node: Node, milli: int) -> None:
        """Where nobody else waits: the next of the line."""
        decisions, queue = self._decisions, _QUEUES[line.category]
        before, kind, handler, expected = len(decisions), task.kind, task.handler_id, task.expected_us
        long, exclusive = task.long_us, not milli
        for each in behind:
            if (
                each.kind is not kind or each.handler_id != handler or each.expected_us != expected or each.alone
                or each.long_us != long or each.rates or each.mutex_key is not None or each.avoid_node is not None
            ):  # fmt: skip
                break
            decisions.append(Decision(each.task_id, line.line_id, node.node_id, kind, queue, each.fence, expected or 0,
                                      exclusive=exclusive, handler_id=handler))  # fmt: skip
        if started := len(decisions) - before:
            self.gate.count_more(line, task, node, milli, {line.tenant_id: started})
            self._chooser.accept_next(line, task, milli or MILLI, started)

    def _start_in_turns(self, line: LineView, task: TaskView, most: int, node: Node, milli: int) -> None:
        """Where several lines take turns: whichever is next, as long as it is like that and its tenant may."""
        gate, chooser, first = self.gate, self._chooser, (line, task)
        category, vector, labels, handler, kind = line.category, line.vector, line.labels, task.handler_id, task.kind
        left: dict[int, int] = {}
        started: dict[int, int] = {}
        taken = milli or MILLI
        while most > 0 and (picked := chooser.pick()) is not None:
            line, task = picked
            tenant = line.tenant_id
            if tenant not in left:
                left[tenant], started[tenant] = gate.may_start(tenant, kind, taken, most), 0
            if (
                started[tenant] >= left[tenant] or line.category is not category or line.paused
                or task.handler_id != handler or short_milli(task) != milli or line.vector != vector
                or line.labels != labels or task.mutex_key is not None or task.avoid_node is not None
                or not (milli or _ends_with(task, first[1])) or chooser.refusal(line, task, taken) is not None
            ):  # fmt: skip
                break
            self._note(line, task, node, milli)
            chooser.accept(line, task, taken)
            started[tenant] += 1
            most -= 1
        if any(started.values()):
            gate.count_more(*first, node, milli, started)

    def _note(self, line: LineView, task: TaskView, node: Node, milli: int) -> None:
        """Note a claim."""
        queue = _QUEUES.get(line.category) or queue_of(line.category, task, self._snapshot.now)
        self._decisions.append(
            Decision(task.task_id, line.line_id, node.node_id, task.kind, queue, task.fence, task.expected_us or 0,
                     not milli, task.handler_id, task.alone)
        )  # fmt: skip

    def _start_whole(self, line: LineView, task: TaskView) -> None:
        node = self.gate.place(line, task, 0)
        assert isinstance(node, Node)
        self._note(line, task, node, 0)

    def _stop(self, line: LineView, kind: WorkKind, reason: Reason) -> None:
        """Remember which other tasks the reason covers."""
        if reason in LINE_REASONS:
            self._line_stops[line.line_id] = reason
        elif reason in TENANT_REASONS:
            self._tenant_stops[line.tenant_id] = reason
        elif reason in CATEGORY_REASONS:
            self._category_stops[line.category, kind] = reason

    # -- reasons of what the chooser was never asked for -------------------------------------------

    def _left(self, *, full: bool) -> dict[str, Reason]:
        left: dict[str, Reason] = {}
        decided = {decision.task_id for decision in self._decisions}
        for line in self._snapshot.lines:
            self._left_of_line(line, decided, left, full=full)
        return left

    def _left_of_line(self, line: LineView, decided: set[str], left: dict[str, Reason], *, full: bool) -> None:
        """Give the first task left its reason (behind other lines, or no room); the others are behind it."""
        reasons, position = self._reasons, Reason.POSITION
        stop = self._stop_of(line)
        front = Reason.NO_SLOT if full else Reason.SHARE
        known: dict[tuple[WorkKind, int | None], tuple[Reason | None, Reason | None]] = {}
        kind: WorkKind | None = None
        handler: int | None = None
        impossible = stopped = None
        for task in line.heads:
            task_id = task.task_id
            if task_id in decided:
                continue
            if task.kind is not kind or task.handler_id != handler:  # seldom: neighbours are alike
                kind, handler = task.kind, task.handler_id
                if (kind, handler) not in known:
                    known[kind, handler] = self._reasons_of_all(line, kind, handler, stop)
                impossible, stopped = known[kind, handler]
            reason = reasons.get(task_id) or impossible
            if reason is None:
                reason = stopped or front
                front = position
            left[task_id] = reason

    def _reasons_of_all(
        self, line: LineView, kind: WorkKind, handler: int | None, stop: Reason | None
    ) -> tuple[Reason | None, Reason | None]:
        """Why no node could ever run a line's tasks of a kind and handler, or what stops all of them now."""
        if stop is Reason.PAUSED:
            return None, stop
        return self.gate.shape(line, kind, handler).impossible, (
            stop or self._category_stops.get((line.category, kind))
        )

    def _stop_of(self, line: LineView) -> Reason | None:
        if line.paused or self.gate.use(line.tenant_id).paused:
            return Reason.PAUSED
        return self._line_stops.get(line.line_id) or self._tenant_stops.get(line.tenant_id)
