"""The cases: what was measured with the release before, and what the simulator says now. Default policies."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import prod
from pathlib import Path
from typing import Final, NamedTuple

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.simulation import report, scenarios, traces
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.generator import generate
from scheduler_ext.simulation.layout import edges_of
from scheduler_ext.simulation.learning import Learning
from scheduler_ext.simulation.model import Cell, Job, Run, Trace
from tests.unit.simulation.test_examples import SECOND, simulate
from tests.unit.simulation.test_fair_share import EIGHT, Given, held, jobs, steady, waits
from tests.unit.simulation.test_traces import critical

SHARE: Final = "dominant_resource"
NOT_MEASURED: Final = "not measured"


class Row(NamedTuple):
    """One figure."""

    promise: str
    case: str
    before: str
    now: str


def fair(given: Iterable[Given], cell: Cell = EIGHT) -> Run:
    return simulate(jobs(given), cell, share=SHARE)


def tags() -> Iterator[Row]:
    """Urgency and a short tolerance."""
    promise = "urgency buys no share"
    backlog = [(tenant, 0.0, 1.0) for tenant in (1, 2) for _ in range(600)]
    urgent = fair([(*one, Category.URGENT if one[0] == 1 else Category.DELAYABLE, None) for one in backlog])
    case = "A all urgent, B delayable, both with a backlog: B's share"
    yield Row(promise, case, "0.000", f"{held(urgent, 2, until=60.0):.3f}")
    lied = fair([(*one, Category.DELAYABLE, 1.0 if one[0] == 1 else None) for one in backlog])
    yield Row(promise, "A tolerates 1 s, B says nothing: B's share", "0.002", f"{held(lied, 2, until=60.0):.3f}")
    for said, claims in (("delayable", {}), ("all urgent", {"category": Category.URGENT})):
        run = fair(steady(1, 16.0, **claims) + steady(2, 4.4))
        found = waits(run, 2)
        yield Row(promise, f"A {said} at twice the cell, B at 55 % of it: B's mean wait", NOT_MEASURED,
                  f"{sum(found) / len(found):.2f} s")  # fmt: skip
    rng = random.Random(7)
    flood: list[Given] = [
        (n, rng.random(), 0.5 + rng.random(), Category.DELAYABLE, None) for n in (2, 3) for _ in range(3000)
    ]
    found = waits(fair(steady(1, 1.0, category=Category.URGENT) + flood), 1)
    yield Row(promise, "urgent within its share beside a flood, tasks of 0.5 to 1.5 s: p99 wait", NOT_MEASURED,
              f"{found[int(len(found) * 0.99)]:.2f} s")  # fmt: skip


def ties() -> Iterator[Row]:
    """Who comes later."""
    promise = "ties go to who was served least"
    run = fair(
        [(n, 0.0, 1.0, Category.DELAYABLE, None) for n in (1, 2) for _ in range(50)]
        + [(3, 1.0, 1.0, Category.DELAYABLE, None)] * 4,
        Cell(nodes=1, slots=2),
    )
    starts = sorted(run.started_us[job.index] / SECOND for job in run.trace.jobs if job.tenant == 3)
    case = "two slots, A and B with 50 tasks of 1 s, C with four after 1 s: C starts at"
    yield Row(promise, case, "50, 51, 52, 52.5 s", ", ".join(f"{at:g}" for at in starts) + " s")
    run = fair(
        [(1, 0.0, 1.0, Category.URGENT, None)] * 24 + [(2, 0.5, 1.0, Category.URGENT, None)] * 4,
        Cell(nodes=1, slots=1),
    )
    order = sorted(run.trace.jobs, key=lambda job: run.started_us[job.index])
    yield Row(promise, "one slot, B 24 tasks, C four half a second later: the first nine", "B B B B B B B B B",
              " ".join("BC"[job.tenant - 1] for job in order[:9]))  # fmt: skip


def resources() -> Iterator[Row]:
    """Tiers of several sizes, and a client of several tenants."""
    work = [
        Job(n, 0, SECOND, tenant=n % 2, vector=((4 if n % 2 else 1) * 1000, 0, 0, 0, 0, 0), expected_us=SECOND)
        for n in range(2000)
    ]
    run = simulate(work, Cell(nodes=1, slots=16), share=SHARE)
    until, cpu = 30 * SECOND, [0, 0]
    for job in work:
        cpu[job.tenant] += job.vector[0] * max(0, min(run.ended_us[job.index], until) - run.started_us[job.index])
    yield Row("the dominant resource counts", "tasks of 4 CPUs against tasks of 1, 16 CPUs: parts of the CPU",
              "0.75 / 0.25", f"{cpu[1] / sum(cpu):.2f} / {cpu[0] / sum(cpu):.2f}")  # fmt: skip
    split = jobs((n, 0.0, 1.0, Category.DELAYABLE, None) for n in range(6) for _ in range(200))
    for job in split:
        job.pool = "client acme" if job.tenant else ""
    run = simulate(split, EIGHT, share=SHARE)
    yield Row("a client's tenants share as one", "A as five tenants, B as one: B's share", "0.167",
              f"{held(run, 0, until=40.0):.3f}")  # fmt: skip


def late() -> Iterator[Row]:
    """What passes its latest start."""
    urgent: list[Given] = [(1, 0.0, 1.0, Category.URGENT, None)] * 100
    run = fair([*urgent, (1, 0.0, 1.0, Category.DELAYABLE, 5.0)], Cell(nodes=1, slots=1))
    (task,) = (job for job in run.trace.jobs if job.latest_start_us is not None)
    yield Row("late means first", "behind 100 urgent tasks of 1 s of its tenant, tolerance 5 s: starts at",
              NOT_MEASURED, f"{run.started_us[task.index] / SECOND:g} s")  # fmt: skip


def pressed() -> Iterator[Row]:
    """What others wait for."""
    work = [Job(n, n * SECOND // 2, SECOND) for n in range(1000)]
    work += [
        Job(1000, 500 * SECOND, SECOND, priority=-10),
        Job(1001, 500 * SECOND, SECOND, priority=1000, parents=(1000,)),
    ]
    run = simulate(work, Cell(nodes=1, slots=1), share=SHARE)
    case = "one slot, 1,000 tasks of 1 s in 500 s, then one of priority -10 whose child has 1000: the child starts at"
    yield Row(
        "order in and between workflows", case, "1,001 s (arrival not told)", f"{run.started_us[1001] / SECOND:g} s"
    )


def wide() -> Iterator[Row]:
    """Three thousand jobs on 128 CPUs, expected one to eight times as long as they run."""
    worst = {}
    for order in ("fifo", "shortest_first"):
        rng, at, work = random.Random(9), 0.0, []
        for n in range(3000):
            at += rng.expovariate(1 / 190)
            width, run_s = rng.choice([1, 1, 2, 4, 8, 8, 16, 32, 64, 128]), rng.lognormvariate(6.0, 1.2)
            work.append(Job(n, int(at * SECOND), int(run_s * SECOND), vector=(width * 1000, 0, 0, 0, 0, 0),
                            expected_us=int(run_s * rng.uniform(1, 8) * SECOND)))  # fmt: skip
        worst[order] = report.measure(simulate(work, Cell(nodes=1, slots=128), order, SHARE)).wait_max_s
    yield Row("wide jobs get their turn", "3,000 jobs, 128 CPUs: worst wait under shortest_first by fifo's",
              "10.2 × (another log)", f"{worst['shortest_first'] / worst['fifo']:.2f} ×")  # fmt: skip


_EXAMPLES: Final = (
    ("fifo", "9.67, after arrival"), ("shortest_first", "9.67"), ("round_robin", "a mean of 12"), ("drf", "not told"),
)  # fmt: skip
"""And what ``manage.py simulate`` told of the same work."""


def examples() -> Iterator[Row]:
    """`manage.py simulate --example`."""
    for name, before in _EXAMPLES:
        work = scenarios.example(name)
        order, share = work.policy.split("/")
        run = simulate(work.trace.jobs, work.cell, order, share, order_parameters=dict(work.order_parameters))
        if name == "drf":
            first = [sum(run.started_us[job.index] == 0 for job in run.trace.jobs if job.tenant == n) for n in (0, 1)]
            now = f"{first[0]} + {first[1]}"
        elif name == "round_robin":
            now = ", ".join(f"{end / SECOND:g}" for end in run.ended_us)
        else:
            now = f"{report.measure(run).end_mean_s:.2f}"
        what = {"drf": "tasks at once", "round_robin": "ends, s"}.get(name, "mean completion, s")
        yield Row("worked examples", f"`manage.py simulate --example {name}`: {what}", before, now)


def workflows(folder: Path) -> Iterator[Row]:
    """Recorded workflows, each alone and sixty in a mix."""
    recorded = [traces.read(path)[0] for path in sorted(folder.rglob("*.json"))]
    promise, bounds, bests = "order in and between workflows", [], []
    for trace in recorded:
        for slots in (2, 4, 8):
            run = simulate(trace.jobs, Cell(nodes=1, slots=slots), share=SHARE)
            bounds.append(max(run.ended_us) / max(critical(trace), sum(job.run_us for job in trace.jobs) / slots))
            bests.append(max(run.ended_us) / min(max(run.ended_us), _best_list(trace, slots)))
    case = f"{len(recorded)} recorded workflows on 2, 4 and 8 slots: makespan by "
    yield Row(promise, case + "the longest path or work / slots, geometric mean", "1.076 (other workflows)",
              f"{_mean(bounds):.3f}")  # fmt: skip
    yield Row(promise, case + f"the best of {LISTS} list schedules of each, geometric mean (worst)", NOT_MEASURED,
              f"{_mean(bests):.3f} ({max(bests):.3f})")  # fmt: skip
    for size, work_s in (("as large as recorded", None), ("with 5 to 200 s of work each, evenly", (5.0, 200.0))):
        for load in (0.7, 0.9):
            mixes = [
                [_mix(recorded, load, seed, name, work_s) for name in ("fifo", "workflow")] for seed in range(1, 7)
            ]
            case = f"sixty arrive, {size}; 8 slots, load {load}, six mixes: `workflow` by `fifo`, "
            for what, gains in (
                ("mean completion", [other.mean / fifo.mean - 1 for fifo, other in mixes]),
                (
                    "the same of the least work left first where all run times are known and pre-emption is free",
                    [fifo.free / fifo.mean - 1 for fifo, _ in mixes],
                ),
                ("the same of a bound that no order can beat", [fifo.least / fifo.mean - 1 for fifo, _ in mixes]),
                ("95th percentile", [other.slow / fifo.slow - 1 for fifo, other in mixes]),
            ):
                told = ", ".join(f"{gain:+.0%}" for gain in sorted(gains))
                yield Row(promise, case + what, "no such order", told)


def learnt(folder: Path | None) -> Iterator[Row]:
    """Run times learnt from what has ended: a log without requests, and made-up work with requests that are too long."""
    promise = "run times are learnt"
    told = {"requested": "requests", "learnt": "what is learnt", "given": "the real ones, which nobody has"}
    for path in sorted(folder.rglob("*.swf.gz")) if folder else ():
        for how, words in told.items():
            trace, cell = traces.read(path)
            found = report.measure(_expecting(traces.hurry(trace, 1.5), cell, how))
            case = f"{path.name.removesuffix('.swf.gz')}, load 1.5, {len(trace.jobs):,} jobs: mean wait by {words} (backfilled)"
            yield Row(promise, case, "not there" if how == "learnt" else NOT_MEASURED,
                      f"{found.wait_mean_s:,.0f} s ({found.backfilled:,})")  # fmt: skip
    for how in ("requested", "learnt"):
        trace, cell = generate(USERS, seed=1)
        found = report.measure(_expecting(trace, cell, how))
        case = f"24 users, 128 CPUs, requests one to eight times too long: mean wait by {told[how]}"
        yield Row(promise, case, "not there" if how == "learnt" else NOT_MEASURED, f"{found.wait_mean_s:,.0f} s")


USERS: Final = {
    "duration_s": 60_000,
    "cell": {"nodes": 1, "slots": 128},
    "tenants": [
        {
            "name": f"user {n}", "vector": {"cpu_milli": 1000 * (1, 2, 4, 8, 16, 32)[n % 6]},
            "arrivals": {"process": "poisson", "per_s": 0.84 * 128 / 24 / 400 / (1, 2, 4, 8, 16, 32)[n % 6]},
            "run_s": {"distribution": "lognormal", "mean": 400, "sigma": 1.2},
            "expected": {"distribution": "uniform", "low": 1, "high": 8},
        }
        for n in range(24)
    ],
}  # fmt: skip
"""Each user asks for as many CPUs in all as any other."""


def _expecting(trace: Trace, cell: Cell, how: str) -> Run:
    """As `manage.py simulate --expect` does it."""
    learning = None if how == "given" else Learning(trace, learns=how == "learnt")
    conf = SchedulerConf(delayable_permille=1000)
    return Engine(
        trace, cell, order=order_policy("fifo"), share=share_policy(SHARE), conf=conf, learning=learning
    ).run(time.perf_counter)  # fmt: skip


LISTS: Final = 100
"""List schedules that a workflow's own is compared with."""


