"""Pools that starve: below their minimum share for longer than the policy's starvation delay, with work that waits.

Tasks of pools above theirs make room, the same as in the simulator: those with checkpoints yield, idempotent ones are
ended and run again; lowest priority first, then the most recently started. It spends no attempt. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scheduler_ext.core.resources import filled
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.types import LineView, Snapshot, TaskView, WorkKind
from scheduler_ext.policies.accounts import Account
from scheduler_ext.policies.incremental_tree import RunningTree
from scheduler_ext.policies.share.fair import Running, spared, victims
from scheduler_ext.preemption.choose import KINDS, Ask, Turn, without
from scheduler_ext.round.node_account import Node


def starving(snapshot: Snapshot, turns: Sequence[Turn], share: Any,
             ) -> tuple[RunningTree, dict[str, tuple[Account, LineView, TaskView]]]:  # fmt: skip
    """Pools below their minimum share with work that waits, by name, each with the first task that would start."""
    idle = {turn.line.line_id: replace(turn.line, heads=()) for turn in turns}
    for line in snapshot.lines:
        idle.pop(line.line_id, None)
    tree = RunningTree(replace(snapshot, lines=(*snapshot.lines, *idle.values())), share)
    found: dict[str, tuple[Account, LineView, TaskView]] = {}
    for line in snapshot.lines:
        each: Account | None = tree.account_of(line) if line.heads else None
        while each is not None:
            name, head = _name(each), line.heads[0]
            if each.share < each.floor and (name not in found or head.rank < found[name][2].rank):
                found[name] = (each, line, head)
            each = each.parent
    return tree, found


def _name(account: Account) -> str:
    names = []
    each: Account | None = account
    while each is not None:
        names.append(str(each.name))
        each = each.parent
    return "/".join(reversed(names))


def make_room(snapshot: Snapshot, turns: Sequence[Turn], share: Any, long_enough: Callable[[str], bool]) -> list[Ask]:
    """Who makes room for the first pool that has starved ``long_enough``: on the node where fewest must."""
    world = without(snapshot, [turn for turn in turns if turn.asked])
    tree, found = starving(world, turns, share)
    nodes = [Node(view, index) for index, view in enumerate(world.nodes)]
    for name, (account, line, head) in sorted(found.items()):
        if not long_enough(name):
            continue
        best: list[Turn] = []
        for node in nodes:
            if head.handler_id is not None and head.handler_id not in node.handlers:
                continue
            here = _candidates(turns, node.node_id, head.kind)
            views = [_running(turn, tree, account) for turn in here.values()]
            named = victims(filled(line.vector), node.free, views, slots=node.room(head.kind))
            if named and (not best or len(named) < len(best)):
                best = [here[task_id] for task_id in named]
        if best:
            return [_ask(turn, head) for turn in best]
    return []


def _candidates(turns: Iterable[Turn], node_id: int, kind: WorkKind) -> Mapping[str, Turn]:
    return {
        turn.task.task_id: turn
        for turn in turns
        if turn.node_id == node_id and turn.task.kind is kind and kind in KINDS and not turn.asked
    }


def _running(turn: Turn, tree: RunningTree, account: Account) -> Running:
    return Running(
        task_id=turn.task.task_id, node_id=turn.node_id, vector=filled(turn.line.vector),
        priority=turn.task.priority, started_at=-turn.ran_s, idempotent=turn.idempotent or turn.checkpoints,
        above_share=spared(tree.account_of(turn.line), account, filled(turn.line.vector)),
    )  # fmt: skip


def _ask(turn: Turn, head: TaskView) -> Ask:
    return Ask(
        task_id=turn.task.task_id, fence=turn.task.fence, node_id=turn.node_id,
        outcome=Outcome.YIELDED if turn.checkpoints else Outcome.PREEMPTED, level=turn.level, rank=turn.task.rank,
        lets_by=frozenset({head.task_id}),
    )  # fmt: skip
