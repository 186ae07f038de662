"""Openings: the room that a round leaves, given ahead to the next tasks of lines that had some lately.

A task that comes where there is room to spare would be claimed by the next round, whatever the policies: so the round
before it decides that already. It decides on examples of what may come as it would on tasks that are there, with the
same gate and the same policies; whoever stores such a task claims it in the statement that stores it, and no round
stands between its submission and its start. Half of the room is given at most, as long as more than one slot is free:
the rest is for what comes otherwise. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from scheduler_ext.conf import SHORT_US, SchedulerConf
from scheduler_ext.core.resources import add, filled, fits, peak, scale
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    CLIENT,
    MILLI,
    PER_CHILD,
    Decision,
    LineView,
    NodeView,
    Opening,
    Plan,
    Reason,
    Snapshot,
    TaskView,
    Vector,
    WorkKind,
)
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.round.claimed import after
from scheduler_ext.round.gate import ceilings, share_milli
from scheduler_ext.round.prioritizer import prioritize

MOST: Final = 8
"""The most openings at a time."""
EXAMPLES: Final = 4
"""The most examples of tasks that take a whole slot."""
MANY: Final = 64
"""A round that claims more than so many gives nothing ahead: what comes then comes in crowds."""
SHORT_EXAMPLES: Final = 8
"""The most examples of short tasks, each for an eighth of what a slot holds ahead."""
BESIDE_EXAMPLES: Final = 64
"""The most examples of tasks that run beside one another in a child."""
CATEGORIES: Final = frozenset({Category.URGENT, Category.DELAYABLE})
"""Those whose tasks are waited for."""
CROWDED: Final = frozenset({Reason.NO_SLOT, Reason.SHARE, Reason.RESERVED, Reason.PEAK})
"""Why a task waits that might start if no room were given ahead."""


def in_the_way(snapshot: Snapshot, plan: Plan, conf: SchedulerConf) -> bool:
    """Whether the openings there are keep a task from starting, or are for work that may not start any more."""
    if not snapshot.openings:
        return False
    if not CROWDED.isdisjoint(plan.left.values()):
        return True
    given = {each.line_id for each in snapshot.openings}
    lines = [line for line in snapshot.recent if line.line_id in given]
    tenants = {line.tenant_id for line in lines}
    if any(plan.left.get(task.task_id) is Reason.TENANT_IN_FLIGHT
           for line in snapshot.lines if line.tenant_id in tenants for task in line.heads):  # fmt: skip
        return True
    limits = ceilings(conf, snapshot.now)
    below = min((limits[line.category] for line in lines), default=MILLI)
    return below < MILLI and _taken(snapshot, plan) >= below


def _taken(snapshot: Snapshot, plan: Plan) -> int:
    """The utilization after a round, in thousandths, without what is given ahead: the highest of any kind's slots."""
    slots, taken = Counter[WorkKind](), Counter[WorkKind]()
    for node in snapshot.nodes:
        slots.update({kind: MILLI * count for kind, count in node.slots.items()})
        taken.update({kind: MILLI * count for kind, count in node.exclusive_count.items()})
        taken[WorkKind.PROCESS] += node.batch_milli
    for each in snapshot.openings:
        taken[each.kind] -= each.places * each.slot_milli
    for decision in plan.decisions:
        taken[decision.kind] += MILLI if decision.exclusive else share_milli(decision.expected_us)
    return max((taken[kind] * MILLI // whole for kind, whole in slots.items() if whole), default=0)


def openings(snapshot: Snapshot, plan: Plan, conf: SchedulerConf, share: SharePolicy) -> list[Opening]:
    """What to add to the openings after a round; empty while anything waits for room."""
    if len(plan.decisions) > MANY or not snapshot.recent or not CROWDED.isdisjoint(plan.left.values()):
        return []
    snapshot = _after(snapshot, plan.decisions)
    there = {opening.key: opening for opening in snapshot.openings}
    examples = _Examples(snapshot, there)
    if not examples.lines:
        return []
    decided = prioritize(replace(snapshot, lines=examples.lines), conf, share)
    return list(_widened(snapshot, examples, decided.decisions, there))


def _after(snapshot: Snapshot, decisions: Sequence[Decision]) -> Snapshot:
    """The snapshot with a round's claims made, and counted against their tenants' limits."""
    if not decisions:
        return snapshot
    lines = {line.line_id: line.tenant_id for line in snapshot.lines}
    claimed = Counter(lines[decision.line_id] for decision in decisions)
    tenants = {number: replace(view, in_flight=view.in_flight + claimed[number]) if number in claimed else view
               for number, view in snapshot.tenants.items()}  # fmt: skip
    return replace(after(snapshot, decisions), tenants=tenants)


def lacking(snapshot: Snapshot, wider: Sequence[Opening]) -> bool:
    """Whether some of what came lately has no opening."""
    there = {each.key for each in (*snapshot.openings, *wider)}
    return any((line.line_id, task.handler_id or 0, task.alone) not in there for line in snapshot.recent
               if _may_have(snapshot, line) for task in line.heads)  # fmt: skip


def _may_have(snapshot: Snapshot, line: LineView) -> bool:
    """Whether room is given ahead to a line: where a maximum holds a round counts what is held, and not what is given."""
    tenant = snapshot.tenants.get(line.tenant_id)
    bounded = tenant is None or tenant.maximum_permille < MILLI or (line.pool and not line.pool.startswith(CLIENT))
    return line.category in CATEGORIES and not bounded


class _Examples:
    """Tasks like those that came lately, as many as may come before the next round."""

    def __init__(self, snapshot: Snapshot, there: Mapping[tuple[int, int, bool], Opening]) -> None:
        self._now = snapshot.now
        self.each: dict[str, int] = {}
        """How many tasks an example stands for, by its id."""
        self.low: list[Opening] = []
        """The openings that they may widen."""
        lines: list[LineView] = []
        wanted = 0
        for line in snapshot.recent:
            if not _may_have(snapshot, line):
                continue
            heads: list[TaskView] = []
            for example in line.heads:
                found = there.get((line.line_id, example.handler_id or 0, example.alone))
                wanted += 1
                if wanted <= MOST and (found is None or 2 * found.places <= found.given):
                    heads += self._of(example)
                    self.low += [found] if found is not None else []
            if heads:
                lines.append(replace(line, heads=tuple(heads)))
        self.lines = tuple(lines)

    def _of(self, example: TaskView) -> Iterator[TaskView]:
        expected, each, count = example.expected_us, 1, EXAMPLES
        if example.kind in PER_CHILD:
            count = min(BESIDE_EXAMPLES, PER_CHILD[example.kind] // 2)
        elif expected is not None and expected <= SHORT_US:
            each, count = max(1, MILLI // SHORT_EXAMPLES // share_milli(expected)), SHORT_EXAMPLES
            expected = max(1, expected) * each
        for _ in range(count):
            task_id = f"{len(self.each)}"
            self.each[task_id] = each
            yield replace(example, task_id=task_id, rank=(0, len(self.each)), expected_us=expected,
                          submitted_at=self._now)  # fmt: skip


def _widened(snapshot: Snapshot, examples: _Examples, decisions: tuple[Decision, ...],
             there: Mapping[tuple[int, int, bool], Opening]) -> Iterator[Opening]:  # fmt: skip
    """The openings that come of the decisions on examples, within half of each node's room and the tenants' limits."""
    left = {(node.node_id, kind): room for node in snapshot.nodes for kind, room in _half(node, snapshot.openings)}
    tenants = {line.line_id: line.tenant_id for line in examples.lines}
    vectors = {line.line_id: line.vector for line in examples.lines}
    nodes = {node.node_id: node for node in snapshot.nodes}
    flights = {tenant_id: view.max_in_flight - view.in_flight for tenant_id, view in snapshot.tenants.items()
               if view.max_in_flight is not None}  # fmt: skip
    found: dict[tuple[int, int, bool], Opening] = {}
    for decision in decisions:
        assert decision.handler_id is not None
        key = (decision.line_id, decision.handler_id, decision.alone)
        before = found.get(key) or there.get(key)
        each = examples.each[decision.task_id]
        whole = decision.exclusive or _all_fit(nodes[decision.node_id], vectors[decision.line_id])
        expected_us = max(1, decision.expected_us // each)
        milli = MILLI if decision.exclusive else share_milli(expected_us)
        expected_us = 0 if decision.exclusive or decision.alone else expected_us
        if before is not None and milli < before.slot_milli < MILLI:
            # Only like can be added to what is there, and what is learnt of the shortest tasks never rests.
            milli, expected_us = before.slot_milli, before.expected_us
        place = (decision.node_id, decision.kind)
        tenant_id = tenants[decision.line_id]
        places = min(each if whole else 1, left[place] // milli, flights.get(tenant_id, each))
        if places <= 0 or (before is not None and before.node_id != decision.node_id):
            continue
        left[place] -= places * milli
        if tenant_id in flights:
            flights[tenant_id] -= places
        found[key] = Opening(
            line_id=decision.line_id, handler_id=decision.handler_id, alone=decision.alone, node_id=decision.node_id,
            kind=decision.kind, queue=decision.queue, slot_milli=milli, expected_us=expected_us,
            places=places + (found[key].places if key in found else 0),
        )  # fmt: skip
    yield from found.values()
    # What cannot be widened now is looked at again when half of it is claimed, and not at each claim.
    yield from (replace(low, places=0) for low in examples.low if low.key not in found and low.places < low.given)


def _all_fit(node: NodeView, vector: Vector) -> bool:
    """Whether each child of the node may run a short task with this vector: an example of many is counted as one."""
    children = max(0, node.slots.get(WorkKind.PROCESS, 0) - node.exclusive_count.get(WorkKind.PROCESS, 0))
    batches = scale(peak(filled(node.batch_peak), filled(vector)), children)
    return fits(add(filled(node.exclusive_used), batches), filled(node.capacity))


def _half(node: NodeView, given: tuple[Opening, ...]) -> Iterator[tuple[WorkKind, int]]:
    """Half of the room of each kind, in thousandths of slots, less what is given already: one slot at least, if free."""
    for kind, slots in node.slots.items():
        free = MILLI * (slots - node.exclusive_count.get(kind, 0))
        if kind is WorkKind.PROCESS:
            free -= node.batch_milli
        ahead = sum(
            each.places * each.slot_milli for each in given if (each.node_id, each.kind) == (node.node_id, kind)
        )
        yield kind, max(min(MILLI - ahead, free), (free + ahead) // 2 - ahead)
