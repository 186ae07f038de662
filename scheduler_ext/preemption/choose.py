"""Turns: chooses which running tasks make room for what waits. Pure; the dispatcher's side is in ``controller``.

Nobody is asked unless somebody waits for the very room. That is found out by the round's own code: were this task to
yield, and wait in its line where its order puts it, who would start? When it would be the task itself, it goes on.

- Under an order that shares time (round robin, feedback) a task with checkpoints yields once it has used up its slice.
- Under any order one that has run for ``yield_after_s`` lets shorter work by, and more urgent work; it keeps its place.

For pools that starve see :mod:`scheduler_ext.preemption.starvation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.resources import filled, subtract
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.types import (
    MILLI,
    NO_SLOTS,
    LineView,
    PoolView,
    Slots,
    Snapshot,
    TaskView,
    Vector,
    WorkKind,
    add_slots,
)
from scheduler_ext.policies.base import OrderPolicy, RankInput, SharePolicy
from scheduler_ext.round.claimed import after, less
from scheduler_ext.round.prioritizer import prioritize

Workflows = Mapping[str, Mapping[int, Mapping[str, tuple[Slots, Vector]]]]

SHORT_PART: Final = 4
"""A waiting task is short beside a running one when it is expected to take at most this part of its run time."""
MAX_ASKED: Final = 16
"""Tasks asked at one look."""
KINDS: Final = frozenset({WorkKind.PROCESS, WorkKind.SCRIPT})
"""Kinds that hold a whole slot. Coroutines and threads share a child: to end one would make no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A task that runs in a whole slot."""

    task: TaskView
    """The task as it would wait in its line; its fence is that of its claim."""
    line: LineView
    """Its line; the heads do not matter."""
    node_id: int
    ran_s: float
    checkpoints: bool
    idempotent: bool
    level: int
    """Slices used up before this turn."""
    ranked: RankInput
    """What its order policy goes by, at ``level``."""
    asked: bool = False
    """Whether it was asked to make room and has not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A task that is to make room: it yields, or it is ended and runs again."""

    task_id: str
    fence: int
    node_id: int
    outcome: Outcome
    level: int
    rank: tuple[int, int]
    """Its place in its line from now on."""
    lets_by: frozenset[str]
    """Tasks that start in its room: it does not start again before them."""
    ahead: bool = False
    """Whether those tasks start ahead of what stands before them: they use the room that this task lends them."""


Orders = Callable[[LineView], OrderPolicy]


def slice_s(turn: Turn, order: OrderPolicy, conf: SchedulerConf) -> float:
    """How long the turn lasts, seconds, before the task may be asked to yield."""
    slicing: Any = order
    if hasattr(order, "quantum_us"):
        return min(float(slicing.quantum_us(turn.level)) / 1e6, conf.yield_after_s)
    return conf.yield_after_s


def place_after(turn: Turn, order: OrderPolicy) -> tuple[int, tuple[int, int]]:
    """Level and rank of a task that yields now: one slice later if it has used its slice up, else unchanged."""
    slicing: Any = order
    if not hasattr(order, "quantum_us") or turn.ran_s * 1e6 < slicing.quantum_us(turn.level):
        return turn.level, turn.task.rank
    level = turn.level + 1
    return level, order.rank(replace(turn.ranked, level=level))


def choose(snapshot: Snapshot, turns: Sequence[Turn], conf: SchedulerConf, share: SharePolicy, order_of: Orders,
           ) -> list[Ask]:  # fmt: skip
    """Which tasks with checkpoints yield now. ``snapshot`` has what waits, and what holds the nodes now.

    The longest turn is asked first.
    """
    world = without(snapshot, [turn for turn in turns if turn.asked])
    world = after(world, prioritize(world, conf, share).decisions)
    asks: list[Ask] = []
    running = [turn for turn in turns if turn.checkpoints and not turn.asked and turn.task.kind in KINDS]
    for turn in sorted(running, key=lambda each: (-each.ran_s, each.task.task_id)):
        if len(asks) >= MAX_ASKED or not world.lines:
            break
        order = order_of(turn.line)
        if turn.ran_s < slice_s(turn, order, conf):
            continue
        level, rank = place_after(turn, order)
        starts = _starts_instead(world, turn, rank, conf, share, used_up=level != turn.level)
        if not starts:
            continue
        asks.append(Ask(
            task_id=turn.task.task_id, fence=turn.task.fence, node_id=turn.node_id, outcome=Outcome.YIELDED,
            level=level, rank=rank, lets_by=starts, ahead=level == turn.level,
        ))  # fmt: skip
        world = replace(world, lines=less(world.lines, starts))
    return asks


def _starts_instead(world: Snapshot, turn: Turn, rank: tuple[int, int], conf: SchedulerConf, share: SharePolicy, *,
                    used_up: bool) -> frozenset[str]:  # fmt: skip
    """The tasks that would start in a task's room; none when it would start itself."""
    freed = without(world, [turn])
    if used_up:
        freed = replace(freed, lines=_with(freed.lines, turn.line, replace(turn.task, rank=rank)))
    else:
        freed = replace(freed, lines=_short_beside(freed.lines, turn))
    started = frozenset(decision.task_id for decision in prioritize(freed, conf, share).decisions)
    return frozenset() if turn.task.task_id in started else started


