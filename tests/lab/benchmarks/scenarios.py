"""Scenarios: measurements that are more than a workload, by name. A new one is one entry in :data:`SCENARIOS`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.compare import reports
from tests.lab.benchmarks.peer import Tell
from tests.lab.benchmarks.servers import Place

OPEN = {"peak_permille": 1000, "delayable_permille": 1000}
"""All of the cell may be used by any category."""
QUIET = {"leader_lease_s": 86_400.0, "node_lease_s": 86_400.0, "claim_ttl_s": 86_400.0}
"""No lease of a measurement by hand runs out while tables are filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A measurement in a process of its own, inside the platform."""

    name: str
    title: str
    parameters: Mapping[str, Any]
    """Defaults: small, so that a run takes seconds."""
    columns: Mapping[str, str]
    """Fields of its lines that a page shows, with their heads."""
    scheduler: Mapping[str, Any] = field(default_factory=lambda: QUIET)
    """The engine's settings while it runs."""

    def run(self, place: Place, parameters: Mapping[str, Any], tell: Tell) -> Iterator[dict[str, Any]]:
        """Run it; yields its lines. ServerError when it fails."""
        command = [sys.executable, "-m", "tests.lab.benchmarks", "micro", self.name, json.dumps(parameters)]
        env = {**place.environment(), "SLACKWATER_SCHEDULER": json.dumps(self.scheduler)}
        log_path = Path(place.folder.parent) / f"{self.name}.log"
        log_path.unlink(missing_ok=True)
        for one in reports(self.name, command, env, log_path, tell):
            yield {"micro": self.name, **one}


