"""Grants: a node goes on by itself with the lines that wait, while nothing changes that.

Where all that waits in a cell are short tasks, or coroutines, of a few lines that the round serves by turns, the next one
would say the same of the room that comes free. So the round says it once, as grants to the node: whoever records tasks of a
line there begins as many more of it in the statement that records them. What each line holds stays the same, and with it
every limit and share; no round stands between a task and the next. When something else waits, or a line is served no more,
the round that finds it takes the grants back. Pure.
"""

from __future__ import annotations

from collections import Counter
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
    TenantView,
    WorkKind,
)
from scheduler_ext.round.gate import ceilings, short_milli
from scheduler_ext.round.placement import Ledger

MOST: Final = 16
"""The most lines that nodes go on with."""
DEEP: Final = 256
"""So many tasks must wait before grants are made, or four times what nodes have in hand; they stay as long as nodes have no
room for some."""
IN_HAND: Final = 2
"""To so many batches of each child a node with grants is filled: one runs while the other is recorded."""
FULL: Final = 750
"""Thousandths of its slots that are filled so at most: what comes from others finds room at once."""
SHARP: Final = 16
"""So many of each line's tasks nodes have in hand at least, where there are several: shares are no coarser than that."""
ALIKE: Final = 2
"""So many times as long as another's may a line's tasks run: a child takes work at once, and not a number of tasks."""
STEADY: Final = 1.1
"""What a task takes of its slot is learnt anew each second; a grant that says somewhat less stays."""
_BESIDE: Final = WorkKind.COROUTINE
_NO_ROOM: Final = frozenset({Reason.NO_SLOT, Reason.SHARE, Reason.POSITION, Reason.PEAK})
"""Why a task may wait that nothing but room keeps from starting. Where each line is served, a share is no limit."""


def grants(snapshot: Snapshot, plan: Plan, conf: SchedulerConf, before: Sequence[Grant], *,
           trusted: bool = False) -> tuple[Grant, ...]:  # fmt: skip
    """The grants after a round, those of ``before`` among them that still hold; none where one line would be passed.

    ``trusted``: the lines of ``before`` were all served a moment ago, which a round that looks at few tasks cannot tell.
    """
    lines = snapshot.lines
    if not 0 < len(lines) <= MOST or not all(map(_is_alike, lines)):
        return ()
    batch = _batch(lines, conf)
    few = sum(len(line.heads) for line in lines) < _deep(snapshot, batch)
    if not batch or (few and not before) or not _only_room(snapshot, plan) or not _below_ceilings(snapshot, plan, conf):
        return ()
    if not all_served(snapshot, plan) and not (
        trusted and {line.line_id for line in lines} <= {each.line_id for each in before}
    ):
        return ()
    nodes = {each.node_id for each in before} | {each.node_id for each in plan.decisions}
    there = {(each.node_id, each.line_id): each for each in before}
    granted = tuple(
        _grant(node, line, batch, there.get((node.node_id, line.line_id)))
        for node in snapshot.nodes if node.node_id in nodes for line in lines
    )  # fmt: skip
    claimed = in_hand(snapshot, plan, granted)
    if len(lines) > 1 and not _each_holds_some(snapshot, claimed, granted, before):
        return ()
    return () if few and not plan.left and claimed is plan else granted


def _batch(lines: Collection[LineView], conf: SchedulerConf) -> int:
    """How many tasks of processes a node begins at once; 0 where a batch would be none, or not the same work for all lines.

    A batch is full with the task that makes it so. What runs side by side has none.
    """
    heads = [line.heads[0] for line in lines if line.heads[0].kind is not _BESIDE]
    batches = [
        min(conf.batch_max, -(-BATCH_US // max(1, head.expected_us or 0)), FULL // (IN_HAND * _milli(head)))
        for head in heads
    ] or [MAX_BATCH]
    return min(batches) if min(batches) >= 2 and max(batches) <= ALIKE * min(batches) else 0


def _deep(snapshot: Snapshot, batch: int) -> int:
    """How many tasks must wait before grants are made."""
    if any(line.heads[0].kind is _BESIDE for line in snapshot.lines):
        return DEEP
    slots = sum(node.slots.get(WorkKind.PROCESS, 0) for node in snapshot.nodes)
    return min(DEEP, 4 * IN_HAND * batch * slots)


def _grant(node: NodeView, line: LineView, batch: int, before: Grant | None) -> Grant:
    head = line.heads[0]
    beside, slots, milli = head.kind is _BESIDE, node.slots.get(head.kind, 0), _milli(head)
    if before is not None and before.slot_milli <= milli <= STEADY * before.slot_milli:
        milli = before.slot_milli  # what has begun takes no less, so that as many may follow it
    return Grant(
        node_id=node.node_id, line_id=line.line_id, handler_id=head.handler_id or 0, kind=head.kind,
        slot_milli=milli, batch=1 if beside else batch, in_hand=slots if beside else IN_HAND * batch * slots,
    )  # fmt: skip


def _each_holds_some(snapshot: Snapshot, claimed: Plan, granted: Sequence[Grant], before: Sequence[Grant]) -> bool:
    """Whether of each line some run or are claimed now, and are enough to be its share: as many begin as end.

    Of a tenant's several lines nobody knows what each holds: they must have been gone on with before.
    """
    in_hand_of = Counter[WorkKind]()
    for each in {(each.node_id, each.kind): each for each in granted}.values():
        in_hand_of[each.kind] += each.in_hand
    kinds = Counter(line.heads[0].kind for line in snapshot.lines)
    if any(count > 1 and in_hand_of[kind] < SHARP * count for kind, count in kinds.items()):
        return False
    tenants = Counter(line.tenant_id for line in snapshot.lines)
    lines = {each.line_id for each in claimed.decisions}
    there = {each.line_id for each in before}
    return all(
        line.line_id in lines
        or (line.line_id in there if tenants[line.tenant_id] > 1 else _holds_some(snapshot.tenants.get(line.tenant_id)))
        for line in snapshot.lines
    )


def _holds_some(tenant: TenantView | None) -> bool:
    return tenant is not None and any(tenant.used_slots_milli.values())


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
