"""What a graph says of the order of its members."""

from __future__ import annotations

import random

from scheduler_ext.core.dag import Dag
from scheduler_ext.core.precedence import UNKNOWN_US, inherit, weigh
from scheduler_ext.core.states import Category
from scheduler_ext.policies.base import OrderPolicy
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Cell, Job, Run, Trace

SECOND = 1_000_000


def graph(*parents: list[int]) -> Dag:
    return Dag([str(n) for n in range(len(parents))], parents)


def test_paths_and_work_are_those_of_what_is_connected() -> None:
    diamond = graph([], [0], [0], [1, 2], [])
    assert [tuple(each) for each in weigh(diamond, [10, 20, 50, 5, 7])] == [
        (65, 85), (25, 85), (55, 85), (5, 85), (7, 7),
    ]  # fmt: skip
    whole = weigh(diamond, [10, 20, 50, 5, 7], [1, None, None, None, 1])
    assert [each.work_us for each in whole] == [92] * 5, "of one workflow, though nothing connects them"
    assert weigh(diamond, [10, None, 50, None, None])[1].path_us == 60, "what is not learnt counts as the mean"
    assert weigh(graph([]), [None])[0].path_us == UNKNOWN_US


def test_what_is_needed_is_as_pressing_as_what_needs_it() -> None:
    chain = graph([], [0], [1], [0])
    assert inherit(chain, [(False, 0), (False, 900), (True, 5), (False, 7)]) == [
        (True, 900), (True, 900), (True, 5), (False, 7),
    ]  # fmt: skip


def run(jobs: list[Job], order: OrderPolicy, slots: int) -> Run:
    trace = Trace(name="graph", jobs=jobs)
    return Engine(trace, Cell(slots=slots), order=order, share=share_policy("equal"), backfill=False).run(lambda: 0.0)


def test_an_urgent_dependant_takes_its_parent_with_it_past_a_backlog() -> None:
    """A parent of no priority and its child of the highest, among a thousand tasks that came before them."""
    for changes in ({"priority": 1000}, {"category": Category.URGENT}):
        jobs = [Job(n, 0, SECOND, priority=5) for n in range(1000)]
        jobs += [Job(1000, SECOND, SECOND), Job(1001, SECOND, SECOND, parents=(1000,), **changes)]
        found = run(jobs, order_policy("fifo"), 1)
        assert found.started_us[1001] == 2 * SECOND, "its parent ran as soon as the first task had ended"


def workflows(seed: int, count: int) -> list[Job]:
    """Fork and join: a few large workflows among small ones, nearly as much as eight slots can do."""
    rng, arrived = random.Random(seed), 0.0
    jobs: list[Job] = []
    for _ in range(count):
        wide, each = rng.choice((2, 4, 12)), int(SECOND * rng.lognormvariate(1.5, 1.0))
        first = len(jobs)
        middle = range(first + 1, first + 1 + wide)
        jobs.append(Job(first, int(arrived), each, expected_us=each))
        jobs += [Job(n, int(arrived), each, expected_us=each, parents=(first,)) for n in middle]
        jobs.append(Job(middle.stop, int(arrived), each, expected_us=each, parents=tuple(middle)))
        arrived += rng.expovariate(8 * 0.9 / (SECOND * 53.0))
    return jobs


def ends_of(jobs: list[Job], found: Run) -> list[float]:
    """How long each workflow took from its arrival to the end of its last task."""
    spans: list[float] = []
    for job, ended in zip(jobs, found.ended_us, strict=True):
        if not job.parents:
            spans.append(0.0)
        spans[-1] = max(spans[-1], (ended - job.arrived_us) / SECOND)
    return spans


def test_small_workflows_end_sooner_and_the_guard_holds_the_slowest() -> None:
    told = {}
    for name in ("fifo", "workflow"):
        jobs = workflows(3, 250)
        spans = sorted(ends_of(jobs, run(jobs, order_policy(name), 8)))
        told[name] = (sum(spans) / len(spans), spans[int(0.95 * len(spans))])
    mean, slow = (after / before for before, after in zip(told["fifo"], told["workflow"], strict=True))
    assert mean <= 0.8, told
    assert slow <= 1.2, told
