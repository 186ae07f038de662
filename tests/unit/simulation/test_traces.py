"""Reading recorded and made-up work; reports and pictures of it."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import WorkKind
from scheduler_ext.policies.registry import order_policy, share_policy
from scheduler_ext.simulation import report, scenarios, traces
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.generator import generate
from scheduler_ext.simulation.learning import Learning
from scheduler_ext.simulation.model import Cell, Job, Run, Trace

RECORDED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
SECOND = 1_000_000

SWF = """; MaxProcs: 8
; Note: a comment
1 0 -1 100 4 -1 -1 -1 -1 -1 1 3 1 -1 -1 -1 -1 -1
3 30 -1 50 -1 -1 -1 2 500 -1 1 4 1 -1 -1 -1 -1 -1
2 10 -1 -1 4 -1 -1 -1 -1 -1 5 3 1 -1 -1 -1 -1 -1
"""


def run(trace: Trace, cell: Cell, order: str = "fifo", share: str = "equal", **parameters: Any) -> Run:
    conf = SchedulerConf(delayable_permille=1000, peak_permille=1000)
    policy = share_policy(share, parameters)
    engine = Engine(trace, cell, order=order_policy(order), share=policy, conf=conf)
    return engine.run(time.perf_counter)


@pytest.mark.parametrize("packed", [False, True])
def test_swf(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("log.swf.gz" if packed else "log.swf")
    path.write_bytes(gzip.compress(SWF.encode()) if packed else SWF.encode())
    trace, cell = traces.read(path)
    assert (cell.nodes, cell.slots) == (1, 8)
    first, second = trace.jobs
    assert (first.arrived_us, first.run_us, first.vector[0], first.tenant) == (0, 100 * SECOND, 4000, 3)
    assert (second.arrived_us, second.vector[0], second.expected_us) == (30 * SECOND, 2000, 500 * SECOND)
    assert trace.tenants == {3: "user 3", 4: "user 4"}


@pytest.mark.parametrize(("text", "field"), [("1 2 3\n", "line 1"), ("; x\n" + "a " * 18 + "\n", "line 2")])
def test_a_broken_swf_line_is_named(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "log.swf"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        traces.read(path)
    assert caught.value.field == field


def workflow(**changes: Any) -> dict[str, Any]:
    specification = [{"id": "a", "parents": []}, {"id": "b", "parents": ["a"]}, {"id": "c", "parents": ["a"]}]
    execution = [{"id": name, "runtimeInSeconds": 1.5, "memoryInBytes": 3 << 20} for name in "abc"]
    tasks = {"specification": {"tasks": specification}, "execution": {"tasks": execution}, **changes}
    return {"schemaVersion": "1.5", "workflow": tasks}


def test_wfformat(tmp_path: Path) -> None:
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(workflow()))
    trace, cell = traces.read(path)
    assert [job.parents for job in trace.jobs] == [(), (0,), (0,)]
    assert trace.jobs[1].vector == (1000, 3, 0, 0, 0, 0)
    assert list(run(trace, cell).ended_us) == [1_500_000, 3_000_000, 3_000_000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("{}", "schemaVersion"),
        (json.dumps(workflow(execution={"tasks": []})), "has no run of 'a'"),
    ],
)
def test_a_broken_workflow_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "flow.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        traces.read(path)


def test_azure(tmp_path: Path) -> None:
    path = tmp_path / "functions.csv"
    path.write_text("app,func,end_timestamp,duration\na,f,10.5,0.5\nb,g,3,1\na,f,20,0.25\n")
    trace, _ = traces.read(path)
    assert [job.arrived_us for job in trace.jobs] == [2 * SECOND, 10 * SECOND, 19_750_000]
    assert [job.expected_us for job in trace.jobs] == [None, None, 500_000]
    assert len(trace.tenants) == 2
    path.write_text("app,func,end_timestamp,duration\na,f,x,0.5\n")
    with pytest.raises(InvalidInput) as caught:
        traces.read(path)
    assert caught.value.field == "line 2"


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no file"):
        traces.read(tmp_path / "none.swf")
    (tmp_path / "trace.txt").write_text("")
    with pytest.raises(InvalidInput, match=r"must end in"):
        traces.read(tmp_path / "trace.txt")


YAML = """
duration_s: 100
cell: {nodes: 2, slots: 3}
tenants:
  - name: shop
    weight: 2
    category: urgent
    arrivals: {process: poisson, per_s: 5, day: {period_s: 100, amplitude: 1}}
    run_s: {distribution: exponential, mean: 0.5}
    tolerance_s: 2
  - name: archive
    arrivals: {process: fixed, every_s: 2, count: 10, start_s: 1}
    run_s: {distribution: constant, value: 0.2}
    vector: {cpu_milli: 500}
