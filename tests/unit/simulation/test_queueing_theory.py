"""The simulator against queueing theory: Lindley's recursion job by job, and the Pollaczek-Khinchine
formula."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Cell, Job, Run, Trace

SECOND = 1_000_000
LOADS = (0.5, 0.8, 0.9)
Draw = Callable[[random.Random], float]

EXPONENTIAL: Draw = lambda rng: rng.expovariate(1)  # noqa: E731 - a table of one-line functions
UNIFORM: Draw = lambda rng: rng.uniform(0, 2)  # noqa: E731
TWO_POINT: Draw = lambda rng: 0.5 if rng.random() < 0.9 else 5.5  # noqa: E731
SERVICES: dict[str, tuple[Draw, float]] = {
    # run times of mean 1, with their second moment
    "M/M/1": (EXPONENTIAL, 2.0),
    "M/G/1 uniform": (UNIFORM, 4 / 3),
    "M/G/1 two-point": (TWO_POINT, 0.9 * 0.25 + 0.1 * 30.25),
}


def arrivals(count: int, load: float, draw: Draw, rng: random.Random) -> list[Job]:
    now, jobs = 0.0, []
    for index in range(count):
        now += rng.expovariate(load)
        jobs.append(Job(index, int(now * SECOND), max(1, int(draw(rng) * SECOND))))
    return jobs


def simulate(jobs: list[Job]) -> Run:
    engine = Engine(
        Trace(name="queue", jobs=jobs),
        Cell(nodes=1, slots=1),
        order=order_policy("fifo"),
        share=share_policy("equal"),
        conf=SchedulerConf(peak_permille=1000, delayable_permille=1000),
        backfill=False,
    )
    return engine.run(time.perf_counter)


@pytest.mark.parametrize("service", sorted(SERVICES))
@pytest.mark.parametrize("load", LOADS)
def test_every_wait_is_lindleys(service: str, load: float) -> None:
    """One server, first come, first served: W(n+1) = max(0, W(n) + S(n) - A(n+1)), to the microsecond."""
    jobs = arrivals(5000, load, SERVICES[service][0], random.Random(9))
    run = simulate(jobs)
    free_at = 0
    for job, start in zip(jobs, run.started_us, strict=True):
        free_at = max(free_at, job.arrived_us)
        assert start == free_at
        free_at += job.run_us


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("service", sorted(SERVICES))
@pytest.mark.parametrize("load", LOADS)
def test_the_mean_wait_is_within_two_per_cent_of_the_formula(service: str, load: float) -> None:
    """Pollaczek-Khinchine: W = load * E[S^2] / (2 (1 - load)) for E[S] = 1. Batches, without their first
    twentieth."""
    draw, second_moment = SERVICES[service]
    batches, size = (12, 400_000) if load > 0.85 else (6, 200_000)
    total, count = 0, 0
    for seed in range(batches):
        jobs = arrivals(size, load, draw, random.Random(seed))
        run = simulate(jobs)
        for job in jobs[size // 20 :]:
            total += run.started_us[job.index] - job.arrived_us
        count += size - size // 20
    formula = load * second_moment / (2 * (1 - load))
    assert total / count / SECOND == pytest.approx(formula, rel=0.02)