SCENARIOS: Mapping[str, Scenario] = {
    s.name: s
    for s in (
        Scenario(
            name="rounds",
            title="A round by backlog and active tenants, 100 claims each",
            parameters={"waiting": [10_000, 100_000], "tenants": [10, 1000], "rounds": 20},
            columns={
                "waiting": "tasks waiting", "tenants": "active tenants", "nominated": "nominated", "p50_ms": "p50 ms",
                "p95_ms": "p95 ms", "max_ms": "max ms", "python_ms": "Python CPU ms",
                "postgres_ms": "PostgreSQL CPU ms",
                "memory_mb": "dispatcher MiB",
            },
        ),
        Scenario(
            name="batches",
            title="Submit, claim, start and finish by batch size, in microseconds a task",
            parameters={"sizes": [1, 10, 100, 1000], "tasks": 2000, "waiting": 10_000},
            columns={
                "step": "step", "batch": "tasks a batch", "us": "µs a task", "python_us": "Python CPU",
                "postgres_us": "PostgreSQL CPU",
            },
        ),
        Scenario(
            name="dag",
            title="A workflow submitted by one call",
            parameters={"tasks": 2000, "edges": 6000, "runs": 3},
            columns={
                "tasks": "tasks", "edges": "edges", "seconds": "s (median)", "least": "least", "most": "most",
                "python_s": "Python CPU s", "postgres_s": "PostgreSQL CPU s",
            },
        ),
        Scenario(
            name="schedules",
            title="Schedules due at one moment, among many that are live and edited meanwhile",
            parameters={"live": 100_000, "due": 1_000, "tenants": [10, 500]},
            columns={
                "live": "live", "due": "due at once", "tenants": "tenants", "p50_ms": "late p50 ms",
                "p99_ms": "late p99 ms", "max_ms": "late max ms", "edits": "edits", "edit_p99_ms": "edit p99 ms",
            },
        ),
        Scenario(
            name="limiter",
            title="A rate limit under more clients at once than it has room for, over several submitters",
            parameters={"clients": 200, "processes": 4, "limit": 100, "each": 5, "seconds": 10, "warm": 1},
            columns={
                "clients": "clients", "processes": "submitters", "limit": "limit", "accepted": "accepted",
                "refused": "refused", "exact": "exact", "accepting_ms": "all accepted after ms",
                "rush_ms": "refused in the rush ms", "certain_ms": "of it, once certain ms",
                "rush_server_ms": "of it, in the submitter ms",
                "refusal_ms": "refused later ms", "server_ms": "of that, in the submitter ms",
            },
        ),
        Scenario(
            name="steps",
            title="The way of one no-op task, step by step, in microseconds a task",
            parameters={"tasks": 4000, "round": 1024, "batch": 256},
            columns={
                "step": "step", "batch": "tasks at once", "us": "µs a task", "python_us": "Python CPU",
                "postgres_us": "PostgreSQL CPU", "redis_us": "Redis CPU",
            },
        ),
        Scenario(
            name="quota",
            title="Cohorts of lines with quotas that lend: 15,000 tasks, no schedule is shorter than 66 s",
            parameters={"permille": 1000, "nodes": 1, "children": 5, "live": 1},
            columns={
                "how": "", "tasks": "tasks", "load": "load before", "makespan_s": "makespan s", "quota_use": "quota in use",
                "wait_small_s": "mean wait small s", "wait_medium_s": "medium s", "wait_large_s": "large s",
            },
            scheduler=OPEN,
        ),
        Scenario(
            name="fairness",
            title="Two tenants of equal weight, one submits fifty times as much",
            parameters={"seconds": 60, "slots": 20, "task_ms": 200, "children": 2},
            columns={
                "served_loud_s": "served loud s", "served_quiet_s": "served quiet s", "apart_percent": "apart %",
                "quiet_alone_ms": "start of the quiet one alone, p50/p95/p99 ms",
                "quiet_beside_ms": "beside the loud one, p50/p95/p99 ms", "p95_ratio": "p95 ratio",
            },
            scheduler=OPEN,
        ),
        Scenario(
            name="urgent",
            title="Start of urgent work, idle and at ten times more than can run",
            parameters={
                "seconds": 30, "slots": 8, "task_ms": 100, "children": 2, "overload": 10, "urgent_per_s": 10,
            },
            columns={
                "idle_ms": "idle p50/p95/p99 ms", "overload_ms": "overloaded p50/p95/p99 ms", "bound_ms": "bound of p99 ms",
            },
            scheduler={},
        ),
        Scenario(
            name="starts",
            title="Each promise live: a letter is a start, in order",
            parameters={"task_ms": 400, "children": 2, "orders": 6},
            columns={"promise": "promise", "case": "case", "before": "the release before", "now": "now"},
            scheduler={},
        ),
        Scenario(
            name="graphs",
            title="From the end of the last of a task's parents to its start, and a workflow by the least it can take",
            parameters={
                "links": 100, "chains": 5, "tasks": 2000, "task_ms": 55, "children": 2, "runs": 1, "file": "",
            },
            columns={
                "what": "", "tasks": "tasks", "wait_ms": "from the last parent's end, p50/p95/p99 ms", "bound_s": "bound s",
                "took_s": "took s", "ratio": "by the bound",
            },
            scheduler=OPEN,
        ),
        Scenario(
            name="flushall",
            title="Redis emptied while tasks wait and the queues are full; Redis memory by backlog",
            parameters={
                "waiting": 100_000, "flushes": 3, "task_ms": 2, "children": 4, "slots": 200, "small": 1_000,
                "large": 1_000_000,
            },
            columns={
                "part": "part", "accepted": "accepted", "lost": "lost", "twice": "twice", "emptied": "each time",
                "small": "few waiting", "large": "many waiting", "change_percent": "change of memory %",
            },
            scheduler=OPEN,
        ),
        Scenario(
            name="drain",
            title="A node drained under load: until what has not begun is handed back",
            parameters={"tasks": 40_000, "task_ms": 5, "children": 2, "drains": 8},
            columns={
                "drains": "drains", "p50_s": "handed back p50 s", "max_s": "max s", "accepted": "accepted",
                "lost": "lost", "twice": "twice",
            },
            scheduler=OPEN,
        ),
        Scenario(
            name="output",
            title="Tasks that write many lines at once",
            parameters={"writers": 100, "lines_per_s": 10_000, "seconds": 10, "children": 2},
            columns={
                "writers": "tasks", "asked_per_s": "lines a second, asked", "lines_per_s": "reached", "lines": "lines",
                "lost": "lost",
            },
            scheduler=OPEN,
        ),
        Scenario(
            name="million",
            title="No-op tasks while a worker is killed every few seconds",
            parameters={"tasks": 1_000_000, "every_s": 5, "workers": 3, "children": 1, "backlog": 50_000},
            columns={
                "tasks": "tasks", "seconds": "s", "tasks_per_s": "tasks a second", "kills": "workers killed",
                "succeeded": "succeeded", "lost": "lost", "twice": "twice", "cut_off": "attempts cut off",
                "most_growth": "most growth", "most_growth_of": "of",
            },
            scheduler={},
        ),
        Scenario(
            name="way",
            title="From the call to the function's first line, of a lone task and at half load, in milliseconds",
            parameters={"lone": 150, "per_s": 2000, "children": 2},
            columns={
                "step": "step", "at_ms": "lone: over after", "lone_ms": "took", "half_ms": "half load: takes",
                "half_p95_ms": "p95", "half_per_s": "times a second",
            },
            scheduler={},
        ),
        Scenario(
            name="rest",
            title="A platform with nothing to do, by process",
            parameters={"seconds": 60, "settle": 30, "children": 2},
            columns={
                "part": "", "process": "process", "count": "processes", "cpu_percent": "% of a core", "private_mb": "private MB",
            },
            scheduler={},
        ),
        Scenario(
            name="neighbours",
            title="Run time of scripts beside hostile ones",
            parameters={"samples": 300, "work_ms": 100, "rounds": 2, "scripts": 0, "groups": [1, 0]},
            columns={
                "level": "level", "alone_ms": "alone ms", "peaceful_ms": "beside a peaceful one ms",
                "beside_ms": "beside hostile ones ms", "change_percent": "p95 changes %",
                "against_peaceful_percent": "… from peaceful %", "worst_script": "worst",
            },
            scheduler={},
        ),
    )
}  # fmt: skip
