"""Pools that starve: below their minimum share for longer than the policy's starvation delay, with work waiting.

Tasks of pools above theirs make room: those with checkpoints yield, idempotent ones are ended and run again; lowest
priority first, then the most recently started. It spends no attempt. Nothing is ended in vain, nor back and forth:

- A waiting task of the starving pool must start in the room, ahead of all others: the first that nothing else holds. The
  round's own gate says so (limits, ceilings, mutex keys, rates), as it would be without those ended.
- Every pool that gives keeps its minimum, counted after all that it gives and with what starts. So none of them starves
  by it, and none is ever entitled to take the room back: each time a pool below its minimum has more, and no other less
  than its own.

Pure; the dispatcher and the simulator both ask :class:`Starvation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.types import MILLI, LineView, Reason, Snapshot, TaskView
from scheduler_ext.policies.accounts import Account
from scheduler_ext.policies.holdings import taken_by
from scheduler_ext.policies.incremental_tree import RunningTree, Starving
from scheduler_ext.policies.remembering_tree import running_tree
from scheduler_ext.preemption.choose import KINDS, Ask, Turn, without
from scheduler_ext.round.gate import Gate
from scheduler_ext.round.node_account import Node
from scheduler_ext.round.reservations import offers


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A task in a whole slot, as pre-emption sees it."""

    task: Any
    """A ``TaskView``, or a job of the simulator."""
    line: LineView
    started_at: float
    may_run_again: bool
    """Whether it saves checkpoints or is idempotent: nothing else is ended."""


@dataclass(frozen=True, slots=True)
class Room:
    """Tasks that make room now and for which task, or else the moment when a pool will have starved long enough."""

    tasks: list[Any]
    head: TaskView | None = None
    look_at: float | None = None


Candidates = Callable[[Node], Iterable[Running]]
"""The tasks of a node that may make room."""


