"""Grants: a node goes on by itself with the lines that wait, while nothing changes that.

Where all that waits in a cell are short tasks, or coroutines, of a few lines that the round serves by turns, the next one
would say the same of the room that comes free. So the round says it once, as grants to the node: whoever records tasks of a
line there begins as many more of it in the statement that records them. What each line holds stays the same, and with it
every limit and share; no round stands between a task and the next. When something else waits, or a line is served no more,
the round that finds it takes the grants back. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from scheduler_ext.conf import BATCH_US, MAX_BATCH, SchedulerConf
from scheduler_ext.core.types import (
    MILLI,
    Decision,
    Grant,
    LineView,
    NodeView,
    Plan,
    Reason,
    Snapshot,
    TaskView,
    WorkKind,
)
from scheduler_ext.round.gate import ceilings, short_milli
from scheduler_ext.round.placement import Ledger

MOST: Final = 16
"""The most lines that nodes go on with."""
DEEP: Final = 256
"""So many tasks must wait before grants are made; they stay as long as nodes have no room for some."""
IN_HAND: Final = 2
"""To so many batches of each child a node with grants is filled: one runs while the other is recorded."""
_BESIDE: Final = WorkKind.COROUTINE
_NO_ROOM: Final = frozenset({Reason.NO_SLOT, Reason.SHARE, Reason.POSITION, Reason.PEAK})
"""Why a task may wait that nothing but room keeps from starting. Where each line is served, a share is no limit."""


def grants(snapshot: Snapshot, plan: Plan, conf: SchedulerConf, before: Sequence[Grant], *,
           trusted: bool = False) -> tuple[Grant, ...]:  # fmt: skip
    """The grants after a round, those of ``before`` among them that still hold; none where one line would be passed.

    ``trusted``: the lines of ``before`` were all served a moment ago, which a round that looks at few tasks cannot tell.
    """
    lines = snapshot.lines
    few = sum(len(line.heads) for line in lines) < DEEP
    if not 0 < len(lines) <= MOST or (few and not before):
        return ()
    if not _only_room(snapshot, plan) or not all(map(_is_alike, lines)) or not _below_ceilings(snapshot, plan, conf):
        return ()
    batch = min(_batch(line, conf) for line in lines)
    if batch < 2:
        return ()  # a child goes on with batches
    if not all_served(snapshot, plan) and not (
        trusted and {line.line_id for line in lines} <= {each.line_id for each in before}
    ):
        return ()
    nodes = {each.node_id for each in before} | {each.node_id for each in plan.decisions}
    granted = tuple(_grant(node, line, batch) for node in snapshot.nodes if node.node_id in nodes for line in lines)
    return () if few and not plan.left and in_hand(snapshot, plan, granted) is plan else granted


def _batch(line: LineView, conf: SchedulerConf) -> int:
    """The most of its tasks that a batch has, which is full with the one that makes it so; what runs side by side has none."""
    head = line.heads[0]
    return MAX_BATCH if head.kind is _BESIDE else min(conf.batch_max, -(-BATCH_US // max(1, head.expected_us or 0)))


def _grant(node: NodeView, line: LineView, batch: int) -> Grant:
    head = line.heads[0]
    beside, slots = head.kind is _BESIDE, node.slots.get(head.kind, 0)
    return Grant(
        node_id=node.node_id, line_id=line.line_id, handler_id=head.handler_id or 0, kind=head.kind,
        slot_milli=_milli(head), batch=1 if beside else batch, in_hand=slots if beside else IN_HAND * batch * slots,
    )  # fmt: skip


def all_served(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether each line came to its turn before any other had no more tasks to look at, so that none is far behind."""
    left = {line.line_id: len(line.heads) for line in snapshot.lines}
    waiting = set(left)
    for decision in plan.decisions:
        waiting.discard(decision.line_id)
        left[decision.line_id] -= 1
        if not waiting:
            return True
        if not left[decision.line_id]:
            return False
    return len(snapshot.lines) == 1


def _only_room(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether only room keeps what waits from starting, and none is kept."""
    if snapshot.behind or snapshot.kept.task_id or plan.kept.task_id:
        return False
    return _NO_ROOM.issuperset(plan.left.values())


def _below_ceilings(snapshot: Snapshot, plan: Plan, conf: SchedulerConf) -> bool:
    """Whether no more is in use than each line's ceiling allows; with coroutines, as much as rounds would fill."""
    limits = ceilings(conf, snapshot.now)
    return all(
        plan.utilization_permille < limits[line.category] or _would_start(snapshot, line, limits[line.category])
        for line in snapshot.lines
    )


def _would_start(snapshot: Snapshot, line: LineView, ceiling: int) -> bool:
    """Whether a round could start one more of a line's coroutines, had one ended."""
    head = line.heads[0]
    if head.kind is not _BESIDE or ceiling >= MILLI:
        return head.kind is _BESIDE
    ledger = Ledger(snapshot.nodes, short=False)
    return ledger.below_after(ceiling, ledger.shape(line.vector, head.kind, head.handler_id, line.labels), 1)


def _milli(task: TaskView) -> int:
    """Thousandths of a slot that a task takes of which a node could begin more by itself; 0 for any other."""
    return MILLI if task.kind is _BESIDE else short_milli(task)


def _is_alike(line: LineView) -> bool:
    """Whether all that is seen of a line are such tasks of one handler, about which a round has nothing more to ask."""
    if line.late or line.paused or not line.heads or not _milli(line.heads[0]):
        return False
    first = line.heads[0]
    return all(_is_like(task, first) for task in line.heads)


def _is_like(task: TaskView, first: TaskView) -> bool:
    return (
        task.handler_id is not None and task.handler_id == first.handler_id and task.expected_us == first.expected_us
        and task.kind is first.kind
        and not task.alone and task.mutex_key is None and task.avoid_node is None and not task.rates
    )  # fmt: skip


def in_hand(snapshot: Snapshot, plan: Plan, granted: Collection[Grant]) -> Plan:
    """The plan without the claims that a node with grants needs no more: more of them would only lie in its queue."""
    if not granted:
        return plan
    left = Grant.lacking(snapshot.nodes, granted)
    taken: list[Decision] = []
    for decision in plan.decisions:
        place = (decision.node_id, decision.kind)
        if left.get(place, 1) > 0:
            taken.append(decision)
            if place in left:
                left[place] -= 1
    return plan if len(taken) == len(plan.decisions) else replace(plan, decisions=tuple(taken), more=False)
