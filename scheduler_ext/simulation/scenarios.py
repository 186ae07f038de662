"""Named scenarios: the worked examples of the policies, and what others have published, for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.simulation.generator import generate
from scheduler_ext.simulation.model import Cell, Job, Trace

MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Work, the cell it runs in, and suggested policies."""

    trace: Trace
    cell: Cell
    policy: str = "fifo/equal"
    order_parameters: Mapping[str, Any] = field(default_factory=dict)
    share_parameters: Mapping[str, Any] = field(default_factory=dict)


QUOTA_COHORTS: Final = 5
QUOTA_LINES: Final = 6
QUOTA_UNITS: Final = 20
"""Units one line is guaranteed; a cohort's lines may lend each other all of theirs."""
CLASSES: Final = (
    # tasks, units, run seconds, priority, seconds between arrivals
    (350, 1, 0.2, 50, 0.1),
    (100, 5, 0.5, 100, 0.5),
    (50, 20, 1.0, 200, 1.2),
)


def quota() -> Scenario:
    """The multi-tenant benchmark published with Kueue, with the queues of the capacity policy."""
    tenants: list[dict[str, Any]] = []
    queues: dict[str, Any] = {}
    for cohort in range(QUOTA_COHORTS):
        queues[f"cohort{cohort}"] = {"guaranteed": 100 / QUOTA_COHORTS, "maximum": 100 / QUOTA_COHORTS}
        for line in range(QUOTA_LINES):
            pool = f"cohort{cohort}/line{line}"
            queues[pool] = {"guaranteed": 100 / QUOTA_LINES}
            tenants.extend(
                {
                    "name": pool,
                    "pool": pool,
                    "priority": priority,
                    "arrivals": {"process": "fixed", "every_s": every, "count": count, "start_s": every},
                    "run_s": {"distribution": "constant", "value": run},
                    "vector": {"cpu_milli": units * 1000},
                }
                for count, units, run, priority, every in CLASSES
            )
    trace, _ = generate({"tenants": tenants}, name="quota")
    units = QUOTA_COHORTS * QUOTA_LINES * QUOTA_UNITS
    return Scenario(trace=trace, cell=Cell(nodes=1, slots=units), share_parameters={"queues": queues})


EXAMPLES: Final = ("fifo", "shortest_first", "round_robin", "drf")


def example(name: str) -> Scenario:
    """Three tasks of 10, 5 and 3 seconds on one slot; or two tenants, short of memory and of CPU, on 18 CPUs."""
    one = Cell(nodes=1, slots=1)
    if name == "fifo":
        return Scenario(trace=_three(name, (0, 6, 8)), cell=one, policy="fifo/dominant_resource")
    if name == "shortest_first":
        return Scenario(trace=_three(name, (0, 0, 0)), cell=one, policy="shortest_first/dominant_resource")
    if name == "round_robin":
        trace = _three(name, (0, 6, 8))
        return Scenario(trace=trace, cell=one, policy="round_robin/dominant_resource",
                       order_parameters={"quantum_ms": 2000})  # fmt: skip
    if name == "drf":
        cell = Cell(nodes=1, slots=18, capacity=(18_000, 36_000, 0, 0, 0, 0))
        return Scenario(trace=_two_tenants(), cell=cell, policy="fifo/dominant_resource")
    raise InvalidInput(f"known are {', '.join(EXAMPLES)}", field="example")


def _three(name: str, arrivals: tuple[int, int, int]) -> Trace:
    runs = zip("ABC", arrivals, (10, 5, 3), strict=True)
    jobs = [
        Job(index, at * MICRO, run * MICRO, expected_us=run * MICRO, name=task)
        for index, (task, at, run) in enumerate(runs)
    ]
    return Trace(name=name, jobs=jobs, tenants={0: "tenant"})


def _two_tenants() -> Trace:
    """Work for two rounds of ten seconds each: six tasks of 2 CPU and 8 GB, four of 6 CPU and 2 GB."""
    needs = [("memory", 0, (2000, 8000))] * 6 + [("cpu", 1, (6000, 2000))] * 4
    jobs = [
        Job(index, 0, 10 * MICRO, tenant=tenant, vector=(*need, 0, 0, 0, 0), expected_us=10 * MICRO,
            name=f"{who}{index + 1 - 6 * tenant}")
        for index, (who, tenant, need) in enumerate(needs)
    ]  # fmt: skip
    return Trace(name="drf", jobs=jobs, tenants={0: "memory", 1: "cpu"})
