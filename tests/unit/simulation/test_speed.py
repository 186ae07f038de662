"""How fast virtual time passes. Processor time of one core, so that a busy machine does not blur it."""

from __future__ import annotations

import random
import resource
import time
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.types import Vector
from scheduler_ext.policies.registry import ORDER_POLICIES, SHARE_POLICIES, order_policy, share_policy
from scheduler_ext.simulation import report
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.generator import generate
from scheduler_ext.simulation.model import ONE_CPU, Cell, Job, Run, Trace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OPEN = SchedulerConf(peak_permille=1000, delayable_permille=1000)
RECORDED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
NASA = RECORDED / "traces" / "NASA-iPSC-1993-3.1-cln.swf.gz"
FOUR_VECTORS: tuple[Vector, ...] = tuple(
    (cpu, memory, 0, 0, 0, 0) for cpu, memory in ((1000, 2000), (2000, 1000), (1000, 4000), (4000, 1000))
)


def poisson(count: int, tenants: int, per_s: float, vectors: tuple[Vector, ...] = (ONE_CPU,)) -> Trace:
    """Work with run times of mean 1 s."""
    rng, now, jobs = random.Random(1), 0.0, []
    for index in range(count):
        now += rng.expovariate(per_s)
        tenant = rng.randrange(tenants)
        run = int(rng.expovariate(1) * 1e6) + 1
        jobs.append(Job(index, int(now * 1e6), run, tenant=tenant, vector=vectors[tenant % len(vectors)]))
    return Trace(name="speed", jobs=jobs)


def simulate(trace: Trace, cell: Cell, share: str) -> Run:
    engine = Engine(trace, cell, order=order_policy("fifo"), share=share_policy(share), conf=OPEN, backfill=False)
    return engine.run(time.process_time)


def per_second(run: Run) -> float:
    found = report.measure(run)
    assert found.ended == found.jobs
    print(f"{found.label}: {found.jobs_per_second:,.0f} completions a second")  # noqa: T201 - a benchmark's result
    return found.jobs_per_second


def test_fifo_ends_a_hundred_thousand_tasks_a_second() -> None:
    assert per_second(simulate(poisson(300_000, 1, 96), Cell(nodes=10, slots=8), "equal")) >= 100_000


@pytest.mark.parametrize("vectors", [(ONE_CPU,), FOUR_VECTORS], ids=["slots", "vectors"])
def test_dominant_resource_fairness_ends_thirty_thousand_a_second(vectors: tuple[Vector, ...]) -> None:
    cell = Cell(nodes=10, slots=16, capacity=(16_000, 16_000, 0, 0, 0, 0))
    load = 192.0 if len(vectors) == 1 else 96.0
    assert per_second(simulate(poisson(100_000, 100, load, vectors), cell, "dominant_resource")) >= 30_000


def test_sixty_thousand_a_second_of_a_generated_log_of_two_hundred_users() -> None:
    """188,000 jobs of one CPU, more than the cell can do for an hour, under the ceilings that ship."""
    work = {
        "arrivals": {"process": "poisson", "per_s": 2.0, "count": 940},
        "run_s": {"distribution": "exponential", "mean": 1},
    }
    users = [{"name": f"user {n}", **work} for n in range(200)]
    speeds = []
    for _ in range(3):
        trace, cell = generate({"cell": {"nodes": 10, "slots": 32}, "tenants": users})
        engine = Engine(trace, cell, order=order_policy("fifo"), share=share_policy("dominant_resource"))
        speeds.append(per_second(engine.run(time.process_time)))
    assert len(trace.jobs) == 188_000
    assert max(speeds) >= 60_000, speeds


def test_a_memory_of_past_use_costs_little() -> None:
    """Two hundred users who want more than there is, so that all of them wait at each event."""
    cell, seconds = Cell(nodes=10, slots=32), dict[int, list[float]]()
    for memory_s in (0, 600, 0, 600, 0, 600):
        run = Engine(
            poisson(40_000, 200, 480), cell, order=order_policy("fifo"), conf=OPEN,
            share=share_policy("dominant_resource", {"memory_s": memory_s}),
        ).run(time.process_time)  # fmt: skip
        seconds.setdefault(memory_s, []).append(run.seconds)
    assert min(seconds[600]) <= 1.3 * min(seconds[0]), seconds


def test_a_million_tasks_on_ten_thousand_nodes() -> None:
    begin = time.process_time()
    run = simulate(poisson(1_000_000, 100, 76_000), Cell(nodes=10_000, slots=8), "equal")
    assert len(run.ended_us) - run.ended_us.count(-1) == 1_000_000
    assert time.process_time() - begin < 120
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20


def test_three_months_of_a_real_machine_under_every_policy_with_pictures(tmp_path: Path) -> None:
    """The one command, slices of seconds as they are by default."""
    if not NASA.exists():
        pytest.skip(f"the recorded inputs are not at {RECORDED}")
    begin = time.process_time()
    out = StringIO()
    call_command("simulate", str(NASA), "--policy", "all", "--pictures", str(tmp_path), stdout=out)
    assert time.process_time() - begin < 60
    rows = [line for line in out.getvalue().splitlines() if "/" in line.split(" ")[0]]
    assert len(rows) == len(ORDER_POLICIES) + len(SHARE_POLICIES) - 1
    assert len(list(tmp_path.glob("*.png"))) == len(list(tmp_path.glob("*.svg"))) == 3 * len(rows) + 1
