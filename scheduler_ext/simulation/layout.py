"""The layout of a simulated run: the lines its jobs wait in, its tenants, and the edges between jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scheduler_ext.core.dag import Dag
from scheduler_ext.core.precedence import inherit, weigh
from scheduler_ext.core.resources import total
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import LineView, NodeView, Snapshot, TenantView, WorkKind
from scheduler_ext.simulation.model import Job, Trace


def lines_of(trace: Trace) -> tuple[list[LineView], dict[int, LineView]]:
    """One line for each (tenant, category, vector, kind, pool, labels, workflow with a share of its own).

    And the lines its work moves to as time runs out: its tenant's urgent line, and from there the line of what is late.

    Each job is made new and told its line.
    """
    lines: dict[tuple[Any, ...], LineView] = {}

    def line_of(job: Job, category: Category, *, late: bool = False) -> LineView:
        weight = trace.shares.get(job.workflow) if job.workflow is not None else None
        workflow = str(job.workflow) if weight else ""
        key = (job.tenant, category, job.vector, job.kind, job.pool, job.labels, workflow, late)
        if key not in lines:
            number = len(lines)
            lines[key] = LineView(
                line_id=number, tenant_id=job.tenant, category=category, tier_id=number, vector=job.vector, heads=(),
                pool=job.pool, labels=job.labels, late=late, kind=job.kind,
                workflow=workflow, weight=weight or 1,
            )  # fmt: skip
        return lines[key]

    _weigh(trace)
    following: dict[int, LineView] = {}
    for job in trace.jobs:
        line = job.line = line_of(job, job.category)
        job.remaining_us, job.level = job.run_us, 0
        if job.latest_start_us is not None and line.line_id not in following:
            urgent = line_of(job, Category.URGENT)
            if urgent is not line:
                following[line.line_id] = urgent
            following[urgent.line_id] = line_of(job, Category.URGENT, late=True)
    return list(lines.values()), following


def _weigh(trace: Trace) -> None:
    """The order that the jobs' graph asks for, computed as a submission does."""
    jobs = trace.jobs
    if not any(job.parents or job.workflow is not None for job in jobs):
        return
    dag = Dag([""] * len(jobs), [job.parents for job in jobs])
    found = inherit(dag, [(job.category is Category.URGENT, job.priority) for job in jobs])
    weights = weigh(dag, [job.expected_us for job in jobs], [job.workflow for job in jobs])
    for job, (urgent, priority), weight in zip(jobs, found, weights, strict=True):
        job.priority, (job.path_us, job.work_us) = priority, weight
        if urgent:
            job.category = Category.URGENT


def tenants_of(trace: Trace) -> dict[int, TenantView]:
    numbers = {job.tenant for job in trace.jobs}
    return {number: TenantView(tenant_id=number, weight=trace.weights.get(number, 1)) for number in sorted(numbers)}


def edges_of(trace: Trace) -> tuple[list[list[int]], list[int]]:
    """The children of each job and the number of its parents; both empty without any edges."""
    if not any(job.parents for job in trace.jobs):
        return [], []
    children: list[list[int]] = [[] for _ in trace.jobs]
    missing = [len(job.parents) for job in trace.jobs]
    for job in trace.jobs:
        for parent in job.parents:
            children[parent].append(job.index)
    return children, missing


def is_alike(trace: Trace, tenants: Mapping[int, TenantView]) -> bool:
    """Whether all jobs ask for the same and nothing but room and ceilings holds them: no limit, mutex key or label."""
    jobs = trace.jobs
    return (
        len({(job.vector, job.kind) for job in jobs}) == 1
        and not any(job.mutex_key or job.rates or job.labels for job in jobs)
        and all(t.max_in_flight is None and t.maximum_permille >= 1000 and not t.paused for t in tenants.values())
    )


def one_node(snapshot: Snapshot, job: Job) -> Snapshot:
    """The cell as one node, where that has room for as many jobs like this as all nodes together."""

    def room(node: NodeView) -> int:
        fitting = [whole // need for whole, need in zip(node.capacity, job.vector, strict=True) if need]
        return min([node.slots.get(job.kind, 0), *fitting])

    nodes = snapshot.nodes
    slots: dict[WorkKind, int] = {}
    for node in nodes:
        for kind, count in node.slots.items():
            slots[kind] = slots.get(kind, 0) + count
    whole = NodeView(node_id=1, name="all", capacity=total(node.capacity for node in nodes), slots=slots)
    if any(node.labels for node in nodes) or room(whole) != sum(map(room, nodes)):
        return snapshot
    return replace(snapshot, nodes=(whole,))
