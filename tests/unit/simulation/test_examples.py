"""The simulator: worked examples, theory, workflows, limits."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.policies.registry import ORDER_POLICIES, SHARE_POLICIES, order_policy, share_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Cell, Job, Run, Trace

SECOND = 1_000_000
OPEN = SchedulerConf(peak_permille=1000, delayable_permille=1000, reserve_after_s=0)


def simulate(jobs: list[Job], cell: Cell, order: str = "fifo", share: str = "equal", **options: Any) -> Run:
    engine = Engine(
        Trace(name="test", jobs=jobs),
        cell,
        order=order_policy(order, options.pop("order_parameters", {})),
        share=share_policy(share, options.pop("share_parameters", {})),
        conf=options.pop("conf", OPEN),
        **options,
    )
    return engine.run(time.perf_counter)


def mission(*, together: bool = False) -> list[Job]:
    """The three tasks of the worked examples: (arrival, run) of (0, 10), (6, 5), (8, 3) seconds."""
    given = [(0, 10), (6, 5), (8, 3)]
    return [
        Job(index, 0 if together else arrived * SECOND, run * SECOND, expected_us=run * SECOND)
        for index, (arrived, run) in enumerate(given)
    ]


def ends(run: Run) -> list[float]:
    return [end / SECOND for end in run.ended_us]


ONE = Cell(nodes=1, slots=1)


def test_fifo_finishes_at_10_15_18() -> None:
    run = simulate(mission(), ONE)
    assert ends(run) == [10, 15, 18]
    assert sum(ends(run)) / 3 == pytest.approx(14.33, abs=0.005)


def test_shortest_first_finishes_at_3_8_18() -> None:
    run = simulate(mission(together=True), ONE, "shortest_first")
    assert sorted(ends(run)) == [3, 8, 18]
    assert sum(ends(run)) / 3 == pytest.approx(9.67, abs=0.005)


def test_round_robin_finishes_at_17_18_15() -> None:
    run = simulate(mission(), ONE, "round_robin", order_parameters={"quantum_ms": 2000})
    assert ends(run) == [17, 18, 15]
    assert run.preemptions == 5, "nobody was there to yield to at 2 and 4"
    assert sum(end - start for _, start, end in run.segments) == 18 * SECOND


@pytest.mark.parametrize("order", ["round_robin", "feedback"])
def test_a_slice_that_nobody_waits_for_costs_nothing(order: str) -> None:
    """A month alone is no million of turns; who comes meanwhile gets the slot at the end of the slice it falls in."""
    month = 30 * 86_400 * SECOND
    run = simulate([Job(0, 0, month), Job(1, month // 2 + 1, 1000)], ONE, order)
    assert run.decisions < 10
    assert run.preemptions == 1
    longest = 16 * SECOND  # the last level's slice; round robin's has 2 s
    assert month // 2 < run.started_us[1] <= month // 2 + longest
    assert run.ended_us[0] == month + 1000
    assert sum(end - start for _, start, end in run.segments) == month + 1000


def test_the_feedback_queue_lets_short_tasks_by_and_finishes_long_ones() -> None:
    jobs = [Job(0, 0, 100 * SECOND), *[Job(index, index * 2 * SECOND, SECOND) for index in range(1, 40)]]
    run = simulate(jobs, ONE, "feedback", order_parameters={"quanta_ms": [1000, 2000, 4000]})
    assert all(end - job.arrived_us <= 5 * SECOND for job, end in zip(jobs[1:], run.ended_us[1:], strict=True))
    assert ends(run)[0] == 139


@pytest.mark.parametrize("order", sorted(ORDER_POLICIES))
@pytest.mark.parametrize("share", sorted(SHARE_POLICIES))
def test_every_pair_of_policies_runs_everything_once(order: str, share: str) -> None:
    rng = random.Random(3)
    jobs = [
        Job(
            index,
            index * 100_000,
            rng.randrange(1, 3 * SECOND),
            tenant=rng.randrange(3),
            vector=(rng.choice([500, 1000, 3000]), 10, 0, 0, 0, 0),
            category=rng.choice(list(Category)),
            expected_us=SECOND,
            mutex_key=rng.choice([None, None, "k"]),
            parents=(index - 3,) if index > 3 and rng.random() < 0.3 else (),
        )
        for index in range(200)
    ]
    cell = Cell(nodes=2, slots=3, capacity=(3000, 1000, 0, 0, 0, 0))
    run = simulate(jobs, cell, order, share, conf=SchedulerConf())
    assert min(run.ended_us) > 0
    assert run.unplaced == {}
    for job, start, end in zip(jobs, run.started_us, run.ended_us, strict=True):
        assert start >= job.arrived_us
        assert end - start >= job.run_us
        assert all(run.ended_us[parent] <= start for parent in job.parents)
    _check_never_over(run, cell)
    _check_mutex(run)


def _spans(run: Run) -> list[tuple[int, int, int]]:
    if run.segments:
        return list(run.segments)
    return [(job.index, run.started_us[job.index], run.ended_us[job.index]) for job in run.trace.jobs]


def _check_never_over(run: Run, cell: Cell) -> None:
    capacity = cell.views()[0].capacity
    events = sorted(
        (at, change, index)
        for index, start, end in _spans(run)
        for at, change in ((start, 1), (end, -1))
        if start < end
    )
    running, cpu = 0, 0
    for _, change, index in events:
        running += change
        cpu += change * run.trace.jobs[index].vector[0]
        assert running <= cell.nodes * cell.slots
        assert cpu <= cell.nodes * capacity[0]


def _check_mutex(run: Run) -> None:
    held = sorted((s, e) for index, s, e in _spans(run) if run.trace.jobs[index].mutex_key)
    assert all(first[1] <= second[0] for first, second in pairwise(held))


def test_the_same_trace_gives_the_same_run() -> None:
    def once() -> Run:
        rng = random.Random(5)
        jobs = [
            Job(
                i,
                i * 10_000,
                rng.randrange(1, SECOND),
                tenant=i % 7,
                vector=(rng.choice([500, 900]),) + (0,) * 5,
            )
            for i in range(500)
        ]
        return simulate(jobs, Cell(nodes=3, slots=2), share="dominant_resource")

    first, second = once(), once()
    assert first.started_us == second.started_us
    assert first.ended_us == second.ended_us


def test_children_wait_for_their_parents_and_parallel_ones_run_at_once() -> None:
    jobs = [
        Job(0, 0, SECOND),
        Job(1, 0, 2 * SECOND, parents=(0,)),
        Job(2, 0, 3 * SECOND, parents=(0,)),
        Job(3, 0, SECOND, parents=(1, 2)),
    ]
    assert ends(simulate(jobs, Cell(slots=4))) == [1, 3, 4, 5]


def test_what_can_never_run_is_told_and_holds_up_nobody() -> None:
    jobs = [Job(0, 0, SECOND, vector=(9000, 0, 0, 0, 0, 0)), Job(1, 0, SECOND)]
    run = simulate(jobs, Cell(slots=4))
    assert list(run.unplaced) == [0]
    assert ends(run)[1] == 1


def test_off_peak_work_waits_for_the_peak_to_pass() -> None:
    busy = [Job(index, 0, 10 * SECOND, tenant=1) for index in range(9)]
    later = [Job(9 + index, SECOND, SECOND, tenant=2, category=Category.OFFPEAK) for index in range(2)]
    run = simulate([*busy, *later], Cell(slots=10), conf=SchedulerConf(peak_permille=800))
    assert [run.started_us[index] for index in (9, 10)] == [10 * SECOND, 10 * SECOND]


@pytest.mark.parametrize("order", sorted(ORDER_POLICIES))
def test_a_task_near_its_latest_start_becomes_urgent(order: str) -> None:
    """It stands behind a hundred others of its line, and of another tenant's, and yet starts in time."""
    jobs = [Job(index, 0, SECOND, tenant=index % 2, expected_us=SECOND // 2) for index in range(200)]
    jobs.append(Job(200, 0, SECOND, tenant=0, tolerance_us=20 * SECOND, expected_us=SECOND))
    run = simulate(jobs, Cell(slots=1), order)
    assert run.started_us[200] <= 20 * SECOND
    assert sorted(run.ended_us) == [SECOND * each for each in range(1, 202)] or run.segments


def starved(pools: dict[str, Any], **options: Any) -> Run:
    """Four slots held for 100 s by one pool when another comes at 10 s with two jobs of 5 s."""
    held = [Job(index, 0, 100 * SECOND, pool="big", tenant=0, **options) for index in range(4)]
    late = [Job(4 + index, 10 * SECOND, 5 * SECOND, pool="small", tenant=1) for index in range(2)]
    parameters = {"pools": pools, "starvation_s": 20}
    return simulate([*held, *late], Cell(slots=4), share="fair", share_parameters=parameters)


def test_a_starving_pool_gets_its_minimum_after_the_delay() -> None:
    run = starved({"small": {"guaranteed": 50}, "big": {"guaranteed": 50}})
    assert [start / SECOND for start in run.started_us[4:]] == [30, 30]
    assert run.preemptions == 2
    assert sorted(ends(run)) == [35, 35, 100, 100, 135, 135]


def test_nothing_is_ended_that_may_not_be_repeated_or_without_a_minimum() -> None:
    both = {"small": {"guaranteed": 50}, "big": {"guaranteed": 50}}
    for run in (starved(both, idempotent=False), starved({"small": {"weight": 9}})):
        assert run.preemptions == 0
        assert run.started_us[4] == 100 * SECOND


def test_a_pool_at_its_own_minimum_is_left_alone() -> None:
    run = starved({"small": {"guaranteed": 30}, "big": {"guaranteed": 70}})
    assert run.preemptions == 1


def test_backfill_fills_the_gap_without_delaying_the_big_one() -> None:
    """Four CPUs: three are held for 10 s, a job of four waits; one of 9 s fits in before, one of 20 s does
    not."""
    jobs = [
        Job(0, 0, 10 * SECOND, vector=(3000, 0, 0, 0, 0, 0), expected_us=10 * SECOND),
        Job(1, 1, 5 * SECOND, vector=(4000, 0, 0, 0, 0, 0), expected_us=5 * SECOND, tenant=1),
        Job(2, 2, 20 * SECOND, expected_us=20 * SECOND, tenant=2),
        Job(3, 3, 9 * SECOND, expected_us=9 * SECOND, tenant=2),
    ]
    starts = [start / SECOND for start in simulate(jobs, Cell(slots=4)).started_us]
    assert starts[1] == 10
    assert starts[3] < 1
    assert starts[2] == 15


def test_without_a_reservation_small_jobs_would_starve_the_big_one() -> None:
    def stream() -> list[Job]:
        small = [Job(index, index * SECOND // 2, 2 * SECOND, tenant=1, expected_us=2 * SECOND) for index in range(200)]
        big = Job(200, 100 * SECOND, SECOND, tenant=2, vector=(4000, 0, 0, 0, 0, 0), expected_us=SECOND)
        return [*small, big]

    kept = simulate(stream(), Cell(slots=4), backfill=True)
    assert kept.started_us[200] - 100 * SECOND <= 2 * SECOND


def test_equal_shares_whatever_is_handed_in() -> None:
    """Fifty to one in submissions: served time of the two tenants stays level while both have work."""
    jobs = [Job(index, 0, SECOND, tenant=0 if index % 51 else 1) for index in range(5100)]
    run = simulate(jobs, Cell(slots=4))
    until = max(run.ended_us[job.index] for job in jobs if job.tenant == 1)
    served = [sum(1 for job in jobs if job.tenant == tenant and run.ended_us[job.index] <= until) for tenant in (0, 1)]
    assert abs(served[0] - served[1]) <= 4


def _poisson(count: int, load: float, seed: int, draw: Any) -> list[Job]:
    rng, now, jobs = random.Random(seed), 0.0, []
    for index in range(count):
        now += rng.expovariate(load)
        jobs.append(Job(index, int(now * SECOND), max(1, int(draw(rng) * SECOND))))
    return jobs


def _mean_wait(jobs: list[Job], run: Run) -> float:
    """Mean wait in units of the mean run time, without the first tenth."""
    waits = [start - job.arrived_us for job, start in zip(jobs, run.started_us, strict=True)]
    kept = waits[len(waits) // 10 :]
    return sum(kept) / len(kept) / SECOND


def test_shortest_first_is_never_worse_than_fifo_when_all_come_together() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        runs = [rng.randrange(1, 100) for _ in range(30)]

        def mean(order: str, runs: list[int] = runs) -> float:
            jobs = [Job(index, 0, run, expected_us=run) for index, run in enumerate(runs)]
            return sum(simulate(jobs, ONE, order).ended_us) / len(jobs)

        assert mean("shortest_first") <= mean("fifo")


def test_round_robin_with_a_tiny_slice_is_close_to_processor_sharing() -> None:
    """Under processor sharing a job of size x spends x / (1 - load) in the system, whatever the
    distribution."""
    jobs = _poisson(3000, 0.6, 11, lambda rng: rng.choice([0.5, 1.5]))
    run = simulate(jobs, ONE, "round_robin", order_parameters={"quantum_ms": 20})
    for size in (0.5, 1.5):
        chosen = [job for job in jobs[300:] if job.run_us == int(size * SECOND)]
        mean = sum(run.ended_us[job.index] - job.arrived_us for job in chosen) / len(chosen) / SECOND
        assert mean == pytest.approx(size / 0.4, rel=0.12)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_the_wait_of_m_m_1_is_near_its_formula(load: float) -> None:
    jobs = _poisson(40_000, load, 1, lambda rng: rng.expovariate(1))
    assert _mean_wait(jobs, simulate(jobs, ONE, backfill=False)) == pytest.approx(load / (1 - load), rel=0.12)
