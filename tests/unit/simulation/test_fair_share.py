"""Nobody buys share with a tag, and nobody waits behind another's backlog: every share policy, in the simulator."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from functools import cache

import pytest

from scheduler_ext.core.states import Category
from scheduler_ext.core.types import CLIENT
from scheduler_ext.simulation.model import Cell, Job, Run
from tests.unit.simulation.test_examples import SECOND, simulate

EIGHT = Cell(nodes=1, slots=8)
POLICIES = ("equal", "dominant_resource", "fair", "capacity", "nested")
Given = tuple[int, float, float, Category, float | None]
"""Tenant, arrival and run time in seconds, category, tolerance in seconds."""


def jobs(given: Iterable[Given]) -> list[Job]:
    return [
        Job(index, int(arrived * SECOND), int(run * SECOND), tenant=tenant, category=category,
            tolerance_us=None if tolerance is None else int(tolerance * SECOND))
        for index, (tenant, arrived, run, category, tolerance) in enumerate(sorted(given, key=lambda one: one[1]))
    ]  # fmt: skip


def steady(tenant: int, per_s: float, *, until: float = 300.0, category: Category = Category.DELAYABLE,
           tolerance: float | None = None) -> list[Given]:  # fmt: skip
    """Tasks of a second, as they come."""
    rng, at, found = random.Random(tenant), 0.0, list[Given]()
    while (at := at + rng.expovariate(per_s)) < until:
        found.append((tenant, at, 1.0, category, tolerance))
    return found


def waits(run: Run, tenant: int, *, until: float = 300.0) -> list[float]:
    """Seconds from arrival to start of what arrived by then; unstarted work has waited until the end."""
    return sorted(
        (run.started_us[job.index] - job.arrived_us) / SECOND
        for job in run.trace.jobs
        if job.tenant == tenant and job.arrived_us < until * SECOND
    )


def held(run: Run, tenant: int, *, until: float = 300.0) -> float:
    """The tenant's part of all that ran until then."""
    ran: Counter[int] = Counter()
    for job in run.trace.jobs:
        ran[job.tenant] += max(0, min(run.ended_us[job.index], int(until * SECOND)) - run.started_us[job.index])
    return ran[tenant] / ran.total()


@cache
def in_no_hurry(share: str) -> Run:
    """A wants twice the cell, B a little more than its half of it."""
    return simulate(jobs(steady(1, 16.0) + steady(2, 4.4)), EIGHT, share=share)


@pytest.mark.parametrize("share", POLICIES)
@pytest.mark.parametrize(
    "claims", [{"category": Category.URGENT}, {"tolerance": 1.0}], ids=["urgent", "hardly any tolerance"]
)
def test_a_claim_to_be_in_a_hurry_wins_no_share(share: str, claims: dict[str, object]) -> None:
    """A says that all it wants is in a hurry."""
    honest = in_no_hurry(share)
    hurried = simulate(jobs(steady(1, 16.0, **claims) + steady(2, 4.4)), EIGHT, share=share)  # type: ignore[arg-type]
    for run in (honest, hurried):
        assert held(run, 2) == pytest.approx(0.5, abs=0.02)
    mean = [sum(waits(run, 2)) / len(waits(run, 2)) for run in (honest, hurried)]
    assert mean[1] <= 1.5 * mean[0] + 0.1


@pytest.mark.parametrize("share", POLICIES)
def test_urgent_work_within_its_share_starts_at_once(share: str) -> None:
    """Nine others want ten times the cell; what is urgent waits for the next slot that ends, and no longer."""
    rng = random.Random(7)
    flood: list[Given] = [
        (n, rng.random(), 0.5 + rng.random(), Category.DELAYABLE, None) for n in range(2, 4) for _ in range(3000)
    ]
    run = simulate(jobs(steady(1, 1.0, category=Category.URGENT) + flood), EIGHT, share=share)
    found = waits(run, 1)
    assert found[int(len(found) * 0.99)] <= 1.0


@pytest.mark.parametrize("share", POLICIES)
@pytest.mark.parametrize("category", [Category.URGENT, Category.OFFPEAK])
def test_a_newcomer_starts_after_at_most_one_task_of_each_other(share: str, category: Category) -> None:
    """Three slots, six with a backlog of long tasks; then a seventh comes with one. It stands behind no backlog."""
    rng = random.Random(3)
    backlog = [(n, 0.0, rng.uniform(1, 9000), Category(1 + n % 2), None) for n in range(6) for _ in range(40)]
    for arrives in (1_000.0, 40_000.0, 200_000.0):
        run = simulate(jobs([*backlog, (9, arrives, 5.0, category, None)]), Cell(nodes=1, slots=3), share=share)
        (came,) = (job for job in run.trace.jobs if job.tenant == 9)
        started = run.started_us[came.index]
        between = Counter(job.tenant for job in run.trace.jobs if came.arrived_us < run.started_us[job.index] < started)
        assert max(between.values(), default=0) <= 1


@pytest.mark.parametrize("share", POLICIES)
def test_a_client_split_into_five_tenants_wins_nothing(share: str) -> None:
    """Five tenants of one client, of whom each hands in as much as the one of another, and all of it is urgent."""
    split = jobs(
        (n, n / 10, 1.0, Category.URGENT if n else Category.DELAYABLE, None) for n in range(6) for _ in range(200)
    )
    for job in split:
        job.pool = f"{CLIENT}acme" if job.tenant else ""
    for slots, until in ((8, 40.0), (1, 300.0)):
        run = simulate(split, Cell(nodes=1, slots=slots), share=share)
        assert held(run, 0, until=until) == pytest.approx(0.5, abs=0.02)
        assert min(held(run, tenant, until=until) for tenant in range(1, 6)) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("share", POLICIES)
def test_with_fewer_slots_than_tenants_all_get_the_same(share: str) -> None:
    """One of them says that all it has is urgent; its tasks wait longest as well."""
    backlog = [
        (n, n / 100, 1.0, Category.URGENT if n == 0 else Category.DELAYABLE, None) for n in range(7) for _ in range(200)
    ]
    run = simulate(jobs(backlog), Cell(nodes=1, slots=2), share=share)
    for tenant in range(7):
        assert held(run, tenant, until=210.0) == pytest.approx(1 / 7, rel=0.05)


@pytest.mark.parametrize("share", POLICIES)
def test_what_is_late_goes_before_urgent_work_of_anybody(share: str) -> None:
    """Within its tenant's share: of three that hold nothing the one whose latest start has passed is first."""
    given: list[Given] = [
        (1, 0.0, 10.0, Category.URGENT, None),
        (1, 1.0, 1.0, Category.URGENT, None),
        (2, 2.0, 1.0, Category.URGENT, 3600.0),
        (3, 3.0, 1.0, Category.OFFPEAK, 2.0),
        (2, 4.0, 1.0, Category.URGENT, 1.0),
    ]
    started = simulate(jobs(given), Cell(nodes=1, slots=1), share=share).started_us
    assert sorted(started[n] // SECOND for n in (3, 4)) == [10, 11]