"""


def test_yaml_is_generated_by_its_seed(tmp_path: Path) -> None:
    path = tmp_path / "work.yaml"
    path.write_text(YAML)
    (first, cell), (again, _), (other, _) = (traces.read(path, seed=seed) for seed in (1, 1, 2))
    assert [job.arrived_us for job in first.jobs] == [job.arrived_us for job in again.jobs]
    assert [job.arrived_us for job in first.jobs] != [job.arrived_us for job in other.jobs]
    assert (cell.nodes, cell.slots, first.weights[0], first.tenants[1]) == (2, 3, 2, "archive")
    shop = [job for job in first.jobs if job.tenant == 0]
    assert all(job.category is Category.URGENT and job.latest_start is not None for job in shop)
    day, night = (sum(1 for job in shop if low <= job.arrived_us / SECOND < low + 50) for low in (0, 50))
    assert 350 < len(shop) < 650
    assert day > 3 * night
    archive = [job.arrived_us // SECOND for job in first.jobs if job.tenant == 1]
    assert archive == list(range(1, 21, 2))


@pytest.mark.parametrize(
    "distribution",
    [
        {"distribution": "uniform", "low": 0.5, "high": 1.5},
        {"distribution": "exponential", "mean": 1},
        {"distribution": "lognormal", "mean": 1, "sigma": 0.5},
        {"distribution": "pareto", "mean": 1, "alpha": 3},
        {"distribution": "choice", "values": [0.5, 1.5]},
    ],
)
def test_distributions_have_the_mean_they_name(distribution: dict[str, Any]) -> None:
    arrivals = {"process": "fixed", "every_s": 1, "count": 20_000}
    trace, _ = generate({"tenants": [{"arrivals": arrivals, "run_s": distribution}]}, seed=4)
    mean = sum(job.run_us for job in trace.jobs) / len(trace.jobs) / SECOND
    assert mean == pytest.approx(1, rel=0.04)


def tenant(**changes: Any) -> dict[str, Any]:
    arrivals = {"process": "fixed", "every_s": 1, "count": 1}
    return {"tenants": [{"arrivals": arrivals, "run_s": {"value": 1}, **changes}]}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "trace"),
        ({"tenants": []}, "tenants"),
        ({"tenant": 1}, "trace.tenant"),
        (tenant(colour=1), "tenants[0].colour"),
        (tenant(category="soon"), "tenants[0].category"),
        (tenant(run_s={"distribution": "gamma", "mean": 1}), "tenants[0].run_s.distribution"),
        (tenant(run_s={"value": "x"}), "tenants[0].run_s.value"),
        (tenant(vector={"cpu": 1}), "tenants[0].vector.cpu"),
        (tenant(arrivals={"process": "poisson", "per_s": 1}), "tenants[0].arrivals"),
        (tenant(arrivals={"process": "burst", "count": 1}), "tenants[0].arrivals.process"),
        (tenant(weight=0), "tenants[0].weight"),
    ],
)
def test_a_wrong_generator_names_the_field(document: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        generate(document)
    assert caught.value.field == field


def test_measures_of_a_run_done_by_hand() -> None:
    jobs = [
        Job(0, 0, 10 * SECOND),
        Job(1, 2 * SECOND, 10 * SECOND, tenant=1, tolerance_us=3 * SECOND),
        Job(2, 4 * SECOND, 20 * SECOND, tolerance_us=60 * SECOND),
    ]
    found = report.measure(run(Trace(name="hand", jobs=jobs), Cell(slots=1)))
    assert (found.jobs, found.ended, found.missed_latest_start) == (3, 3, 1)
    assert found.wait_mean_s == pytest.approx((0 + 8 + 16) / 3)
    assert found.wait_max_s == 16
    assert (found.makespan_s, found.utilization) == (40, 1.0)
    assert found.slowdown_mean == pytest.approx((1 + 1.8 + 1.8) / 3)
    speeds = [30 / 46, 10 / 18]
    assert found.jain == pytest.approx(sum(speeds) ** 2 / (2 * sum(s * s for s in speeds)))
    assert "fifo/equal" in report.table([found])


def test_curves_and_pictures(tmp_path: Path) -> None:
    from scheduler_ext.simulation import plots  # matplotlib: half a second, in each process that collects the tests

    jobs = [Job(index, index * SECOND, 5 * SECOND, tenant=index % 2) for index in range(10)]
    done = run(Trace(name="curves", jobs=jobs, tenants={0: "a", 1: "b"}), Cell(slots=2))
    at = report.times(done)
    use = report.utilization_over_time(done, at)
    shares = report.shares_over_time(done, at)
    waiting = report.waiting_by_tenant(done, at)
    assert use.max() == pytest.approx(1)
    assert (shares[0] + shares[1] <= 1 + 1e-9).all()
    assert waiting[0].min() >= 0
    assert waiting[0].max() > 1
    written = plots.draw(done, tmp_path) + plots.compare([report.measure(done)], tmp_path)
    assert Counter(path.suffix for path in written) == {".png": 4, ".svg": 4}
    assert all(path.stat().st_size > 2000 for path in written)


def test_the_published_quota_benchmark_is_near_its_bound() -> None:
    work = scenarios.quota()
    assert len(work.trace.jobs) == 15_000
    done = run(work.trace, work.cell, share="capacity", **work.share_parameters)
    makespan = max(done.ended_us) / SECOND
    # A line has 1,320 unit-seconds of work for 20 units: without lending between cohorts it takes 66 s.
    assert 66 < makespan <= 75
    _check_cohorts(done)


def _check_cohorts(done: Run) -> None:
    """No cohort ever holds more than its 120 units."""
    events = []
    for job, start, end in zip(done.trace.jobs, done.started_us, done.ended_us, strict=True):
        cohort = job.pool.split("/")[0]
        events += [(start, 1, cohort, job.vector[0]), (end, 0, cohort, -job.vector[0])]
    held: Counter[str] = Counter()
    for _, _, cohort, change in sorted(events):
        held[cohort] += change
        assert held[cohort] <= 120_000


def _recorded(name: str) -> Path:
    path = RECORDED / name
    if not path.exists():
        pytest.skip(f"the recorded inputs are not at {RECORDED}")
    return path


def test_the_recorded_workflows_run_in_order_and_near_their_bound() -> None:
    for path in sorted(_recorded("workflows").glob("*.json")):
        trace, _ = traces.read(path)
        done = run(trace, Cell(slots=4))
        for job, start in zip(trace.jobs, done.started_us, strict=True):
            assert all(done.ended_us[parent] <= start for parent in job.parents)
        # Graham's bound for list scheduling: at most twice the optimum.
        work = sum(job.run_us for job in trace.jobs) / 4
        assert max(done.ended_us) <= work + critical(trace)


def critical(trace: Trace) -> int:
    longest: dict[int, int] = {}

    def of(index: int) -> int:
        stack = [index]
        while stack:
            job = trace.jobs[stack[-1]]
            missing = [parent for parent in job.parents if parent not in longest]
            if missing:
                stack.extend(missing)
            else:
                longest[stack.pop()] = job.run_us + max((longest[p] for p in job.parents), default=0)
        return longest[index]

    return max(of(index) for index in range(len(trace.jobs)))


def test_the_nasa_log_can_be_read_whole() -> None:
    trace, cell = traces.read(_recorded("traces/NASA-iPSC-1993-3.1-cln.swf.gz"))
    assert (len(trace.jobs), cell.slots) == (18_239, 128)


def test_the_azure_sample_can_be_read_and_run() -> None:
    trace, cell = traces.read(_recorded("traces/azure-functions-2021-sample.csv"))
    done = run(trace, cell)
    assert min(done.ended_us) > 0


def test_hurried_work_keeps_its_tolerance() -> None:
    trace = Trace(name="x", jobs=[Job(0, 10 * SECOND, 1, tolerance_us=SECOND)])
    job = traces.hurry(trace, 2.0).jobs[0]
    assert (job.arrived_us, job.latest_start) == (5 * SECOND, 6.0)
    with pytest.raises(InvalidInput):
        traces.hurry(trace, 0)


def test_slots_of_each_kind_are_counted_by_themselves_and_run_times_are_learnt() -> None:
    six, three = ({"process": "fixed", "every_s": 0, "count": count} for count in (6, 3))
    document = {
        "cell": {"nodes": 1, "slots": {"process": 2, "coroutine": 4}, "capacity": {"cpu_milli": 9000}},
        "tenants": [
            {"name": "a", "kind": "coroutine", "run_s": {"value": 10}, "arrivals": six},
            {"name": "b", "run_s": {"value": 10}, "arrivals": three,
             "expected": {"distribution": "constant", "value": 5}},
        ],
    }  # fmt: skip
    conf = SchedulerConf(delayable_permille=1000, peak_permille=1000)
    trace, cell = generate(document)
    asked = {job.expected_us for job in trace.jobs if job.tenant == 1}
    assert asked == {50 * SECOND}
    done = Engine(
        trace, cell, order=order_policy("fifo"), share=share_policy("equal"), conf=conf, learning=Learning(trace)
    ).run(time.perf_counter)
    starts = Counter((job.kind, start) for job, start in zip(trace.jobs, done.started_us, strict=True))
    assert starts == {
        (WorkKind.COROUTINE, 0): 4, (WorkKind.COROUTINE, 10 * SECOND): 2,
        (WorkKind.PROCESS, 0): 2, (WorkKind.PROCESS, 10 * SECOND): 1,
    }  # fmt: skip
    assert report.measure(done).utilization == 1.0 * 6 / 8