def _short_beside(lines: Iterable[LineView], turn: Turn) -> tuple[LineView, ...]:
    """What may pass a running task though its order does not say so: shorter work, and more urgent lines."""
    longest = turn.ran_s * 1e6 / SHORT_PART
    found = []
    for line in lines:
        if line.category < turn.line.category:
            found.append(line)
            continue
        heads = tuple(t for t in line.heads if t.expected_us is not None and t.expected_us <= longest)
        if heads:
            found.append(replace(line, heads=heads))
    return tuple(found)


def offered(snapshot: Snapshot, conf: SchedulerConf, share: SharePolicy, waiting_for: Mapping[str, frozenset[str]],
            ahead: frozenset[str]) -> Snapshot:  # fmt: skip
    """The snapshot a round decides on while tasks that have yielded let others pass.

    ``waiting_for``: those that yielded, each with the tasks it lets by; ``ahead``: those that start ahead of all
    others, where they find room.
    """
    there = {task.task_id for line in snapshot.lines for task in line.heads}
    hidden = frozenset(task_id for task_id, others in waiting_for.items() if others & there)
    snapshot = replace(snapshot, lines=less(snapshot.lines, hidden)) if hidden & there else snapshot
    if ahead & there:
        first = replace(snapshot, lines=less(snapshot.lines, frozenset(there - ahead)))
        if prioritize(first, conf, share).decisions:
            return first
    return snapshot


# -- the world as it would be -----------------------------------------------------------------------------------------
def without(snapshot: Snapshot, turns: Sequence[Turn]) -> Snapshot:
    """The snapshot as it would be had these tasks given back what they hold."""
    if not turns:
        return snapshot
    nodes = {node.node_id: node for node in snapshot.nodes}
    tenants, held, pools = dict(snapshot.tenants), dict(snapshot.mutex_held), dict(snapshot.pools)
    workflows = snapshot.workflows
    for turn in turns:
        node, vector, kind = nodes.get(turn.node_id), filled(turn.line.vector), turn.task.kind
        if node is not None:
            nodes[turn.node_id] = replace(
                node, exclusive_used=subtract(filled(node.exclusive_used), vector),
                exclusive_count={**node.exclusive_count, kind: max(0, node.exclusive_count.get(kind, 0) - 1)},
            )  # fmt: skip
        tenant = tenants.get(turn.line.tenant_id)
        if tenant is not None:
            tenants[turn.line.tenant_id] = replace(
                tenant, in_flight=tenant.in_flight - 1, used_slots_milli=add_slots(tenant.used_slots_milli, {kind: MILLI}, -1),
                used=subtract(filled(tenant.used), vector),
            )  # fmt: skip
        if turn.line.pool in pools:
            pools[turn.line.pool] = _pool_without(pools[turn.line.pool], turn.line.tenant_id, {kind: MILLI}, vector)
        if turn.line.tenant_id in workflows.get(turn.line.pool, ()):
            workflows = _workflow_without(workflows, turn.line, {kind: MILLI}, vector)
        if turn.task.mutex_key is not None:
            held[turn.task.mutex_key] = held.get(turn.task.mutex_key, 0) - 1
    return replace(snapshot, nodes=tuple(nodes.values()), tenants=tenants, mutex_held=held, pools=pools,
                   workflows=workflows)  # fmt: skip


def _workflow_without(workflows: Workflows, line: LineView, slots: Slots, vector: Vector) -> Workflows:
    of_pool = workflows[line.pool]
    members = of_pool[line.tenant_id]
    held, used = members.get(line.workflow, (NO_SLOTS, vector))
    left = (add_slots(held, slots, -1), subtract(filled(used), vector))
    return {**workflows, line.pool: {**of_pool, line.tenant_id: {**members, line.workflow: left}}}


def _pool_without(pool: PoolView, tenant_id: int, slots: Slots, vector: Vector) -> PoolView:
    tenants = dict(pool.tenants)
    if tenant_id in tenants:
        held, used = tenants[tenant_id]
        tenants[tenant_id] = (add_slots(held, slots, -1), subtract(filled(used), vector))
    left = add_slots(pool.used_slots_milli, slots, -1)
    return replace(pool, used=subtract(filled(pool.used), vector), used_slots_milli=left, tenants=tenants)


def _with(lines: Sequence[LineView], line: LineView, task: TaskView) -> tuple[LineView, ...]:
    """Lines with one more head, in its place."""
    found = next((each for each in lines if each.line_id == line.line_id), None)
    heads = sorted([*(found.heads if found else ()), task], key=lambda each: (each.rank, each.task_id))
    longer = replace(found or line, heads=tuple(heads))
    return (*(each for each in lines if each.line_id != line.line_id), longer)