def _mean(ratios: list[float]) -> float:
    return prod(ratios) ** (1 / len(ratios))


def _best_list(trace: Trace, slots: int) -> int:
    """The shortest of many list schedules: the longest path first, and orders more and more unlike that."""
    jobs, rng, best = trace.jobs, random.Random(1), 1 << 62
    children, missing = edges_of(trace)
    for n in range(LISTS):
        spread = (0.02, 0.1, 0.3, 1.0)[n % 4]
        order = [-job.path_us * rng.lognormvariate(0, spread) for job in jobs]
        needs, running, now = list(missing), list[tuple[int, int]](), 0
        ready = [(order[job.index], job.index) for job in jobs if not job.parents]
        heapify(ready)
        while ready or running:
            while ready and len(running) < slots:
                task = heappop(ready)[1]
                heappush(running, (now + jobs[task].run_us, task))
            now = running[0][0]
            while running and running[0][0] == now:
                for child in children[heappop(running)[1]]:
                    needs[child] -= 1
                    if not needs[child]:
                        heappush(ready, (order[child], child))
        best = min(best, now)
    return best


class Mix(NamedTuple):
    """Seconds from a workflow's arrival to its last end."""

    mean: float
    slow: float
    """95th percentile."""
    least: float
    """A mean that no order comes below, whatever it knows."""
    free: float
    """The mean where the workflow with least work left always goes first, and what runs gives way at once for nothing."""


