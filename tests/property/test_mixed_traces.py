"""Random mixes of what a simulated run knows: each task ends once, nothing holds more than there is, no run goes on for ever."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.resources import add, fits, subtract, zero
from scheduler_ext.core.types import TenantView
from scheduler_ext.policies.holdings import taken_by
from scheduler_ext.policies.registry import ORDER_POLICIES, order_policy, share_policy
from scheduler_ext.simulation.engine import Engine
from scheduler_ext.simulation.generator import generate
from scheduler_ext.simulation.learning import Learning
from scheduler_ext.simulation.model import Cell, Run, Trace

SHARES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("equal", {}),
    ("dominant_resource", {"pools": {"a": {"weight": 2}, "a/y": {"weight": 3}}}),
    ("capacity", {"queues": {"a": {"guaranteed": 40, "maximum": 80, "lends": 50}, "b": {"guaranteed": 20}}}),
    ("fair", {"pools": {"a": {"guaranteed": 30, "inside": "fifo"}, "b": {"guaranteed": 40}}, "starvation_s": 1}),
    ("fair", {"pools": {"a": {"guaranteed": 50}, "a/x": {"guaranteed": 60}, "b": {"guaranteed": 30}}, "starvation_s": 3}),
    ("nested", {"levels": {"": {"policy": "fair", "parameters": {"pools": {"a": {"guaranteed": 60}}, "starvation_s": 1}},
                           "a": {"policy": "capacity"}}}),
)  # fmt: skip
CONFS = (
    SchedulerConf(peak_permille=1000, delayable_permille=1000, reserve_after_s=0),
    SchedulerConf(peak_permille=300, delayable_permille=700, reserve_after_s=2),
)
OFTEN_FOR_A_TENANT: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("category", ("urgent", "delayable", "periodic", "offpeak")),
    ("pool", ("a", "a/x", "a/y", "b")),
    ("client", ("c1", "c2")),
    ("vector", ({"cpu_milli": 500}, {"cpu_milli": 1000, "memory_mb": 1000}, {"cpu_milli": 2000})),
)
AT_TIMES: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("weight", (2, 5)),
    ("tolerance_s", (0, 1, 5, 60)),
    ("priority", (-5, 3)),
    ("kind", ("thread", "coroutine")),
    ("max_running", (1, 3)),
    ("share_weight", (2,)),
    ("handler", ("h1", "h2")),
    ("rate_key", ("k",)),
    ("require_labels", (["gpu"],)),
    ("prefer_labels", (["ssd"],)),
    ("expected", (False, {"distribution": "uniform", "low": 1, "high": 5})),
)


def document(rng: random.Random) -> dict[str, Any]:
    """A cell and its tenants: some eighty tasks, from half of what it can do to twice as much."""
    slots, nodes, count = rng.choice([1, 2, 4, 8]), rng.choice([1, 1, 3]), rng.choice([1, 3, 8])
    tenants = []
    for number in range(count):
        per_s = slots * nodes * rng.choice([0.5, 0.9, 1.3, 2.0]) / count
        tenant: dict[str, Any] = {
            "name": f"t{number}",
            "arrivals": {"process": "poisson", "per_s": per_s, "count": 80 // count},
            "run_s": {"distribution": "exponential", "mean": 1},
        }
        if rng.random() < 0.4:  # much happens at the same moment
            tenant["run_s"] = {"distribution": "constant", "value": rng.choice([1, 2])}
            tenant["arrivals"] = {"process": "fixed", "every_s": max(0.1, round(1 / per_s, 1)), "count": 80 // count}
        for chance, fields in ((0.5, OFTEN_FOR_A_TENANT), (0.2, AT_TIMES)):
            tenant |= {name: rng.choice(values) for name, values in fields if rng.random() < chance}
        if "pool" in tenant:
            tenant.pop("client", None)
        tenants.append(tenant)
    cell: dict[str, Any] = {"nodes": nodes, "slots": {"process": slots, "thread": 4, "coroutine": 4}}
    cell["labels"] = [["gpu"], ["ssd"]][:nodes]
    if rng.random() < 0.5:
        cell["capacity"] = {"cpu_milli": 1000 * slots, "memory_mb": 4000}
    rates = [{"tenant": "t0", "starts": 6, "per_s": 5}] if rng.random() < 0.3 else []
    return {"cell": cell, "tenants": tenants, "rates": rates}


class Bounded(Engine):
    """Fails when it decides more often than any run of so many tasks has reason to."""

    left = 2_000

    def _drain(self, first: Any = None) -> None:
        self.left -= 1
        assert self.left, "decided again and again"
        super()._drain(first)


def simulate(rng: random.Random) -> Run:
    trace, cell = generate(document(rng), seed=rng.randrange(1 << 30))
    last: dict[int, int] = {}
    for job in trace.jobs if rng.random() < 0.3 else ():  # chains inside tenants
        if rng.random() < 0.3 and job.tenant in last:
            job.parents = (last[job.tenant],)
        last[job.tenant] = job.index
    name, parameters = rng.choice(SHARES)
    plans = {
        number: TenantView(tenant_id=number, weight=rng.choice([1, 2]), guaranteed_permille=rng.choice([0, 50]),
                           maximum_permille=rng.choice([1000, 400]), max_in_flight=rng.choice([None, None, 3]))
        for number in trace.tenants
    }  # fmt: skip
    engine = Bounded(
        trace, cell, order=order_policy(rng.choice(sorted(ORDER_POLICIES))),
        share=share_policy(name, {**parameters, "memory_s": rng.choice([0, 0, 30])}), conf=rng.choice(CONFS),
        backfill=rng.random() < 0.8, tenants=plans if rng.random() < 0.3 else None,
        learning=Learning(trace) if rng.random() < 0.4 else None,
    )  # fmt: skip
    return engine.run(lambda: 0.0)


@given(st.randoms(use_true_random=False))
def test_a_mixed_trace_runs_to_its_end_within_what_there_is(rng: random.Random) -> None:
    run = simulate(rng)
    held_within(run, run.trace, run.cell)
    sliced = run.label.startswith(("round_robin", "feedback"))
    worked: Counter[int] = Counter()
    for index, began, ended in run.segments:
        worked[index] += ended - began
    for job in run.trace.jobs:
        started, ended = run.started_us[job.index], run.ended_us[job.index]
        if ended < 0:
            assert started < 0 or job.index in worked, "only what was stopped, or had its turn, began and did not end"
            assert job.index in run.unplaced or any(run.ended_us[parent] < 0 for parent in job.parents)
            continue
        assert job.index not in run.unplaced
        assert job.arrived_us <= started
        assert all(0 <= run.ended_us[parent] <= started for parent in job.parents)
        if not run.preemptions or not sliced:
            assert ended - started >= job.run_us
        if run.segments:
            assert worked[job.index] >= job.run_us


def held_within(run: Run, trace: Trace, cell: Cell) -> None:
    """At no moment more slots and resources are in use than there are, nor more tasks of a mutex key than may."""
    spans = run.segments or [
        (job.index, run.started_us[job.index], run.ended_us[job.index])
        for job in trace.jobs
        if run.ended_us[job.index] >= 0
    ]
    changes = sorted((at, sign, index) for index, began, ended in spans for at, sign in ((began, 1), (ended, -1)))
    slots: Counter[Any] = Counter()
    keys: Counter[str] = Counter()
    used = zero()
    views = cell.views()
    for _, sign, index in changes:
        job = trace.jobs[index]
        slots[job.kind] += sign
        vector = taken_by(job.line, job.kind)
        used = add(used, vector) if sign > 0 else subtract(used, vector)
        assert slots[job.kind] <= sum(view.slots.get(job.kind, 0) for view in views)
        assert fits(used, tuple(len(views) * whole for whole in views[0].capacity))
        if job.mutex_key is not None:
            keys[job.mutex_key] += sign
            assert keys[job.mutex_key] <= job.mutex_limit
