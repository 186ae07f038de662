"""The promises about shares, ties, late work, order and wide tasks, each as a small case with real workers.

The cell has sixteen CPUs as it counts them. Tasks of eight run two at a time. Each case has tenants of its own, so that
nobody has been served before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from string import ascii_lowercase
from typing import Any

from scheduler_ext.policies.registry import ORDER_POLICIES
from slackwater_tasks.control import policies
from slackwater_tasks.ledger.active_policies import TTL_S
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.live.cell import Item, LiveCell
from tests.lab.benchmarks.peer import report

CPUS = 16
TICK_S = 0.02
LONGEST_S = 90.0
FULL_S = 12
MOST_TASKS = 20_000
SETTLED_S = TTL_S + 1.0
"""So long after a change of order every process goes by it."""


class Stage:
    """A cell, and tasks of one length on it."""

    def __init__(self, cell: LiveCell, task_s: float) -> None:
        self.cell, self.task_s = cell, task_s
        self._made = 0

    def tenant(self, **fields: Any) -> Tenant:
        self._made += 1
        return create_tenant(f"case{self._made}", f"Case {self._made}", "bench", **fields)

    def tasks(self, count: int, tenant: Tenant, letter: str, cpus: int, *, at: float = 0.0, flow: str = "",
              **fields: Any) -> list[Item]:  # fmt: skip
        """``at``: when they come, counted in tasks."""
        made = {"tier": self.cell.tier(cpus), "tags": [letter], "delay_tolerance_s": 3600, **fields}
        return [Item(at * self.task_s, tenant, made, self.task_s, cpus, flow) for _ in range(count)]

    def play(self, items: list[Item], phase: str) -> list[int]:
        """The numbers of the tasks in the order of their starts."""
        numbers = self.cell.play(items, tick_s=TICK_S, until_s=LONGEST_S, phase=phase)
        if missing := [n for n in numbers if not self.cell.channel.ended(n)]:
            raise RuntimeError(f"{phase}: {len(missing)} of {len(numbers)} tasks have not ended")
        return sorted(numbers, key=self.cell.channel.begun)

    def letters(self, items: list[Item], phase: str) -> str:
        """A letter for each start, in order."""
        return "".join(self.letter(n) for n in self.play(items, phase))

    def letter(self, number: int) -> str:
        return str(self.cell.items[number].fields["tags"][0])

    def began(self, letter: str) -> float:
        """When the task of the case before began, in seconds since that case began."""
        of_letter = (n for n in reversed(range(len(self.cell.items))) if self.letter(n) == letter)
        return self.cell.channel.begun(next(of_letter)) - self.cell.began

    def parts(self, numbers: list[int], until_s: float) -> dict[str, float]:
        """The part of the CPU that the tasks of each letter held until then."""
        held: dict[str, float] = {}
        for n in numbers:
            begun, ended = (at - self.cell.began for at in (self.cell.channel.begun(n), self.cell.channel.ended(n)))
            item = self.cell.items[n]
            held[self.letter(n)] = held.get(self.letter(n), 0.0) + max(0.0, min(ended, until_s) - begun) * item.units
        return {letter: part / sum(held.values()) for letter, part in sorted(held.items())}

    @contextmanager
    def order(self, name: str) -> Iterator[None]:
        """Another order for a while."""
        policies.choose("order", name)
        time.sleep(SETTLED_S)
        try:
            yield
        finally:
            policies.unchoose("order")


def run(task_ms: int, children: int, orders: int) -> None:
    """Tasks of ``task_ms``; the wide task under so many order policies."""
    cell = LiveCell(units=CPUS, nodes=1, children=children, most_tasks=MOST_TASKS)
    for cpus in (1, 2, 4, 8, CPUS):
        cell.tier(cpus)  # before the tenants, who remember what their plan grants
    stage = Stage(cell, task_ms / 1000)
    with cell.running():
        cell.warm_up(ground.tenants(1)[0], cell.tier(1))
        for promise, case, before, now in _cases(stage, list(ORDER_POLICIES)[:orders]):
            report("RESULT", promise=promise, case=case, before=before, now=now, task_ms=task_ms)


def _cases(stage: Stage, orders: list[str]) -> Iterator[tuple[str, str, str, str]]:
    yield from _tags(stage)
    yield from _ties(stage)
    yield from _resources(stage)
    yield from _late(stage)
    yield from _order(stage)
    yield from _wide(stage, orders)


def _tags(stage: Stage) -> Iterator[tuple[str, str, str, str]]:
    said: list[tuple[str, str, Mapping[str, Any]]] = [
        ("all urgent", "all urgent ones first", {"category": "urgent"}),
        ("all with a tolerance of 2.5 tasks", "not tried live", {"delay_tolerance_s": 2.5 * stage.task_s}),
    ]
    for how, before, fields in said:
        items = stage.tasks(30, stage.tenant(), "A", 8, **fields) + stage.tasks(12, stage.tenant(), "b", 8, at=1.5)
        yield (
            "urgency buys no share",
            f"two slots; A 30, {how}; b 12, 1.5 tasks later",
            before,
            stage.letters(items, how),
        )


def _ties(stage: Stage) -> Iterator[tuple[str, str, str, str]]:
    items = [item for letter in "ab" for item in stage.tasks(20, stage.tenant(), letter, 8)]
    items += stage.tasks(4, stage.tenant(), "C", 8, at=3)
    case = "two slots; a and b 20 each; C 4, three tasks later"
    yield "ties go to who was served least", case, "C after all of b's (one slot)", stage.letters(items, "ties")


def _resources(stage: Stage) -> Iterator[tuple[str, str, str, str]]:
    items = stage.tasks(40, stage.tenant(), "A", 4) + stage.tasks(160, stage.tenant(), "b", 1)
    parts = stage.parts(stage.play(items, "resources"), 15 * stage.task_s)
    case = "16 CPUs; A with tasks of 4, b with tasks of 1: parts of the CPU"
    yield "the dominant resource counts", case, "not tried live", " / ".join(f"{part:.2f}" for part in parts.values())
    split = [item for _ in range(5) for item in stage.tasks(16, stage.tenant(client="acme"), "A", 2)]
    parts = stage.parts(stage.play(split + stage.tasks(80, stage.tenant(), "b", 2), "a client"), 15 * stage.task_s)
    case = "eight slots; A as five tenants of one client, b as one: b's part"
    yield "a client's tenants share as one", case, "not tried live", f"{parts['b']:.2f}"


def _late(stage: Stage) -> Iterator[tuple[str, str, str, str]]:
    tenant, tolerance = stage.tenant(), 7.5 * stage.task_s
    items = stage.tasks(24, tenant, "u", 8, category="urgent")
    items += stage.tasks(1, tenant, "L", 8, delay_tolerance_s=tolerance)
    told = stage.letters(items, "late")
    case = "two slots; u 24 urgent, and L of the same tenant, whose tolerance is 7.5 tasks"
    after = (stage.began("L") - tolerance) * 1000
    yield "late means first", case, "no trace of why", f"{told}, L {after:.0f} ms after its latest start"


def _order(stage: Stage) -> Iterator[tuple[str, str, str, str]]:
    promise = "order in and between workflows"
    tenant = stage.tenant()
    items = stage.tasks(20, tenant, "A", 8, priority=5)
    items += stage.tasks(1, tenant, "p", 8, at=1.5, flow="pressed", name="p")
    items += stage.tasks(1, tenant, "c", 8, at=1.5, flow="pressed", name="c", depends_on=["p"], category="urgent",
                         priority=1000)  # fmt: skip
    case = "two slots; A 20 of priority 5; p of none, which c needs that is urgent, 1.5 tasks later"
    yield promise, case, "not tried live", stage.letters(items, "what needs it")
    items = [item for n in range(6) for item in stage.tasks(1, tenant, "s", 8, flow="fork", name=f"s{n}")]
    for n, letter in enumerate(ascii_lowercase[:4]):
        needs = [ascii_lowercase[n - 1]] if n else []
        items += stage.tasks(1, tenant, letter, 8, flow="fork", name=letter, depends_on=needs)
    started = stage.play(items, "the longest path")
    told = "".join(map(stage.letter, started))
    took = max(stage.cell.channel.ended(n) for n in started) - min(stage.cell.channel.begun(n) for n in started)
    case = "two slots; a workflow of six tasks s and a chain a, b, c, d: its makespan by the least there can be"
    yield promise, case, "not tried live", f"{told}, {took / (5 * stage.task_s):.2f} ×"
    yield promise, *_between(stage)


def _between(stage: Stage) -> tuple[str, str, str]:
    """A small workflow behind a large one, under two orders."""
    tenant, means = stage.tenant(), {}
    stage.play(stage.tasks(16, tenant, "x", 8), "learning")
    for name in ("fifo", "workflow"):
        with stage.order(name):
            items = [each for n in range(24) for each in stage.tasks(1, tenant, "L", 8, flow="L", name=f"L{n}")]
            items += [each for n in range(2) for each in stage.tasks(1, tenant, "s", 8, at=2, flow="s", name=f"s{n}")]
            started = stage.play(items, name)
        last = {stage.letter(n): stage.cell.channel.ended(n) for n in sorted(started, key=stage.cell.channel.ended)}
        due = {"L": stage.cell.began, "s": stage.cell.began + 2 * stage.task_s}
        told = "".join(map(stage.letter, started))
        means[name] = (sum(last[letter] - due[letter] for letter in due) / 2, told)
    gain = means["workflow"][0] / means["fifo"][0] - 1
    case = "two slots; a workflow of 24 tasks L; one of two s, two tasks later; mean completion of `workflow` by `fifo`"
    return case, "no such order", f"{means['workflow'][1]}, {gain:+.0%}"


def _wide(stage: Stage, orders: list[str]) -> Iterator[tuple[str, str, str, str]]:
    for name in orders:
        tenant = stage.tenant()
        items = stage.tasks(8, tenant, "s", 4, priority=1)
        items += stage.tasks(int(FULL_S / stage.task_s) * 4 - 8, tenant, "s", 4, at=1.5, priority=1)
        items += stage.tasks(1, tenant, "W", CPUS, at=1)
        with stage.order(name):
            started = stage.play(items, f"wide, {name}")
        last = max(stage.cell.channel.begun(n) for n in started if stage.letter(n) == "s") - stage.cell.began
        began, whole = stage.began("W"), f"{FULL_S} s of tasks of a quarter of the cell"
        case = f"`{name}`: {whole}; before most of them, and of lower priority, one that needs all of it"
        now = f"starts after {began:.1f} s, the last other after {last:.1f} s"
        yield "wide tasks get their turn", case, "not tried live", now
