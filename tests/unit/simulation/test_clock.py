"""What goes by the clock in the simulator, through the live gate: ceiling windows, execution rates, past use."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import UTC, datetime
from math import exp
from typing import Any
from unittest.mock import patch

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.ceiling_windows import next_change
from scheduler_ext.core.errors import ConfigurationError, InvalidInput
from scheduler_ext.core.states import Category
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.generator import generate
from scheduler_ext.simulation.model import Cell, Job, RateLimit, Run, Trace

SECOND = 1_000_000
HOUR = 3600 * SECOND
MONDAY = datetime(2026, 1, 5, tzinfo=UTC).timestamp()


def simulate(trace: Trace, cell: Cell, conf: SchedulerConf | None = None, **share: Any) -> Run:
    policy = share_policy("equal", share)
    return Engine(trace, cell, order=order_policy("fifo"), share=policy, conf=conf).run(time.perf_counter)


def night(text: str, **changes: Any) -> SchedulerConf:
    return SchedulerConf(ceiling_windows=text, delayable_permille=1000, **changes)


def offpeak(count: int, run_s: int = 60) -> list[Job]:
    return [Job(n, n * SECOND, run_s * SECOND, category=Category.OFFPEAK) for n in range(count)]


# -- windows ----------------------------------------------------------------------------------------------------------
def test_off_peak_work_waits_for_the_window_though_nothing_else_happens() -> None:
    """From six in the evening until the window of ten: four hours in which nothing arrives and nothing ends."""
    conf = night("22:00-06:00 UTC; 06:00-22:00 UTC offpeak=0")
    trace = Trace(name="t", jobs=offpeak(3), begins_at=MONDAY + 18 * 3600)
    run = simulate(trace, Cell(slots=4), conf)
    assert run.started_us == [4 * HOUR] * 3
    assert run.unplaced == {}


def test_a_window_that_closes_keeps_back_what_has_not_begun() -> None:
    conf = night("22:00-06:00 UTC; 06:00-22:00 UTC offpeak=0")
    trace = Trace(name="t", jobs=offpeak(3, run_s=1200), begins_at=MONDAY + 5.5 * 3600)
    run = simulate(trace, Cell(slots=1), conf)
    assert run.started_us == [0, 1200 * SECOND, int(16.5 * HOUR)], "two until six, the third at ten at night"


def test_in_a_window_the_ceiling_is_another() -> None:
    """Half of the cell by day, all of it by night; there is more work than room."""
    conf = night("08:00-20:00 UTC offpeak=500", peak_permille=1000)
    trace = Trace(name="t", jobs=offpeak(400), begins_at=MONDAY + 19.9 * 3600)
    run = simulate(trace, Cell(slots=10), conf)
    most = {"day": 0, "night": 0}
    for start in run.started_us:
        running = sum(1 for s, e in zip(run.started_us, run.ended_us, strict=True) if s <= start < e)
        when = "day" if start < 360 * SECOND else "night"
        most[when] = max(most[when], running)
    assert most == {"day": 5, "night": 10}


def test_what_no_window_ever_lets_start_ends_the_run() -> None:
    conf = night("00:00-12:00 UTC offpeak=0; 12:00-24:00 UTC offpeak=0 delayable=900", peak_permille=1)
    jobs = [*offpeak(2), Job(2, 2 * SECOND, SECOND)]
    run = simulate(Trace(name="t", jobs=jobs, begins_at=MONDAY), Cell(slots=2), conf)
    assert (run.started_us[2], sorted(run.unplaced)) == (2 * SECOND, [0, 1])


@pytest.mark.parametrize(
    ("text", "now", "hours"),
    [
        ("22:00-06:00 UTC", MONDAY, 6),
        ("22:00-06:00 UTC", MONDAY + 6 * 3600, 16),
        ("sat 00:00-24:00 UTC", MONDAY, 5 * 24),
        # The clocks of Berlin are put forward on 29 March at one o'clock UTC: from 2:00 to 3:00.
        ("02:30-04:00 Europe/Berlin", datetime(2026, 3, 29, 0, 30, tzinfo=UTC).timestamp(), 0.5),
    ],
)
def test_the_next_turn_of_the_windows(text: str, now: float, hours: float) -> None:
    assert next_change(text, now) == now + hours * 3600


def test_windows_that_never_turn_have_no_next() -> None:
    assert next_change("00:00-24:00 UTC offpeak=500", MONDAY) is None


# -- rates ------------------------------------------------------------------------------------------------------------
def test_a_rate_holds_in_every_span() -> None:
    jobs = [Job(n, n * 10_000, SECOND, rates=(1,)) for n in range(100)]
    limit = RateLimit(starts=7, per_us=10 * SECOND)
    run = simulate(Trace(name="t", jobs=jobs, limits={1: limit}), Cell(slots=50))
    starts = sorted(run.started_us)
    assert all(later - first >= 10 * SECOND for first, later in zip(starts, starts[7:], strict=False))
    assert starts == list(run.started_us), "first come, first served"
    assert starts[-1] == 14 * 10 * SECOND + 10_000, "no start later than the rate asks for"


def test_starts_that_come_back_together_are_used_together() -> None:
    jobs = [Job(n, 0, SECOND, rates=(1,)) for n in range(12)]
    trace = Trace(name="t", jobs=jobs, limits={1: RateLimit(starts=4, per_us=10 * SECOND)})
    run = simulate(trace, Cell(slots=50))
    assert run.started_us == [0] * 4 + [10 * SECOND] * 4 + [20 * SECOND] * 4


def test_other_work_passes_what_waits_for_its_rate() -> None:
    jobs = [Job(n, 0, SECOND, rates=(1,) if n < 10 else ()) for n in range(20)]
    trace = Trace(name="t", jobs=jobs, limits={1: RateLimit(starts=1, per_us=HOUR)})
    run = simulate(trace, Cell(slots=2))
    assert [start // HOUR for start in run.started_us[:10]] == list(range(10))
    assert max(run.started_us[10:]) < 10 * SECOND


def test_all_limits_of_a_task_must_allow_its_start_and_lines_share_one() -> None:
    jobs = [Job(n, 0, 1000, tenant=n % 2, rates=(1, 2 + n % 2)) for n in range(40)]
    limits = {
        1: RateLimit(starts=6, per_us=SECOND),
        2: RateLimit(starts=2, per_us=SECOND),
        3: RateLimit(starts=100, per_us=SECOND),
    }
    run = simulate(Trace(name="t", jobs=jobs, limits=limits), Cell(slots=40))
    first = Counter(job.tenant for job in jobs if run.started_us[job.index] == 0)
    assert first == {0: 2, 1: 4}
    for limit, members in ((1, (0, 1)), (2, (0,)), (3, (1,))):
        starts = sorted(run.started_us[job.index] for job in jobs if job.tenant in members)
        most = limits[limit].starts
        assert all(b - a >= SECOND for a, b in zip(starts, starts[most:], strict=False))


def test_starts_before_the_run_count() -> None:
    limit = RateLimit(starts=2, per_us=60 * SECOND, used_us=(50 * SECOND, 20 * SECOND))
    jobs = [Job(n, 0, SECOND, rates=(1,)) for n in range(2)]
    run = simulate(Trace(name="t", jobs=jobs, limits={1: limit}), Cell(slots=2))
    assert run.started_us == [10 * SECOND, 40 * SECOND]


def test_one_that_becomes_urgent_waits_for_its_rate_there() -> None:
    jobs = [Job(n, 0, 1000, rates=(1,), tolerance_us=None if n < 5 else 15 * SECOND) for n in range(6)]
    trace = Trace(name="t", jobs=jobs, limits={1: RateLimit(starts=1, per_us=10 * SECOND)})
    run = simulate(trace, Cell(slots=1))
    assert run.started_us[5] == 20 * SECOND, "before those of its old line that came first"
    assert max(run.started_us) == 50 * SECOND


# -- the YAML ---------------------------------------------------------------------------------------------------------
DOCUMENT: dict[str, Any] = {
    "begins": "2026-01-05T18:00:00+01:00",
    "ceiling_windows": "22:00-06:00 Europe/Berlin; 06:00-22:00 Europe/Berlin offpeak=0",
    "rates": [
        {"tenant": "shop", "key": "bank", "starts": 2, "per_s": 60},
        {"handler": "mail.send", "starts": 3, "per_s": 60},
    ],
    "tenants": [
        {"name": "shop", "rate_key": "bank", "arrivals": {"process": "fixed", "every_s": 1, "count": 4},
         "run_s": {"value": 1}},
        {"name": "shop", "handler": "mail.send", "arrivals": {"process": "fixed", "every_s": 1, "count": 4},
         "run_s": {"value": 1}},
        {"name": "other", "handler": "mail.send", "arrivals": {"process": "fixed", "every_s": 1, "count": 2},
         "run_s": {"value": 1}},
        {"name": "other", "category": "offpeak", "arrivals": {"process": "fixed", "every_s": 1, "count": 1},
         "run_s": {"value": 1}},
    ],
}  # fmt: skip


def test_a_document_states_windows_and_rates() -> None:
    trace, cell = generate(DOCUMENT)
    assert trace.begins_at == MONDAY + 17 * 3600
    conf = SchedulerConf(ceiling_windows=trace.ceiling_windows, delayable_permille=1000)
    run = simulate(trace, cell, conf)
    by_limit = {
        limit: sorted(run.started_us[job.index] // SECOND for job in trace.jobs if job.rates == limit)
        for limit in {job.rates for job in trace.jobs}
    }
    assert by_limit[0,] == [0, 1, 60, 61]
    assert len(by_limit[1,]) == 6
    assert [second < 60 for second in by_limit[1,]] == [True] * 3 + [False] * 3, "of both tenants together"
    assert by_limit[()] == [4 * 3600]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"begins": "tomorrow"}, "begins"),
        ({"ceiling_windows": "at night"}, "ceiling_windows"),
        ({"ceiling_windows": 3}, "ceiling_windows"),
        ({"rates": {"starts": 1}}, "rates"),
        ({"rates": [{"starts": 1, "per_s": 1}]}, "rates[0]"),
        ({"rates": [{"key": "bank", "starts": 1, "per_s": 1}]}, "rates[0]"),
        ({"rates": [{"tenant": "shop", "per_s": 1}]}, "rates[0].starts"),
        ({"rates": [{"tenant": "shop", "starts": 1, "per_s": 0}]}, "rates[0].per_s"),
        ({"rates": [{"tenant": "nobody", "starts": 1, "per_s": 1}]}, "rates[0].tenant"),
    ],
)
def test_what_is_wrong_in_it_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises((InvalidInput, ConfigurationError)) as caught:
        generate({**DOCUMENT, **changes})
    assert caught.value.field == field


# -- past use ---------------------------------------------------------------------------------------------------------
def minute_of_one_then_both(share: dict[str, Any]) -> Counter[int]:
    """Who gets the ten slots when the second tenant comes after the first has had all of them for a minute."""
    first = [Job(n, 0, 60 * SECOND, tenant=1) for n in range(10)]
    later = [Job(10 + n, 60 * SECOND, 60 * SECOND, tenant=1 + n % 2) for n in range(40)]
    run = simulate(Trace(name="t", jobs=first + later), Cell(slots=10), night(""), **share)
    return Counter(job.tenant for job in later if run.started_us[job.index] == 60 * SECOND)


def test_past_use_counts_while_it_is_remembered() -> None:
    """The whole cell for as long as the memory: 1 - 1/e of the cell counts as held, and the other gets eight of ten."""
    assert minute_of_one_then_both({}) == {1: 5, 2: 5}
    assert minute_of_one_then_both({"memory_s": 60}) == {1: 2, 2: 8}


def test_past_use_fades() -> None:
    """One that has had the cell, and then nothing for ten times the memory, stands like the other again."""
    first = [Job(n, 0, 60 * SECOND, tenant=1) for n in range(10)]
    later = [Job(10 + n, 660 * SECOND, 60 * SECOND, tenant=1 + n % 2) for n in range(40)]
    run = simulate(Trace(name="t", jobs=first + later), Cell(slots=10), night(""), memory_s=60)
    got = Counter(job.tenant for job in later if run.started_us[job.index] == 660 * SECOND)
    assert got == {1: 5, 2: 5}


def test_served_time_evens_out_over_the_memory() -> None:
    """Both always want the cell, the first came an hour earlier: with a memory it pays back what it was ahead."""
    one = [Job(n, 0, 10 * SECOND, tenant=1) for n in range(8_000)]
    two = [Job(8_000 + n, HOUR, 10 * SECOND, tenant=2) for n in range(8_000)]

    def soon(share: dict[str, Any]) -> Counter[int]:
        run = simulate(Trace(name="t", jobs=one + two), Cell(slots=10), night(""), **share)
        jobs = run.trace.jobs
        return Counter(job.tenant for job in jobs if HOUR <= run.started_us[job.index] < HOUR + 300 * SECOND)

    even, remembering = soon({}), soon({"memory_s": 600})
    assert even == {1: 150, 2: 150}
    assert 230 < remembering[2] < 260, "its share falls with the other's memory: exp(-t/600) of the cell"


def test_whoever_held_least_for_its_weight_starts_whenever_it_is() -> None:
    """Each start of a run with a memory, against what all have held until then by the formula; it lasts eight hundred
    memories, so that what is remembered is counted anew on the way."""
    rng, memory_s, slots, weights = random.Random(4), 20.0, 6, {1: 1, 2: 1, 3: 2, 4: 3}
    jobs = [Job(n, int(rng.uniform(0, 16_000) * SECOND) if n < 200 else 5_990 * SECOND + n, rng.randint(1, 40 * SECOND),
                tenant=rng.choice([1, 2, 3, 4])) for n in range(500)]  # fmt: skip
    jobs.sort(key=lambda job: job.arrived_us)
    for n, job in enumerate(jobs):
        job.index = n
    run = simulate(Trace(name="t", jobs=jobs, weights=weights), Cell(slots=slots), night(""), memory_s=20)

    def held(tenant: int, now: int) -> float:
        """For its weight, what it holds and has held, before what starts now."""
        found = 0.0
        for job in jobs:
            began, ended = run.started_us[job.index], min(run.ended_us[job.index], now)
            if job.tenant == tenant and began < now:
                past = exp((ended - now) / SECOND / memory_s) - exp((began - now) / SECOND / memory_s)
                found += (past + (run.ended_us[job.index] > now)) / slots
        return found / weights[tenant]

    checked = 0
    for now in sorted(set(run.started_us)):
        first = [job.index for job in jobs if run.started_us[job.index] == now]
        waits = {job.tenant for job in jobs if job.arrived_us <= now < run.started_us[job.index]}
        if len(first) == 1 and waits:
            mine = held(jobs[first[0]].tenant, now)
            assert all(mine <= held(other, now) * 1.005 + 1e-9 for other in waits), now / SECOND
            checked += 1
    assert checked > 250


POOLED: dict[str, Any] = {"pools": {"org": {"weight": 2}}, "memory_s": 20}


@pytest.mark.parametrize("order", ["fifo", "shortest_first", "round_robin"])
@pytest.mark.parametrize("parameters", [{}, POOLED], ids=["plain", "pools and a memory"])
def test_jobs_that_are_alike_are_decided_on_the_short_way_as_on_the_long(
    order: str, parameters: dict[str, Any]
) -> None:
    """Seeds 15, 67 and 91: work of a category that was at its ceiling comes when nothing waits any more."""
    for seed in (*range(8), 15, 67, 91, 254):
        rng, at_us, jobs = random.Random(seed), 0, list[Job]()
        grain = rng.choice([1, 500_000])
        for index in range(150):
            at_us += int(rng.expovariate(rng.choice([3, 9])) * 1e6) // grain * grain
            run_us = max(1, int(rng.expovariate(1) * 1e6) // grain * grain)
            category, tolerance = rng.choice(list(Category)[: 1 + seed % 4]), rng.choice([None, 2_000_000])
            parents = [rng.randrange(index)] if index and rng.random() < 0.1 else []
            jobs.append(Job(index, at_us, run_us, tenant=rng.randrange(4), category=category, tolerance_us=tolerance,
                            parents=parents))  # fmt: skip
            jobs[-1].pool = ("org/a", "org/b", "", "solo")[jobs[-1].tenant] if parameters else ""
        found = []
        for alike in (True, False):
            engine = Engine(Trace(name="alike", jobs=jobs), Cell(nodes=3, slots=2), order=order_policy(order),
                            share=share_policy("dominant_resource", parameters))  # fmt: skip
            assert engine._alike
            engine._alike = alike
            run = engine.run(time.process_time)
            found.append((run.started_us, run.ended_us, run.segments))
        assert found[0] == found[1]


@pytest.mark.parametrize("memory_s", [0, 20])
@pytest.mark.parametrize("peak", [1000, 500])
@pytest.mark.parametrize("order", ["fifo", "shortest_first"])
def test_a_full_cell_is_followed_as_decided_event_by_event(order: str, peak: int, memory_s: int) -> None:
    """Overloads of tenants of several weights and priorities, some with much at the same moment."""
    followed, conf = 0, SchedulerConf(peak_permille=peak, delayable_permille=peak)
    for seed in range(40):
        rng, at_us, jobs = random.Random(seed), 0, list[Job]()
        grain, per_s, tenants = rng.choice([1, 1, 500_000]), rng.choice([7, 15]), rng.choice([1, 5, 30])
        for index in range(200):
            at_us += int(rng.expovariate(per_s) * 1e6) // grain * grain
            run_us = max(1, int(rng.expovariate(1) * 1e6) // grain * grain)
            jobs.append(Job(index, at_us, run_us, tenant=rng.randrange(tenants), priority=rng.choice([0, 0, 0, 3])))
        trace = Trace(name="full", jobs=jobs, weights={tenant: 1 + tenant % 3 for tenant in range(tenants)})
        found = []
        for follows in (True, False):
            engine = Engine(trace, Cell(nodes=3, slots=2), order=order_policy(order), conf=conf,
                            share=share_policy("dominant_resource", {"memory_s": memory_s}))  # fmt: skip
            assert engine._follows
            engine._follows = follows
            with patch.object(engine._chooser, "swap", wraps=engine._chooser.swap) as swap:
                run = engine.run(time.process_time)
            followed += swap.call_count
            found.append((run.started_us, run.ended_us, run.decisions))
        assert found[0] == found[1], seed
    assert followed > 2000 or (memory_s and peak < 1000)
