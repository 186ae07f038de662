"""What the edges of graphs cost: a chain of tasks that do nothing, and a wide workflow of short tasks on a few slots."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from scheduler_ext.core.wfformat import read_workflow
from slackwater_conf import conf
from slackwater_tasks.submission.service import submit_many, submit_workflow
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.channel import CHANNEL_FILE, Channel
from tests.lab.benchmarks.live.parts import Parts, tell, wait
from tests.lab.benchmarks.measure import percentiles
from tests.lab.benchmarks.peer import report

WARM_UP = 200
LONGEST_S = 300.0
GROUPS = 20
"""Of the made-up workflow: each is a crowd of tasks, one that waits for all of them, and two rows that wait for that."""
ROW = 5


class Step(NamedTuple):
    """A task of a workflow."""

    name: str
    run_s: float
    parents: tuple[str, ...]


def run(links: int, chains: int, tasks: int, task_ms: float, children: int, runs: int, file: str) -> None:
    """``chains`` of so many ``links``, one after the other; then a workflow of so many ``tasks``, ``runs`` times.

    ``file``: a recorded workflow (WfFormat) in place of the made-up one, its run times in proportion. ``task_ms``: the
    mean of its tasks; ``children``: the slots.
    """
    steps = _recorded(Path(file)) if file else _made_up(tasks)
    scale = task_ms / 1000 / statistics.mean(step.run_s for step in steps)
    steps = [step._replace(run_s=step.run_s * scale) for step in steps]
    ground.prepare()
    tenant = ground.tenants(1)[0]
    channel = Channel.create(Path(conf().var) / CHANNEL_FILE, WARM_UP + links * chains + len(steps) * runs)
    parts = Parts(workers=1, children=children)
    with parts.running():
        submit_many(tenant, [{"handler": "bench.work", "args": [n, 0]} for n in range(WARM_UP)])
        _ended(channel, range(WARM_UP), "warming up")
        first, waits = WARM_UP, list[float]()
        for _ in range(chains):
            numbers = range(first, first + links)
            chain = [Step(f"t{n}", 0, (f"t{n - 1}",) if n > first else ()) for n in numbers]
            submit_workflow(tenant, _workflow("chain", chain, first))
            _ended(channel, numbers, "a chain")
            waits += [channel.begun(n) - channel.ended(n - 1) for n in numbers[1:]]
            first += links
        _report(f"{chains} chains of {links} tasks that do nothing", waits, links * chains)
        bound = _bound(steps, children)
        for _ in range(runs):
            numbers = range(first, first + len(steps))
            began = time.monotonic()
            submit_workflow(tenant, _workflow("wide", steps, first))
            _ended(channel, numbers, "a workflow")
            took = max(map(channel.ended, numbers)) - began
            at = {step.name: n for step, n in zip(steps, numbers, strict=True)}
            waits = [
                channel.begun(at[s.name]) - max(channel.ended(at[p]) for p in s.parents) for s in steps if s.parents
            ]
            _report(f"a workflow on {children} slots", waits, len(steps), bound_s=bound, took_s=took)
            first += len(steps)


def _report(what: str, waits: Sequence[float], tasks: int, *, bound_s: float = 0.0, took_s: float = 0.0) -> None:
    spread = percentiles(waits)
    report(
        "RESULT", what=what, tasks=tasks, wait_ms="/".join(f"{spread[p]:.1f}" for p in ("p50", "p95", "p99")),
        bound_s=round(bound_s, 2) or "", took_s=round(took_s, 2) or "", ratio=round(took_s / bound_s, 3) if bound_s else "",
    )  # fmt: skip


def _workflow(name: str, steps: Sequence[Step], first: int) -> dict[str, object]:
    return {"name": name, "tasks": [
        {"name": step.name, "handler": "bench.work", "args": [n, round(step.run_s * 1000, 3)], "depends_on": list(step.parents)}
        for n, step in enumerate(steps, first)
    ]}  # fmt: skip


def _ended(channel: Channel, numbers: Sequence[int], phase: str) -> None:
    """Wait until all have ended."""

    def over() -> bool:
        tell(phase, sum(1 for n in numbers if channel.ended(n)), len(numbers))
        return all(channel.ended(n) for n in reversed(numbers))

    if not wait(over, LONGEST_S):
        raise RuntimeError(f"{phase}: {sum(1 for n in numbers if not channel.ended(n))} tasks have not ended")


def _made_up(tasks: int) -> list[Step]:
    """A workflow whose shape recurs in recorded ones; its run times differ by a factor of ten or so."""
    rng, steps = random.Random(1), list[Step]()
    crowd = max(1, tasks // GROUPS - 1 - 2 * ROW)
    for group in range(GROUPS):
        for n in range(crowd):
            steps.append(Step(f"c{group}.{n}", rng.lognormvariate(0, 0.6), ()))
        steps.append(Step(f"m{group}", rng.lognormvariate(0, 0.6), tuple(f"c{group}.{n}" for n in range(crowd))))
        before = [f"m{group}"] * ROW
        for row in "ab":
            names = [f"{row}{group}.{n}" for n in range(ROW)]
            steps += [Step(name, rng.lognormvariate(0, 0.6), (b,)) for name, b in zip(names, before, strict=True)]
            before = names
    return steps


def _recorded(path: Path) -> list[Step]:
    """Those of a file, parents first."""
    tasks = {task.id: task for task in read_workflow(path.read_text()).tasks}
    order = TopologicalSorter({name: task.parents for name, task in tasks.items()}).static_order()
    return [Step(name, tasks[name].runtime_s, tasks[name].parents) for name in order]


def _bound(steps: Sequence[Step], slots: int) -> float:
    """What no schedule is shorter than: the work by the slots, and the longest path."""
    ends: dict[str, float] = {}
    for step in steps:  # parents stand first
        ends[step.name] = step.run_s + max((ends[parent] for parent in step.parents), default=0.0)
    return max(sum(step.run_s for step in steps) / slots, *ends.values())
