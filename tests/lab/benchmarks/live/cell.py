"""A platform of a scenario's own: dispatcher, upkeep and workers as processes, and a clock by which work comes.

Its tasks are coroutines that note when they begin and end, and sleep in between: what is measured is deciding, not
the machine's processors. A coroutine takes a 512th of its tier, so a tier is made 512 times as large as the task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

import tests.lab.benchmarks.handlers  # noqa: F401 - registers what is submitted
from scheduler_ext.core.types import PER_CHILD, WorkKind
from slackwater_conf import conf
from slackwater_resources.models import Tier
from slackwater_tasks.submission.service import submit_many, submit_workflow
from slackwater_tenants.models import Plan, Tenant
from tests.lab.benchmarks import ground
from tests.lab.benchmarks.channel import CHANNEL_FILE, Channel
from tests.lab.benchmarks.live.parts import START_S, Parts, tell

UNIT_MILLI = 10
"""What one unit of a scenario is in thousandths of a CPU."""
PLENTY = 100_000_000


@dataclass(frozen=True, slots=True)
class Item:
    """One task of a scenario."""

    due_s: float
    """When it is submitted, in seconds after the beginning."""
    tenant: Tenant
    fields: Mapping[str, Any]
    run_s: float
    units: int = 1
    flow: str = ""
    """Those of a name that are due together are submitted as one workflow."""


class LiveCell:
    """The processes of one scenario, and the times of its tasks."""

    def __init__(self, *, units: int, nodes: int, children: int, most_tasks: int) -> None:
        """``units`` are what all nodes offer together."""
        ground.prepare()
        with redis.Redis.from_url(conf().redis_url) as client:
            client.flushdb()
        self.units, self.nodes, self.children = units, nodes, children
        self.channel = Channel.create(Path(conf().var) / CHANNEL_FILE, most_tasks)
        self.items: list[Item] = []
        self.began = 0.0
        self._tiers: set[int] = set()
        cpu = -(-units // nodes) * UNIT_MILLI
        capacity = f"{cpu},{PLENTY},{PLENTY},{PLENTY},{PLENTY},{PLENTY}"
        self.parts = Parts(workers=nodes, children=children, env={"SLACKWATER_CAPACITY": capacity})

    def tier(self, units: int) -> str:
        """The tier of a task that takes so many units."""
        slug = f"units{units}"
        if units not in self._tiers:
            self._tiers.add(units)
            Tier.objects.create(slug=slug, cpu_milli=units * UNIT_MILLI * PER_CHILD[WorkKind.COROUTINE], memory_mb=1)
            plan = Plan.objects.get(slug="bench")
            plan.tiers = [*plan.tiers, slug]
            plan.save()
        return slug

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start everything, and end it."""
        with self.parts.running():
            yield

    # -- work ---------------------------------------------------------------------------------------------------------
    def play(self, items: Sequence[Item], *, tick_s: float, until_s: float, phase: str,
             over: Callable[[], bool] | None = None) -> range:  # fmt: skip
        """Submit tasks when they are due, a tenant's together each tick, then wait until all have ended.

        No longer than ``until_s`` after the beginning, nor than until ``over()``; returns the tasks' numbers.
        """
        first = len(self.items)
        ordered = sorted(items, key=lambda item: item.due_s)
        self.items += ordered
        numbers = range(first, first + len(ordered))
        self.began = time.monotonic()
        at = first
        while time.monotonic() - self.began < until_s and not (over is not None and over()):
            tick = time.monotonic()
            at = self._hand_in(at, numbers.stop, tick - self.began)
            if at == numbers.stop and all(self.channel.ended(n) for n in reversed(numbers)):
                break
            tell(phase, sum(1 for n in range(first, at) if self.channel.ended(n)), len(ordered))
            time.sleep(max(0.0, tick_s - (time.monotonic() - tick)))
        return numbers

    def _hand_in(self, at: int, stop: int, now_s: float) -> int:
        due: dict[tuple[int, str], tuple[Tenant, list[dict[str, Any]]]] = {}
        while at < stop and self.items[at].due_s <= now_s:
            item = self.items[at]
            fields = {"handler": "bench.awork", "args": [at, item.run_s * 1000], **item.fields}
            due.setdefault((item.tenant.pk, item.flow), (item.tenant, []))[1].append(fields)
            at += 1
        for (_, flow), (tenant, tasks) in due.items():
            if flow:
                submit_workflow(tenant, {"name": flow, "tasks": tasks})
            else:
                submit_many(tenant, tasks)
        return at

    def wait_s(self, number: int) -> float:
        """From when a task was due until it began."""
        return self.channel.begun(number) - self.began - self.items[number].due_s

    def warm_up(self, tenant: Tenant, tier: str, count: int = 60) -> None:
        """Let the workers begin, and the platform learn how long the tasks run."""
        items = [Item(0.0, tenant, {"tier": tier}, 0.01) for _ in range(count)]
        self.play(items, tick_s=0.1, until_s=START_S, phase="warming up")
