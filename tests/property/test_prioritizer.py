"""Rounds on random cells: nothing is ever exceeded, and nothing waits without cause."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.resources import add, fits, peak, scale, zero
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    Decision,
    LineView,
    NodeView,
    Plan,
    Reason,
    Snapshot,
    TaskView,
    TenantView,
    WorkKind,
)
from scheduler_ext.policies.registry import SHARE_POLICIES, share_policy
from scheduler_ext.round.claims_ahead import is_over_soon, may_follow, places
from scheduler_ext.round.gate import short_milli
from scheduler_ext.round.prioritizer import prioritize
from tests.support.deciding import many, node, snapshot

CONF = SchedulerConf(round_limit=40)
KINDS = st.sampled_from([WorkKind.PROCESS, WorkKind.PROCESS, WorkKind.PROCESS, WorkKind.SCRIPT])


@st.composite
def tasks(draw: st.DrawFn, name: str, line: int, place: int) -> TaskView:
    kind = draw(KINDS)
    return TaskView(
        task_id=name,
        line_id=line,
        fence=0,
        rank=(0, place),
        kind=kind,
        handler_id=None if kind is WorkKind.SCRIPT else draw(st.integers(1, 2)),
        priority=draw(st.integers(0, 1)),
        submitted_at=float(draw(st.integers(0, 3))),
        expected_us=draw(st.none() | st.integers(1, 30_000)),
        alone=draw(st.booleans()) and draw(st.booleans()),
        mutex_key=draw(st.none() | st.sampled_from(["k1", "k2"])),
        mutex_limit=2,
        avoid_node=draw(st.none() | st.integers(1, 3)),
    )


@st.composite
def cells(draw: st.DrawFn) -> Snapshot:
    nodes = []
    for number in range(1, draw(st.integers(0, 3)) + 1):
        slots = {WorkKind.PROCESS: draw(st.integers(0, 4)), WorkKind.SCRIPT: draw(st.integers(0, 2))}
        busy = draw(st.integers(0, slots[WorkKind.PROCESS]))
        capacity = tuple(draw(st.integers(4, 12)) for _ in range(6))
        nodes.append(
            NodeView(
                node_id=number,
                name=str(number),
                capacity=capacity,
                slots=slots,
                handlers=frozenset(draw(st.sets(st.integers(1, 2)))),
                exclusive_count={WorkKind.PROCESS: busy},
                exclusive_used=(busy, 0, 0, 0, 0, 0),
                passing=draw(st.integers(0, busy)),
                least=(1, 0, 0, 0, 0, 0) if busy else (),
            )
        )
    lines = []
    for number in range(1, draw(st.integers(0, 6)) + 1):
        heads = [draw(tasks(f"{number}-{place}", number, place)) for place in range(draw(st.integers(0, 6)))]
        lines.append(
            LineView(
                line_id=number,
                tenant_id=draw(st.integers(1, 3)),
                category=draw(st.sampled_from(Category)),
                tier_id=1,
                vector=tuple(draw(st.integers(0, 6)) for _ in range(6)),
                heads=tuple(heads),
                paused=draw(st.integers(0, 9)) == 0,
            )
        )
    tenants = [
        TenantView(
            tenant_id=number,
            weight=draw(st.integers(1, 4)),
            in_flight=1,
            max_in_flight=draw(st.none() | st.integers(1, 6)),
            guaranteed_permille=draw(st.sampled_from([0, 300])),
            maximum_permille=draw(st.sampled_from([1000, 600])),
        )
        for number in range(1, 4)
    ]
    return snapshot(lines, nodes, tenants, mutex_held={"k1": draw(st.integers(0, 2))})


SHARES = st.sampled_from(sorted(SHARE_POLICIES))


@given(cells(), SHARES)
def test_every_nominated_task_is_decided_once_or_has_its_reason(cell: Snapshot, share: str) -> None:
    plan = prioritize(cell, CONF, share_policy(share))
    decided = [decision.task_id for decision in plan.decisions]
    nominated = {task.task_id for line in cell.lines for task in line.heads}
    assert len(decided) == len(set(decided)) <= CONF.round_limit
    assert set(decided) | set(plan.left) == nominated
    assert not set(decided) & set(plan.left)


@given(cells(), SHARES)
def test_the_same_cell_gives_the_same_plan(cell: Snapshot, share: str) -> None:
    first = prioritize(cell, CONF, share_policy(share))
    assert first == prioritize(cell, CONF, share_policy(share))


@given(cells(), SHARES)
def test_no_node_holds_more_than_it_has(cell: Snapshot, share: str) -> None:
    plan = prioritize(cell, CONF, share_policy(share))
    views = {view.node_id: view for view in cell.nodes}
    of_task = {task.task_id: (line, task) for line in cell.lines for task in line.heads}
    by_node: dict[int, list[Decision]] = defaultdict(list)
    for decision in plan.decisions:
        by_node[decision.node_id].append(decision)
    for node_id, decisions in by_node.items():
        _check_node(views[node_id], decisions, of_task)


def _check_node(view: NodeView, decisions: list[Decision], of_task: dict[str, tuple[LineView, TaskView]]) -> None:
    held, largest, milli, shorts = view.exclusive_used, zero(), 0, 0
    counts = Counter(view.exclusive_count)
    whole = [d for d in decisions if d.exclusive and d.kind is WorkKind.PROCESS]
    ahead = whole[view.slots[WorkKind.PROCESS] - counts[WorkKind.PROCESS] :]
    _check_ahead(view, whole[: len(whole) - len(ahead)], ahead, of_task)
    for decision in decisions:
        if decision in ahead:
            continue
        line, task = of_task[decision.task_id]
        assert task.handler_id is None or task.handler_id in view.handlers
        if decision.exclusive:
            counts[decision.kind] += 1
            held = add(held, line.vector)
        else:
            milli += short_milli(task)
            shorts += 1
            largest = peak(largest, line.vector)
    for kind, count in counts.items():
        assert count <= view.slots[kind]
    children = view.slots[WorkKind.PROCESS] - counts[WorkKind.PROCESS]
    assert milli <= children * 1000
    assert fits(add(held, scale(largest, min(children, shorts))), view.capacity)


def _check_ahead(
    view: NodeView, placed: list[Decision], ahead: list[Decision], of_task: dict[str, tuple[LineView, TaskView]]
) -> None:
    """What follows is over soon, few, and finds its room whichever ends first."""
    running = [of_task[d.task_id] for d in placed]
    soon = view.passing + sum(is_over_soon(task.kind, task.expected_us) for _, task in running)
    assert len(ahead) <= max(0, places(soon, 0))
    ends = [line.vector for line, _ in running] + [view.least] * bool(view.least)
    for decision in ahead:
        line, task = of_task[decision.task_id]
        assert may_follow(task)
        assert all(fits(line.vector, vector) for vector in ends)


@given(cells(), SHARES)
def test_no_limit_is_exceeded(cell: Snapshot, share: str) -> None:
    plan = prioritize(cell, CONF, share_policy(share))
    of_task = {task.task_id: (line, task) for line in cell.lines for task in line.heads}
    holders, flights = Counter(cell.mutex_held), Counter[int]()
    slots = defaultdict[int, Counter[WorkKind]](Counter)
    for decision in plan.decisions:
        line, task = of_task[decision.task_id]
        assert not line.paused
        flights[line.tenant_id] += 1
        slots[line.tenant_id][task.kind] += short_milli(task) or 1000
        if task.mutex_key:
            holders[task.mutex_key] += 1
            assert holders[task.mutex_key] <= task.mutex_limit
    for tenant_id, tenant in cell.tenants.items():
        if tenant.max_in_flight is not None:
            assert flights[tenant_id] == 0 or tenant.in_flight + flights[tenant_id] <= tenant.max_in_flight
        if tenant.maximum_permille < 1000:
            for kind, milli in slots[tenant_id].items():
                whole = 1000 * sum(view.slots[kind] for view in cell.nodes)
                assert milli * 1000 <= max(tenant.maximum_permille * whole, 1_000_000), kind


@given(cells(), SHARES)
def test_nothing_waits_for_room_that_is_there(cell: Snapshot, share: str) -> None:
    """Work conservation: run the round again on what it left; only room kept for a larger task is found."""
    conf = SchedulerConf(round_limit=1000)
    plan = prioritize(cell, conf, share_policy(share))
    after = prioritize(_applied(cell, plan, conf), conf, share_policy(share))
    assert {plan.left[decision.task_id] for decision in after.decisions} <= {Reason.RESERVED}
    assert not {Reason.SHARE} & set(plan.left.values())


def _applied(cell: Snapshot, plan: Plan, conf: SchedulerConf) -> Snapshot:
    """The cell once the plan's claims are in flight, without them in their lines."""
    of_task = {task.task_id: (line, task) for line in cell.lines for task in line.heads}
    gone = {decision.task_id for decision in plan.decisions}
    held = Counter(cell.mutex_held)
    flights, slots = Counter[int](), defaultdict[int, Counter[WorkKind]](Counter)
    nodes = [
        _with(view, [d for d in plan.decisions if d.node_id == view.node_id], of_task, conf) for view in cell.nodes
    ]
    for decision in plan.decisions:
        line, task = of_task[decision.task_id]
        flights[line.tenant_id] += 1
        slots[line.tenant_id][task.kind] += short_milli(task) or 1000
        if task.mutex_key:
            held[task.mutex_key] += 1
    tenants = [
        TenantView(
            tenant_id=view.tenant_id,
            weight=view.weight,
            in_flight=view.in_flight + flights[view.tenant_id],
            max_in_flight=view.max_in_flight,
            guaranteed_permille=view.guaranteed_permille,
            maximum_permille=view.maximum_permille,
            used_slots_milli=slots[view.tenant_id],
        )
        for view in cell.tenants.values()
    ]
    lines = [
        LineView(
            line_id=line.line_id,
            tenant_id=line.tenant_id,
            category=line.category,
            tier_id=line.tier_id,
            vector=line.vector,
            heads=tuple(task for task in line.heads if task.task_id not in gone),
            paused=line.paused,
        )
        for line in cell.lines
    ]
    return snapshot(lines, nodes, tenants, mutex_held=held)