class Starvation:
    """Remembers since when each pool starves. Times are in the caller's unit."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def forget(self) -> None:
        """Nothing waits, or nothing could make room: no pool starves by others."""
        self._since.clear()

    def make_room(self, tree: RunningTree, gate: Gate, candidates: Candidates, *, now: float, delay: float) -> Room:
        """Choose who makes room for the first pool that has starved for ``delay``: on the node where fewest must."""
        starving = {_name(need.account): need for need in tree.starving(partial(_lacks_only_room, gate))}
        self._since = {name: self._since.get(name, now) for name in starving}
        look_at: float | None = None
        for name, need in starving.items():
            due = self._since[name] + delay
            if due > now:
                look_at = due if look_at is None else min(look_at, due)
                continue
            chosen = _fewest(_Trial(need, tree, gate), candidates)
            if chosen:
                return Room(chosen, need.head, now)
        return Room([], look_at=look_at)


def _lacks_only_room(gate: Gate, line: LineView, task: TaskView) -> bool:
    """Whether nothing holds a task but what the end of others may change: room, and the ceiling of its category."""
    shape = gate.ledger.shape(line.vector, task.kind, task.handler_id, line.labels)
    return task.kind in KINDS and shape.impossible is None and gate.refusal(line, task, 0) in (None, Reason.PEAK)


def _fewest(trial: _Trial, candidates: Candidates) -> list[Any]:
    nodes = [node for node in trial.gate.ledger.nodes if offers(node, trial.shape)]
    best: list[Any] = []
    if any(map(trial.starts, nodes)):
        return best  # it starts without that, in its turn
    for node in nodes:
        named = trial.victims(node, candidates(node))
        if named and (not best or len(named) < len(best)):
            best = named
    return best


class _Trial:
    """What would be had running tasks given their room to the head of a starving pool. It leaves all as it was."""

    def __init__(self, need: Starving, tree: RunningTree, gate: Gate) -> None:
        self.gate = gate
        self._need = need
        self._tree = tree
        self.shape = gate.ledger.shape(need.line.vector, need.head.kind, need.head.handler_id, need.line.labels)

    def starts(self, node: Node) -> bool:
        """Whether the head may start now, and this node has room for it."""
        line, head = self._need.line, self._need.head
        return (
            node.room(head.kind) > 0
            and node.takes_exclusive(head.kind, self.shape.vector)
            and self.gate.refusal(line, head, 0) is None
            and self._tree.refusal(line, head, MILLI) is None
        )

    def victims(self, node: Node, running: Iterable[Running]) -> list[Any]:
        """The tasks of a node to end so that the head starts there; none if nothing helps."""
        kind = self._need.head.kind
        may = [each for each in running if each.may_run_again and each.task.kind is kind]
        kept, node.reserved = node.reserved, None  # a guarantee comes first
        given: list[Running] = []
        try:
            for each in sorted(may, key=lambda one: (one.task.priority, -one.started_at, one.task.task_id)):
                if self._is_spared(each):
                    self._give(node, each)
                    given.append(each)
                    if self.starts(node):
                        return [one.task for one in given]
            return []
        finally:
            for each in given:
                self._take_back(node, each)
            node.reserved = kept

    def _is_spared(self, each: Running) -> bool:
        """Whether a task's pools would have their minimum without it, and with the head started."""
        self._charge(self._need.line, self._need.head, 1)
        account: Account | None = self._tree.account_of(each.line)
        kind, less = each.task.kind, tuple([-need for need in taken_by(each.line, each.task.kind)])
        spared = True
        while spared and account is not None and account.parent is not None:
            # What the starving pool holds itself is no room that it could gain.
            spared = account is not self._need.account and account.share_with(kind, -MILLI, less) >= account.floor
            account = account.parent
        self._charge(self._need.line, self._need.head, -1)
        return spared

    def _give(self, node: Node, each: Running) -> None:
        ledger = self.gate.ledger
        self.gate.use(each.line.tenant_id)
        self.gate.uncount(each.line, each.task, MILLI)
        ledger.release_exclusive(node, ledger.shape(each.line.vector, each.task.kind, None, each.line.labels))
        self._charge(each.line, each.task, -1)

    def _take_back(self, node: Node, each: Running) -> None:
        ledger = self.gate.ledger
        self.gate.uncount(each.line, each.task, MILLI, -1)
        ledger.take_exclusive(node, ledger.shape(each.line.vector, each.task.kind, None, each.line.labels))
        self._charge(each.line, each.task, 1)

    def _charge(self, line: LineView, task: TaskView, count: int) -> None:
        vector = tuple([count * need for need in taken_by(line, task.kind)])
        self._tree.account_of(line).charge({task.kind: count * MILLI}, vector)


def _name(account: Account) -> str:
    names = []
    each: Account | None = account
    while each is not None:
        names.append(str(each.name))
        each = each.parent
    return "/".join(reversed(names))


def ask(
    starvation: Starvation, snapshot: Snapshot, turns: Sequence[Turn], conf: SchedulerConf, share: Any, *,
    now: float, delay: float,
) -> list[Ask]:  # fmt: skip
    """Name the running tasks that make room for a pool of the snapshot which has starved for ``delay``."""
    world = without(snapshot, [turn for turn in turns if turn.asked])
    idle = {turn.line.line_id: replace(turn.line, heads=()) for turn in turns}
    for line in world.lines:
        idle.pop(line.line_id, None)
    tree = running_tree(replace(world, lines=(*world.lines, *idle.values())), share)

    def candidates(node: Node) -> list[Running]:
        return [_running(turn) for turn in turns if turn.node_id == node.node_id and not turn.asked]

    room = starvation.make_room(tree, Gate(world, conf, reserve=False), candidates, now=now, delay=delay)
    by_id = {turn.task.task_id: turn for turn in turns}
    return [_ask(by_id[task.task_id], room.head) for task in room.tasks if room.head is not None]


def _running(turn: Turn) -> Running:
    return Running(
        task=turn.task, line=turn.line, started_at=-turn.ran_s, may_run_again=turn.idempotent or turn.checkpoints
    )


def _ask(turn: Turn, head: TaskView) -> Ask:
    return Ask(
        task_id=turn.task.task_id, fence=turn.task.fence, node_id=turn.node_id,
        outcome=Outcome.YIELDED if turn.checkpoints else Outcome.PREEMPTED, level=turn.level, rank=turn.task.rank,
        lets_by=frozenset({head.task_id}), ahead=True,
    )  # fmt: skip
