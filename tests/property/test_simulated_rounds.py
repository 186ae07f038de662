"""What the simulator starts at one moment is what a live round would start."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import LineView, NodeView, Snapshot, TaskView, TenantView, Vector, WorkKind
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.round.prioritizer import prioritize
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Cell, Job, RateLimit, Trace

CONF = SchedulerConf(reserve_after_s=1e9, round_limit=10_000, peak_permille=700, delayable_permille=900)
POOLS = ("", "", "org/a", "org/b", "solo", "client acme")
PARAMETERS: dict[str, dict[str, Any]] = {
    "equal": {},
    "capacity": {"queues": {"org": {"guaranteed": 50, "maximum": 70}, "org/a": {"guaranteed": 30, "maximum": 60}}},
    "fair": {"pools": {"org": {"weight": 2}, "org/a": {"guaranteed": 20}, "solo": {"inside": "fifo"}}},
    "dominant_resource": {"pools": {"org": {"weight": 3}}},
}
VECTORS: tuple[Vector, ...] = ((100, 1, 0, 0, 0, 0), (300, 2, 0, 0, 0, 0), (200, 5, 0, 0, 0, 0))


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    """Work of a few tenants, all there at 0."""
    return [
        Job(
            index,
            0,
            1000,
            tenant=draw(st.integers(0, 3)),
            vector=draw(st.sampled_from(VECTORS)),
            category=draw(st.sampled_from(Category)),
            priority=draw(st.integers(0, 2)),
            pool=draw(st.sampled_from(POOLS)),
            mutex_key=draw(st.sampled_from([None, None, None, "k"])),
            mutex_limit=2,
            workflow=draw(st.sampled_from([None, 1, 2])),
            name=f"{index:03}",
        )
        for index in range(draw(st.integers(1, 40)))
    ]


@given(
    jobs(),
    st.integers(1, 3),
    st.integers(1, 6),
    st.sampled_from(sorted(PARAMETERS)),
    st.sampled_from([(1, 1, 1, 1), (3, 1, 2, 5)]),
)
def test_the_first_moment_is_a_live_round(
    given_jobs: list[Job], nodes: int, slots: int, share: str, weights: tuple[int, ...]
) -> None:
    cell = Cell(nodes=nodes, slots=slots, capacity=(700, 12, 0, 0, 0, 0))
    tenants = {
        number: TenantView(
            tenant_id=number,
            weight=weight,
            max_in_flight=5 if number == 1 else None,
            guaranteed_permille=200 if number == 2 else 0,
        )
        for number, weight in enumerate(weights)
    }
    policy = share_policy(share, PARAMETERS[share])
    assert _simulated(given_jobs, cell, tenants, policy) == _live(given_jobs, cell, tenants, policy)


@given(
    jobs(),
    st.integers(1, 6),
    st.sampled_from(sorted(PARAMETERS)),
    st.lists(st.integers(0, 90), min_size=4, max_size=4),
    st.lists(st.sampled_from([(), (1,), (2,), (1, 2)]), min_size=40, max_size=40),
    st.sampled_from([0, 60]),
)
def test_so_it_is_with_past_use_and_execution_rates(
    given_jobs: list[Job], slots: int, share: str, past: list[int], rates: list[tuple[int, ...]], memory_s: int
) -> None:
    cell = Cell(nodes=2, slots=slots, capacity=(700, 12, 0, 0, 0, 0))
    tenants = {n: TenantView(tenant_id=n) for n in range(len(past))}
    use = {f"tenant {n}": float(seconds) for n, seconds in enumerate(past)}
    for job, limits in zip(given_jobs, rates, strict=False):
        job.rates = limits
    left = {1: 2, 2: 5}
    policy = share_policy(share, {**PARAMETERS[share], "memory_s": memory_s})
    simulated = _simulated(given_jobs, cell, tenants, policy, left, use)
    assert simulated == _live(given_jobs, cell, tenants, policy, left, use)


def test_a_task_that_finds_no_room_hides_nobody_whether_or_not_it_has_a_rate() -> None:
    """One of tenant 0's found none, so one of tenant 1's with a rate finds none either: tenant 3, whose turn it is, is next."""
    small, large, urgent = VECTORS[0], VECTORS[1], Category.URGENT
    kinds = [
        (0, small, urgent, 0, "", ()), (2, small, urgent, 0, "", ()), (0, small, urgent, 0, "", ()),
        (1, large, urgent, 0, "", (1,)), (3, small, urgent, 0, "", ()), (0, small, Category.DELAYABLE, 0, "", ()),
        (1, large, urgent, 1, "", ()), (0, small, urgent, 0, "", ()), (0, large, urgent, 0, "", ()),
        (0, small, urgent, 0, "org/a", (1,)), (0, small, urgent, 0, "org/a", (1,)),
    ]  # fmt: skip
    work = [
        Job(index, 0, 1000, tenant=tenant, vector=vector, category=category, priority=priority, pool=pool, rates=rates,
            mutex_limit=2, name=f"{index:03}")
        for index, (tenant, vector, category, priority, pool, rates) in enumerate(kinds)
    ]  # fmt: skip
    cell, tenants = (
        Cell(nodes=2, slots=4, capacity=(700, 12, 0, 0, 0, 0)),
        {n: TenantView(tenant_id=n) for n in range(4)},
    )
    policy = share_policy("capacity", {**PARAMETERS["capacity"], "memory_s": 60})
    use, left = {"tenant 0": 0.0, "tenant 1": 10.0, "tenant 2": 0.0, "tenant 3": 23.0}, {1: 2, 2: 5}
    simulated = _simulated(work, cell, tenants, policy, left, use)
    assert simulated == _live(work, cell, tenants, policy, left, use)
    assert "004" in simulated
    assert "005" not in simulated


def _simulated(
    given_jobs: list[Job],
    cell: Cell,
    tenants: dict[int, TenantView],
    policy: SharePolicy,
    left: dict[int, int] | None = None,
    past_use: dict[str, float] | None = None,
) -> set[str]:
    limits = {limit: RateLimit(starts=starts, per_us=1) for limit, starts in (left or {}).items()}
    engine = Engine(
        Trace(name="moment", jobs=given_jobs, limits=limits, shares={1: 1, 2: 3}),
        cell,
        order=order_policy("fifo"),
        share=policy,
        conf=CONF,
        tenants=tenants,
        past_use=past_use,
    )
    run = engine.run(time.perf_counter)
    return {job.task_id for job in given_jobs if run.started_us[job.index] == 0}


def _live(
    given_jobs: list[Job],
    cell: Cell,
    tenants: dict[int, TenantView],
    policy: SharePolicy,
    left: dict[int, int] | None = None,
    past_use: dict[str, float] | None = None,
) -> set[str]:
    snapshot = replace(_snapshot(given_jobs, cell, tenants), rates_left=left or {}, past_use=past_use or {})
    return {decision.task_id for decision in prioritize(snapshot, CONF, policy).decisions}


def _snapshot(given_jobs: list[Job], cell: Cell, tenants: dict[int, TenantView]) -> Snapshot:
    """The same moment as the store would show it: the lines the engine laid out, with their tasks by rank."""
    waiting: dict[int, tuple[LineView, list[Job]]] = {}
    for job in given_jobs:
        assert job.line is not None
        waiting.setdefault(job.line.line_id, (job.line, []))[1].append(job)
    lines = [
        LineView(
            line_id=line.line_id,
            tenant_id=line.tenant_id,
            category=line.category,
            tier_id=line.tier_id,
            vector=line.vector,
            pool=line.pool,
            workflow=line.workflow,
            weight=line.weight,
            heads=tuple(_task(job) for job in sorted(members, key=lambda each: (each.rank, each.index))),
        )
        for line, members in waiting.values()
    ]
    nodes: tuple[NodeView, ...] = cell.views()
    return Snapshot(now=0.0, cell="simulated", nodes=nodes, tenants=tenants, lines=tuple(lines))


def _task(job: Job) -> TaskView:
    assert job.line is not None
    return TaskView(
        task_id=job.task_id,
        line_id=job.line.line_id,
        fence=0,
        rank=job.rank,
        kind=WorkKind.PROCESS,
        priority=job.priority,
        submitted_at=0.0,
        alone=True,
        mutex_key=job.mutex_key,
        mutex_limit=job.mutex_limit,
        rates=job.rates,
    )
