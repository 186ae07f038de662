"""Room for what has waited longest without fitting, whatever the order inside lines."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import NOBODY, Kept, Plan, Reason, RunEnd, WorkKind
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.round.prioritizer import prioritize
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.model import Cell, Job, Trace
from tests.support.deciding import line, node, snapshot, task

OPEN = SchedulerConf(delayable_permille=1000, peak_permille=1000)
SECOND = 1_000_000


def cpus(count: int) -> tuple[int, ...]:
    return (count * 1000, 0, 0, 0, 0, 0)


def decide(*, held: int, kept: Kept = NOBODY, **changes: Any) -> Plan:
    """Small tasks that stand first in their tenant's order, and a large one that came long before, on four CPUs."""
    small = [task(f"small{place}", 2, rank=(0, place), submitted_at=999.0, **changes) for place in range(4)]
    large = line(1, [task("large", 1, rank=(0, 99), submitted_at=900.0)], tenant=1, vector=cpus(4))
    ends = tuple(RunEnd(at=1010.0, kind=WorkKind.PROCESS, vector=cpus(1)) for _ in range(held))
    box = node(1, 4, capacity=cpus(4), exclusive_used=cpus(held), exclusive_count={WorkKind.PROCESS: held}, ends=ends)
    view = snapshot([large, line(2, small, tenant=1, vector=cpus(1))], [box], kept=kept)
    return prioritize(view, OPEN, share_policy("equal"))


def started(plan: Plan) -> list[str]:
    return [decision.task_id for decision in plan.decisions]


def test_what_waits_longest_gets_its_room_though_its_order_puts_it_last() -> None:
    first = decide(held=2)
    assert started(first) == []
    assert first.kept.task_id == "large"
    assert first.wants_ends
    assert started(decide(held=2, expected_us=9 * SECOND)) == ["small0", "small1"], "done before it could start"
    assert started(decide(held=0, kept=first.kept)) == ["large"]
    assert started(decide(held=0)) == ["small0", "small1", "small2", "small3"], "no room was kept: the order holds"


def crowded(*, held: int, kept: Kept = NOBODY, urgent: int = 0) -> Plan:
    """The same on forty CPUs, of which less than 95 % are in use when what is not urgent begins."""
    small = [task(f"small{place}", 2, rank=(0, place), submitted_at=999.0) for place in range(40)]
    large = line(1, [task("large", 1, rank=(0, 99), submitted_at=900.0)], tenant=1, vector=cpus(40))
    lines = [large, line(2, small, tenant=1, vector=cpus(1))]
    if urgent:
        come = [task(f"urgent{n}", 3, submitted_at=999.5) for n in range(urgent)]
        lines.append(line(3, come, tenant=2, vector=cpus(1), category=Category.URGENT))
    used = {WorkKind.PROCESS: held}
    box = node(1, 80, capacity=cpus(40), exclusive_used=cpus(held), exclusive_count=used)
    view = snapshot(lines, [box], kept=kept)
    return prioritize(view, SchedulerConf(), share_policy("equal"))


def test_what_is_seen_not_to_fit_above_the_ceiling_alone_gets_its_room_when_all_end_together() -> None:
    full = crowded(held=40)
    assert set(full.left.values()) == {Reason.PEAK}
    assert (full.kept.task_id, full.kept.line_id, full.kept.barred) == ("large", 1, True)
    assert crowded(held=40, kept=full.kept).kept == full.kept
    assert started(crowded(held=0))[0] == "small0", "nobody saw that it does not fit"
    assert started(crowded(held=0, kept=full.kept)) == ["large"]
    some = crowded(held=20, kept=full.kept)
    assert (some.kept.task_id, some.kept.barred) == ("large", False), "now room is kept for it"


def test_above_the_ceiling_no_room_is_kept_from_what_is_urgent() -> None:
    first = crowded(held=39)
    assert first.kept.barred
    beside = crowded(held=39, kept=first.kept, urgent=2)
    assert started(beside) == ["urgent0"]
    assert beside.kept == first.kept


def test_whoever_had_room_kept_last_comes_after_others() -> None:
    """Else a backlog of large tasks would keep out all that came after it."""
    lines = [
        line(number, [task(f"large{number}", number, submitted_at=900.0 + number)], vector=cpus(3 + number % 2))
        for number in (1, 2)
    ]
    box = node(1, 4, capacity=cpus(4), exclusive_used=cpus(2), exclusive_count={WorkKind.PROCESS: 2})
    for turns, first in (
        ({}, "large1"),
        ({"tenant 1": 950.0}, "large2"),
        ({"tenant 1": 950.0, "tenant 2": 960.0}, "large1"),
    ):
        view = snapshot([*lines, line(3, [task("small", 3)], vector=cpus(1))], [box], kept=Kept(turns=turns))
        assert prioritize(view, OPEN, share_policy("equal")).kept.task_id == first


def recorded(seed: int, tenants: int) -> Trace:
    """3,000 jobs of up to 128 CPUs, expected to run one to eight times as long as they do."""
    rng, now, jobs = random.Random(seed), 0.0, []
    for index in range(3000):
        now += rng.expovariate(1 / 213)
        wide = 128 if rng.random() < 0.01 else rng.choice([1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 64])
        run = max(10, int(rng.lognormvariate(6, 1.3))) * SECOND
        jobs.append(
            Job(index, int(now * 1e6), run, tenant=rng.randrange(tenants), vector=cpus(wide),
                expected_us=int(run * rng.uniform(1, 8)))
        )  # fmt: skip
    return Trace(name="recorded", jobs=jobs)


@pytest.mark.parametrize("tenants", [1, 5])
def test_no_order_lets_a_wide_job_wait_much_longer_than_first_in_first_out(tenants: int) -> None:
    def worst(order: str) -> int:
        trace, share = recorded(1, tenants), share_policy("dominant_resource")
        engine = Engine(trace, Cell(slots=128), order=order_policy(order), share=share, conf=OPEN)
        run = engine.run(lambda: 0.0)
        return max(start - job.arrived_us for job, start in zip(trace.jobs, run.started_us, strict=True))

    bound = worst("fifo")
    assert worst("shortest_first") <= 1.5 * bound
    assert worst("deadline") <= 1.5 * bound
