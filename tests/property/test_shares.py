"""What share policies promise, on random cells."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import permutations

from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import Plan, Snapshot, TenantView, Vector
from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.feedback import Feedback
from scheduler_ext.policies.order.shortest_first import ShortestFirst
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.round.prioritizer import prioritize
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Cell, Job, Run, Trace
from tests.support.deciding import many, node, snapshot
from tests.support.examples import fewer

OPEN = SchedulerConf(delayable_permille=1000, peak_permille=1000, round_limit=5000, reserve_after_s=1e9)
CAPACITY: Vector = (1000, 1000, 1000, 0, 0, 0)
NEEDS = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)).map(lambda need: (*need, 0, 0, 0))


def decide(view: Snapshot, name: str, **parameters: object) -> Plan:
    return prioritize(view, OPEN, share_policy(name, parameters))


def drf(needs: list[Vector]) -> list[int]:
    """Tasks each user gets, with work without end, on one node where slots never matter."""
    lines = [many(number, 250, vector=need) for number, need in enumerate(needs, start=1)]
    plan = decide(snapshot(lines, [node(1, 100_000, capacity=CAPACITY)]), "dominant_resource")
    got = Counter(decision.line_id for decision in plan.decisions)
    return [got[number] for number in range(1, len(needs) + 1)]


def whole(need: Vector) -> int:
    """Tasks that fit into the cell."""
    return min(has // asks for has, asks in zip(CAPACITY[:3], need[:3], strict=True))


def share(need: Vector, tasks: int) -> float:
    return max(tasks * asks / has for asks, has in zip(need[:3], CAPACITY[:3], strict=True))


USERS = st.lists(NEEDS, min_size=2, max_size=5)


@fewer(80)
@given(USERS)
def test_drf_gives_each_user_at_least_what_an_equal_part_would(needs: list[Vector]) -> None:
    """Sharing incentive; tasks are whole, so the last one of each other may be what is missing."""
    most_missing = sum(share(need, 1) for need in needs) / len(needs)
    for need, got in zip(needs, drf(needs), strict=True):
        assume(whole(need) < 250)
        assert share(need, got) >= 1 / len(needs) - most_missing - 1e-9


@fewer(80)
@given(USERS)
def test_drf_leaves_nobody_envious(needs: list[Vector]) -> None:
    """With another's resources, less one of its tasks, nobody could run more than one task more than it does.

    Envy-freeness up to one task (R. Lipton and others, 2004): one whole task of a large user can be worth several
    small ones, and the last one was given when its share was not above the others'.
    """
    got = drf(needs)
    for mine, have in zip(needs, got, strict=True):
        for other, theirs in zip(needs, got, strict=True):
            bundle = [max(0, theirs - 1) * asks for asks in other[:3]]
            with_theirs = min(held // asks for held, asks in zip(bundle, mine[:3], strict=True))
            assert with_theirs <= have + 1


@fewer(80)
@given(USERS, st.tuples(*[st.integers(0, 30)] * 3))
def test_drf_does_not_reward_asking_for_more_than_is_needed(needs: list[Vector], more: tuple[int, ...]) -> None:
    """Strategy-proofness, but for the one task by which whole tasks may differ."""
    lied = tuple(asks + extra for asks, extra in zip(needs[0], (*more, 0, 0, 0), strict=True))
    assert drf([lied, *needs[1:]])[0] <= drf(needs)[0] + 1


@fewer(80)
@given(USERS)
def test_drf_leaves_nothing_that_fits(needs: list[Vector]) -> None:
    """Pareto efficiency, and dominant shares level among those that still wait for the same bottleneck."""
    got = drf(needs)
    free = [
        has - sum(tasks * need[dimension] for need, tasks in zip(needs, got, strict=True))
        for dimension, has in enumerate(CAPACITY[:3])
    ]
    for need, tasks in zip(needs, got, strict=True):
        assert tasks == 250 or any(asks > left for asks, left in zip(need[:3], free, strict=True))


@fewer(80)
@given(
    st.lists(st.tuples(st.integers(1, 33), st.integers(0, 67)), min_size=1, max_size=3),
    st.integers(1, 40),
    st.lists(st.integers(1, 30), min_size=3, max_size=3),
)
def test_no_queue_passes_its_maximum_and_no_guarantee_goes_short(
    terms: list[tuple[int, int]], slots: int, sizes: list[int]
) -> None:
    queues = {
        f"q{number}": {"guaranteed": guaranteed, "maximum": guaranteed + more}
        for number, (guaranteed, more) in enumerate(terms)
    }
    lines = [many(number, size, pool=f"q{number - 1}") for number, size in enumerate(sizes[: len(terms)], start=1)]
    plan = decide(snapshot(lines, [node(1, slots)]), "capacity", queues=queues)
    got = Counter(decision.line_id for decision in plan.decisions)
    for number, (guaranteed, more) in enumerate(terms, start=1):
        assert got[number] * 100 <= (guaranteed + more) * slots
        assert got[number] >= min(sizes[number - 1], guaranteed * slots // 100)


@st.composite
def short_and_long(draw: st.DrawFn) -> list[tuple[int, int]]:
    return draw(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**7)), min_size=2, max_size=30))


@given(short_and_long(), st.integers(1, 50), st.integers(1, 500))
def test_shortest_first_is_bounded(jobs: list[tuple[int, int]], weight: int, most_s: int) -> None:
    """A task is passed only by tasks that arrive less than weight x its run time after it, and never more than the cap."""
    policy = ShortestFirst(weight=weight, most_s=most_s)
    ranked = [(policy.rank(_input(arrived, run)), arrived, run) for arrived, run in jobs]
    for mine, arrived, run in ranked:
        for theirs, later, _ in ranked:
            if theirs < mine:
                assert later < arrived + min(weight * run, most_s * 1_000_000)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 50)), min_size=2, max_size=30))
def test_the_feedback_queue_is_bounded(tasks: list[tuple[int, int]]) -> None:
    """A task at some level is passed only by tasks that arrive less than that level x the boost after it."""
    policy = Feedback(boost_ms=10)
    ranked = [(policy.rank(_input(arrived, 1, level)), arrived, level) for arrived, level in tasks]
    for mine, arrived, level in ranked:
        for theirs, later, _ in ranked:
            if theirs < mine:
                assert later < arrived + level * 10_000


def _input(arrived: int, run: int, level: int = 0) -> RankInput:
    return RankInput(arrived_us=arrived, latest_start_us=None, expected_us=run, cap_us=0, level=level)


@fewer(60)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 2000)), min_size=2, max_size=60),
    st.integers(1, 4),
    st.sampled_from(["equal", "fair", "dominant_resource", "capacity"]),
    st.sampled_from(["fifo", "shortest_first", "round_robin", "feedback", "deadline"]),
)
def test_no_slot_idles_while_work_waits(
    given_jobs: list[tuple[int, int]], slots: int, share_name: str, order_name: str
) -> None:
    """All are there at 0: at every moment as many run as there are slots for, or tasks left."""
    run = _run(given_jobs, slots, share_name, order_name)
    spans = list(run.segments) or list(zip(range(len(given_jobs)), run.started_us, run.ended_us, strict=True))
    moments = sorted({start for _, start, _ in spans} | {end for _, _, end in spans})
    for before in moments[:-1]:
        left = sum(1 for end in run.ended_us if end > before)
        assert sum(1 for _, start, end in spans if start <= before < end) == min(slots, left)
    assert sum(end - start for _, start, end in spans) == sum(run for _, run in given_jobs)


def _run(given_jobs: list[tuple[int, int]], slots: int, share_name: str, order_name: str) -> Run:
    jobs = [Job(index, 0, run, tenant=tenant, expected_us=run) for index, (tenant, run) in enumerate(given_jobs)]
    engine = Engine(
        Trace(name="random", jobs=jobs),
        Cell(slots=slots),
        order=order_policy(order_name, {"quantum_ms": 1} if order_name == "round_robin" else {}),
        share=share_policy(share_name),
        conf=OPEN,
    )
    return engine.run(time.perf_counter)


@fewer(40)
@given(st.integers(2, 5), st.integers(1, 6), st.lists(st.integers(1, 50), min_size=5, max_size=5))
def test_equal_tenants_are_served_level_within_one_task(tenants: int, slots: int, runs: list[int]) -> None:
    """At saturation, in the simulator as in a round: started work of two tenants differs by at most one
    task each."""
    jobs = [Job(index, 0, 1000 * runs[index % tenants], tenant=index % tenants) for index in range(60 * tenants)]
    engine = Engine(
        Trace(name="level", jobs=jobs),
        Cell(slots=slots),
        order=order_policy("fifo"),
        share=share_policy("equal"),
        conf=OPEN,
    )
    run = engine.run(time.perf_counter)
    until = min(max(run.started_us[job.index] for job in jobs if job.tenant == t) for t in range(tenants))
    for moment in range(0, until, max(1, until // 20)):
        held = [
            sum(1 for j in jobs if j.tenant == t and run.started_us[j.index] <= moment < run.ended_us[j.index])
            for t in range(tenants)
        ]
        assert max(held) - min(held) <= 1


CLAIMS = st.lists(
    st.tuples(st.sampled_from(Category), st.sampled_from([None, 0, 2, 60]), st.integers(0, 3)), min_size=1, max_size=4
)
"""What a tenant says of its tasks, by turns: category, tolerance in seconds, priority."""
SHARE_NAMES = st.sampled_from(["equal", "dominant_resource", "fair", "capacity", "nested"])


@fewer(60)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.lists(st.tuples(st.sampled_from(Category), st.booleans()), min_size=1,
                                                   max_size=3, unique=True)), min_size=2, max_size=5),
    st.integers(1, 40),
    st.sampled_from(["equal", "dominant_resource", "fair"]),
)  # fmt: skip
def test_nobody_is_given_less_than_its_fair_share_whatever_others_say_of_their_work(
    tenants: list[tuple[int, list[tuple[Category, bool]]]], slots: int, name: str
) -> None:
    """In a round: each has more than the cell can do, of any category, late or not. Tasks are whole, so each other may be
    ahead by one."""
    weights = {number: weight for number, (weight, _) in enumerate(tenants, start=1)}
    lines = [
        replace(many(10 * number + n, 60, tenant=number, category=Category.URGENT if late else category), late=late)
        for number, (_, kinds) in enumerate(tenants, start=1) for n, (category, late) in enumerate(kinds)
    ]  # fmt: skip
    views = [TenantView(tenant_id=number, weight=weight) for number, weight in weights.items()]
    plan = decide(snapshot(lines, [node(1, slots)], views), name)
    got = Counter(decision.line_id // 10 for decision in plan.decisions)
    assert got.total() == slots
    for number, weight in weights.items():
        assert got[number] >= (slots - len(weights) + 1) * weight // sum(weights.values())


@fewer(60)
@given(st.lists(CLAIMS, min_size=2, max_size=5), st.integers(1, 8), SHARE_NAMES)
def test_over_time_a_tag_wins_nothing(
    claims: list[list[tuple[Category, int | None, int]]], slots: int, name: str
) -> None:
    """In the simulator: all have a backlog of tasks of a second; at each moment each was served its part but for one task."""
    second, each = 1_000_000, 60
    jobs = [
        Job(index, 0, second, tenant=index % len(claims), category=category, priority=priority,
            tolerance_us=None if tolerance is None else tolerance * second)
        for index, (category, tolerance, priority) in enumerate(said[n % len(said)] for n in range(each) for said in claims)
    ]  # fmt: skip
    engine = Engine(Trace(name="tags", jobs=jobs), Cell(nodes=1, slots=slots), order=order_policy("fifo"),
                    share=share_policy(name), conf=OPEN)  # fmt: skip
    started = engine.run(time.perf_counter).started_us
    for moment in range(second, each * second * len(claims) // slots // 2, second):
        served = Counter(job.tenant for job in jobs if started[job.index] < moment)
        assert all(abs(served[tenant] - slots * moment / second / len(claims)) <= 1 for tenant in range(len(claims)))


@fewer(60)
@given(
    st.integers(1, 4),
    st.lists(
        st.lists(st.tuples(st.integers(1, 500), st.sampled_from(Category)), min_size=1, max_size=12),
        min_size=2,
        max_size=6,
    ),
    st.integers(1, 3000),
    st.sampled_from(Category),
    st.sampled_from(["equal", "dominant_resource", "fair", "capacity", "nested"]),
)
def test_a_newcomer_starts_after_at_most_one_task_of_each_other(
    slots: int, backlogs: list[list[tuple[int, Category]]], arrives: int, category: Category, name: str
) -> None:
    """With fewer slots than tenants of equal weight; whatever they have submitted, and however long their tasks are.

    More urgent work than its own goes before it within the share of whose it is, which may be task after task.
    """
    assume(slots < len(backlogs))
    given_jobs = [(0, run, tenant, of) for tenant, backlog in enumerate(backlogs) for run, of in backlog] + [
        (arrives, 1, 99, category)
    ]
    jobs = [
        Job(index, at * 1_000_000, run * 1_000_000, tenant=tenant, category=of)
        for index, (at, run, tenant, of) in enumerate(given_jobs)
    ]
    cell = Cell(nodes=1, slots=slots)
    run = Engine(
        Trace(name="newcomer", jobs=jobs), cell, order=order_policy("fifo"), share=share_policy(name), conf=OPEN
    ).run(time.perf_counter)
    came = jobs[-1]
    between = Counter(
        job.tenant
        for job in jobs
        if job.category >= category and came.arrived_us < run.started_us[job.index] < run.started_us[came.index]
    )
    assert max(between.values(), default=0) <= 1


@fewer(60)
@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 60), st.integers(1, 40), st.sampled_from(Category),
            st.sampled_from([None, 0, 5, 30, 600]), st.integers(0, 2),
        ),
        min_size=2, max_size=40,
    ),
    st.sampled_from(["equal", "dominant_resource", "fair", "capacity", "nested"]),
    st.sampled_from(["fifo", "shortest_first", "deadline"]),
)  # fmt: skip
def test_what_is_late_starts_before_all_of_its_tenant_that_is_not(
    slots: int, work: list[tuple[int, int, int, Category, int | None, int]], share_name: str, order_name: str
) -> None:
    """Urgent work of a higher priority too; tenants, arrivals, run times, categories and tolerances as they come."""
    second = 1_000_000
    jobs = [
        Job(index, at * second, run * second, tenant=tenant, category=category, priority=priority,
            expected_us=run * second, tolerance_us=None if tolerance is None else tolerance * second)
        for index, (tenant, at, run, category, tolerance, priority) in enumerate(sorted(work, key=lambda one: one[1]))
    ]  # fmt: skip
    started = Engine(
        Trace(name="late", jobs=jobs), Cell(nodes=1, slots=slots),
        order=order_policy(order_name), share=share_policy(share_name), conf=OPEN,
    ).run(time.perf_counter).started_us  # fmt: skip
    for late in jobs:
        for other in jobs:
            if late.tenant != other.tenant or late.latest_start_us is None:
                continue
            moment = started[other.index]
            punctual = other.latest_start_us is None or moment < other.latest_start_us
            assert not (punctual and late.latest_start_us < moment < started[late.index])


@fewer(30)
@given(
    st.integers(2, 5),
    st.lists(st.integers(1, 6), min_size=30, max_size=40),
    st.integers(0, 4),
    st.sampled_from(["equal", "dominant_resource", "fair", "capacity", "nested"]),
    st.sampled_from(["fifo", "shortest_first", "deadline", "workflow"]),
)
def test_a_wide_job_starts_when_what_ran_before_it_has_ended(
    slots: int, runs: list[int], arrives: int, share_name: str, order_name: str
) -> None:
    """Narrow work fills all slots before it, and comes after it for long: what needs all slots at once waits for what ran
    when it came, though that never ends at one moment. Its priority is higher, so that no order puts it off where it fits."""
    second = 1_000_000
    narrow = [(0 if n < slots else 1 + arrives + n // slots, run, 1000, 0) for n, run in enumerate(runs * 2)]
    jobs = [
        Job(index, at * second, run * second, priority=priority, vector=(cpu, 0, 0, 0, 0, 0), expected_us=run * second)
        for index, (at, run, cpu, priority) in enumerate(sorted([*narrow, (arrives, 50, 1000 * slots, 1)]))
    ]
    wide = max(jobs, key=lambda job: job.run_us)
    run = Engine(
        Trace(name="wide", jobs=jobs), Cell(nodes=1, slots=slots),
        order=order_policy(order_name), share=share_policy(share_name), conf=replace(OPEN, reserve_after_s=0.0),
    ).run(time.perf_counter)  # fmt: skip
    assert run.started_us[wide.index] <= wide.arrived_us + 2 * max(runs) * second


@fewer(40)
@given(
    st.sampled_from(["equal", "fair", "dominant_resource"]),
    st.dictionaries(st.sampled_from(["", "a", "b", "c"]), st.integers(1, 5), min_size=2),
    st.integers(1, 60),
    st.booleans(),
)
def test_workflows_with_a_share_split_what_their_tenant_is_due_and_take_nothing_from_others(
    name: str, weights: dict[str, int], slots: int, pooled: bool
) -> None:
    """None is more than one task ahead of another for its weight, live; two, over time, simulated."""
    weights |= {"": 1} if "" in weights else {}
    pool = "client x" if pooled else ""
    lines = [
        many(n, 100, tenant=1, workflow=each, weight=weight, pool=pool)
        for n, (each, weight) in enumerate(weights.items(), start=2)
    ]
    view = snapshot([many(1, 100, tenant=2), *lines], [node(1, slots)])
    got = Counter(decision.line_id for decision in decide(view, name).decisions)
    assert abs(got[1] - slots / 2) <= 0.5, "the other tenant has its half"
    for one, other in permutations(lines, 2):
        assert (got[one.line_id] - 1) * other.weight <= got[other.line_id] * one.weight
    jobs = [Job(0, 0, 1_000_000, tenant=1, workflow=ord(each) if each else None)
            for each in weights for _ in range(20)]  # fmt: skip
    for index, job in enumerate(jobs):
        job.index, job.task_id = index, str(index)
    shares = {ord(each): weight for each, weight in weights.items() if each}
    trace = Trace(name="one slot", jobs=jobs, shares=shares)
    run = Engine(trace, Cell(slots=1), order=order_policy("fifo"), share=share_policy(name)).run(time.perf_counter)
    first = Counter(jobs[n].workflow for n in sorted(range(len(jobs)), key=run.started_us.__getitem__)[:20])
    for mine, theirs in permutations(weights, 2):
        ahead, behind = first[ord(mine) if mine else None], first[ord(theirs) if theirs else None]
        assert (ahead - 1) * weights[theirs] <= (behind + 1) * weights[mine]