def _mix(recorded: list[Trace], load: float, seed: int, order: str, work_s: tuple[float, float] | None) -> Mix:
    """Sixty workflows, drawn anew; with ``work_s`` each is scaled to so much work."""
    rng, slots, at, made, groups = random.Random(seed), 8, 0.0, list[Job](), list[tuple[float, range]]()
    drawn = [rng.choice(recorded) for _ in range(60)]
    works = [sum(job.run_us for job in trace.jobs) / SECOND for trace in drawn]
    wanted = [rng.uniform(*work_s) for _ in drawn] if work_s else works
    mean = sum(wanted) / len(wanted)
    alone = []
    for number, (trace, work, want) in enumerate(zip(drawn, works, wanted, strict=True)):
        at += rng.expovariate(load * slots / mean)
        scale, first = want / work, len(made)
        for job in trace.jobs:
            run_us = max(1, int(job.run_us * scale))
            made.append(Job(first + job.index, int(at * SECOND), run_us, expected_us=run_us, workflow=number,
                            parents=tuple(first + parent for parent in job.parents)))  # fmt: skip
        groups.append((at, range(first, len(made))))
        alone.append(max(critical(trace) * scale / SECOND, want / slots))
    parameters = {"most_s": int(1.5 * mean)} if order == "workflow" else {}
    run = simulate(made, Cell(nodes=1, slots=slots), order, SHARE, order_parameters=parameters)
    took = sorted(max(run.ended_us[n] for n in members) / SECOND - at for at, members in groups)
    pooled = _shortest_left([at for at, _ in groups], [want / slots for want in wanted])
    return Mix(sum(took) / len(took), took[int(0.95 * len(took)) - 1], max(pooled, sum(alone) / len(alone)),
               _pre_empting(made, [(int(at * SECOND), members) for at, members in groups], slots))  # fmt: skip