def _with(
    view: NodeView,
    decisions: list[Decision],
    of_task: dict[str, tuple[LineView, TaskView]],
    conf: SchedulerConf,
) -> NodeView:
    held, largest, milli, shorts, counts = view.exclusive_used, zero(), 0, 0, Counter(view.exclusive_count)
    for decision in decisions:
        line, task = of_task[decision.task_id]
        if decision.exclusive:
            counts[decision.kind] += 1
            held = add(held, line.vector)
        else:
            milli += short_milli(task)
            shorts += 1
            largest = peak(largest, line.vector)
    return NodeView(
        node_id=view.node_id,
        name=view.name,
        capacity=view.capacity,
        slots=view.slots,
        handlers=view.handlers,
        exclusive_used=held,
        batch_peak=largest,
        exclusive_count=counts,
        batch_milli=milli,
        batch_count=shorts,
    )


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=6),
    st.integers(1, 60),
    st.lists(st.integers(0, 8), min_size=6, max_size=6),
)
def test_equal_turns_at_saturation_differ_by_at_most_one_task(weights: list[int], slots: int, held: list[int]) -> None:
    """Max-min fairness: nobody who was served holds more for its weight than another with one task more."""
    tenants = [
        TenantView(tenant_id=number, weight=weight, used_slots_milli={WorkKind.PROCESS: held[number - 1] * 1000})
        for number, weight in enumerate(weights, start=1)
    ]
    lines = [many(number, 70) for number in range(1, len(weights) + 1)]
    conf = SchedulerConf(delayable_permille=1000)
    plan = prioritize(snapshot(lines, [node(1, slots)], tenants), conf, share_policy("equal"))
    assert len(plan.decisions) == slots
    got = Counter(decision.line_id for decision in plan.decisions)
    for tenant in tenants:
        for other in tenants:
            if got[tenant.tenant_id] == 0:
                continue
            mine = held[tenant.tenant_id - 1] + got[tenant.tenant_id]
            theirs = held[other.tenant_id - 1] + got[other.tenant_id]
            assert (mine - 1) * other.weight <= theirs * tenant.weight
