"""Pools that starve: below their minimum share for longer than the policy's starvation delay, with work waiting.

Tasks of pools above theirs make room: those with checkpoints yield, idempotent ones are ended and run again; lowest
priority first, then the most recently started. It spends no attempt. Pure; the dispatcher and the simulator both ask
:class:`Starvation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scheduler_ext.core.labels import admits
from scheduler_ext.core.resources import filled
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.types import Snapshot, TaskView
from scheduler_ext.policies.accounts import Account
from scheduler_ext.policies.incremental_tree import RunningTree, Starving
from scheduler_ext.policies.remembering_tree import running_tree
from scheduler_ext.policies.share.fair import Running, spared, victims
from scheduler_ext.preemption.choose import KINDS, Ask, Turn, without
from scheduler_ext.round.node_account import Node


@dataclass(frozen=True, slots=True)
class Room:
    """Tasks that make room now and for which task, or else the moment when a pool will have starved long enough."""

    tasks: list[str]
    head: TaskView | None = None
    look_at: float | None = None


Candidates = Callable[[Node, Starving], Iterable[Running]]
"""The tasks of a node that may make room."""


class Starvation:
    """Remembers since when each pool starves. Times are in the caller's unit."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def make_room(
        self, tree: RunningTree, nodes: Iterable[Node], candidates: Candidates, *, now: float, delay: float
    ) -> Room:
        """Choose who makes room for the first pool that has starved for ``delay``: on the node where fewest must."""
        starving = {_name(need.account): need for need in tree.starving()}
        self._since = {name: self._since.get(name, now) for name in starving}
        nodes = list(nodes)
        look_at: float | None = None
        for name, need in starving.items():
            due = self._since[name] + delay
            if due > now:
                look_at = due if look_at is None else min(look_at, due)
                continue
            chosen = _fewest(need, nodes, candidates)
            if chosen:
                return Room(chosen, need.head, now)
        return Room([], look_at=look_at)


def _fewest(need: Starving, nodes: Iterable[Node], candidates: Candidates) -> list[str]:
    best: list[str] = []
    vector, head = filled(need.line.vector), need.head
    for node in nodes:
        if head.handler_id is not None and head.handler_id not in node.handlers:
            continue
        if not admits(node.labels, need.line.labels.require if need.line.labels is not None else frozenset()):
            continue
        named = victims(vector, node.free, candidates(node, need), slots=node.room(head.kind))
        if named and (not best or len(named) < len(best)):
            best = named
    return best


def _name(account: Account) -> str:
    names = []
    each: Account | None = account
    while each is not None:
        names.append(str(each.name))
        each = each.parent
    return "/".join(reversed(names))


def ask(
    starvation: Starvation, snapshot: Snapshot, turns: Sequence[Turn], share: Any, *, now: float, delay: float
) -> list[Ask]:
    """Name the running tasks that make room for a pool of the snapshot which has starved for ``delay``."""
    world = without(snapshot, [turn for turn in turns if turn.asked])
    idle = {turn.line.line_id: replace(turn.line, heads=()) for turn in turns}
    for line in world.lines:
        idle.pop(line.line_id, None)
    tree = running_tree(replace(world, lines=(*world.lines, *idle.values())), share)

    def candidates(node: Node, need: Starving) -> list[Running]:
        return [
            _running(turn, tree, need.account)
            for turn in turns
            if turn.node_id == node.node_id and turn.task.kind is need.head.kind in KINDS and not turn.asked
        ]

    nodes = [Node(view, index) for index, view in enumerate(world.nodes)]
    room = starvation.make_room(tree, nodes, candidates, now=now, delay=delay)
    by_id = {turn.task.task_id: turn for turn in turns}
    return [_ask(by_id[task_id], room.head) for task_id in room.tasks if room.head is not None]


def _running(turn: Turn, tree: RunningTree, account: Account) -> Running:
    vector = filled(turn.line.vector)
    return Running(
        task_id=turn.task.task_id, vector=vector, priority=turn.task.priority,
        started_at=-turn.ran_s, idempotent=turn.idempotent or turn.checkpoints,
        above_share=spared(tree.account_of(turn.line), account, turn.task.kind, vector),
    )  # fmt: skip


def _ask(turn: Turn, head: TaskView) -> Ask:
    return Ask(
        task_id=turn.task.task_id, fence=turn.task.fence, node_id=turn.node_id,
        outcome=Outcome.YIELDED if turn.checkpoints else Outcome.PREEMPTED, level=turn.level, rank=turn.task.rank,
        lets_by=frozenset({head.task_id}),
    )  # fmt: skip