def _pre_empting(jobs: list[Job], flows: list[tuple[int, range]], slots: int) -> float:
    """Mean completion (s) under the least work left first, with the longest path first within a workflow."""
    children, missing = edges_of(Trace(name="mix", jobs=jobs))
    needs, left = list(missing), [job.run_us for job in jobs]
    work = [sum(left[n] for n in members) for _, members in flows]
    ready: dict[int, list[int]] = {}
    now, come, total = 0, 0, 0
    while ready or come < len(flows):
        now = now if ready else max(now, flows[come][0])
        while come < len(flows) and flows[come][0] <= now:
            ready[come] = [n for n in flows[come][1] if not needs[n]]
            come += 1
        chosen: list[tuple[int, int]] = []
        for flow in sorted(ready, key=work.__getitem__):
            longest = sorted(ready[flow], key=lambda n: jobs[n].run_us - left[n] - jobs[n].path_us)
            chosen += [(flow, n) for n in longest[: slots - len(chosen)]]
        step = min(left[n] for _, n in chosen)
        if come < len(flows):
            step = min(step, flows[come][0] - now)
        now += step
        for flow, n in chosen:
            left[n] -= step
            work[flow] -= step
            if left[n]:
                continue
            ready[flow].remove(n)
            for child in children[n]:
                needs[child] -= 1
                if not needs[child]:
                    ready[flow].append(child)
            if not ready[flow] and not work[flow]:
                del ready[flow]
                total += now - flows[flow][0]
    return total / len(flows) / SECOND


def _shortest_left(arrivals: list[float], takes: list[float]) -> float:
    """Mean completion where all slots work on the workflow that has least left, as if each could use them all.

    For one machine that is the least possible (L. Schrage, "A Proof of the Optimality of the Shortest Remaining Processing
    Time Discipline", Operations Research 16(3), 1968), and eight slots can do no more than one that is eight times as fast.
    """
    left, total = list[tuple[float, float]](), 0.0
    for n, at in enumerate(arrivals):
        heappush(left, (takes[n], at))
        now, until = at, arrivals[n + 1] if n + 1 < len(arrivals) else float("inf")
        while left and now < until:
            rest, arrived = heappop(left)
            if now + rest > until:
                heappush(left, (rest - (until - now), arrived))
                break
            now += rest
            total += now - arrived
    return total / len(arrivals)
