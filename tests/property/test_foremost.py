"""Where very many lines are active a round looks at some of them, and decides as if it had looked at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import (
    CLIENT,
    LATE_GROUP,
    MILLI,
    LineView,
    PoolView,
    Reason,
    Snapshot,
    TaskView,
    TenantView,
    WorkKind,
)
from scheduler_ext.policies.registry import share_policy
from scheduler_ext.round.prioritizer import prioritize
from slackwater_tasks.ledger.fronts import Foremost
from slackwater_tasks.ledger.snapshot_rows import Reference
from tests.support.deciding import SMALL, line, node, snapshot, task

CONF = SchedulerConf(peak_permille=1000, delayable_permille=1000)
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("equal", {}),
    ("equal", {"memory_s": 600}),
    ("dominant_resource", {"pools": {"a": {"weight": 3}}}),
    ("fair", {"pools": {"a": {"weight": 2, "guaranteed": 30}, "b": {"inside": "fifo"}}, "memory_s": 600}),
    ("capacity", {"queues": {"a": {"guaranteed": 40}, "b": {"guaranteed": 10, "maximum": 60}}}),
    ("capacity", {"queues": {"a": {"guaranteed": 40}}, "memory_s": 600}),
    (
        "nested",
        {"levels": {"": {"policy": "fair", "parameters": {"pools": {"a": {"weight": 2}}}}, "b": {"policy": "equal"}}},
    ),
]
SEEDS = (137, 166, 183, 200, 235, 343, 373, 462, 519, 604, 651)
"""Worlds in which it once decided otherwise: a tenant with several late lines, guaranteed shares beside past use."""
POOLS = {1: "a", 2: "b"}


def learn(known: Reference, lines: list[Any], tenants: dict[int, TenantView]) -> None:
    """Read anew what is the same from round to round."""
    known.learn_lines(lines)
    known.learn_tenants([
        (each.tenant_id, each.paused, each.weight, each.max_in_flight, each.guaranteed_permille, each.maximum_permille, "")
        for each in tenants.values()
    ])  # fmt: skip


class World:
    """Many tenants with a few lines each; some hold something."""

    def __init__(self, random: Random) -> None:
        self.known = Reference()
        self.rows: list[Any] = []
        self.slots = random.randint(2, 8)
        views: list[LineView] = []
        self.tenants: dict[int, TenantView] = {}
        self.past: dict[str, float] = {}
        held: Counter[tuple[str, int]] = Counter()
        for number in range(1, 101):
            pool_id = random.choice([None, None, None, 1, 2])
            client = random.choice(["", "", "x", "y"]) if pool_id is None else ""
            count = random.choice([0, 0, 0, 0, 1, 2])
            self.tenants[number] = TenantView(
                tenant_id=number, weight=random.choice([1, 1, 2, 5]), in_flight=count, used=tuple(v * count for v in SMALL),
                used_slots_milli={WorkKind.PROCESS: MILLI * count} if count else {},
                max_in_flight=random.choice([None, None, 1]),
                guaranteed_permille=random.choice([0, 0, 0, 5]),
            )  # fmt: skip
            pool = POOLS[pool_id] if pool_id is not None else f"{CLIENT}{client}" if client else ""
            held[pool, number] += count
            if random.random() < 0.3:
                self.past[f"tenant {number}"] = random.choice([1.0, 2.0, 40.0])
            for category in random.sample(
                [Category.URGENT, Category.DELAYABLE, Category.OFFPEAK], random.randint(1, 2)
            ):
                views.append(self._line(random, len(views) + 1, number, category, (pool_id, client, pool)))
        self.lines = tuple(views)
        learn(self.known, self.rows, self.tenants)
        self.pools = {
            pool: PoolView(
                used=tuple(v * count for v in SMALL), used_slots_milli={WorkKind.PROCESS: MILLI * count},
                tenants={tenant: ({WorkKind.PROCESS: MILLI * n}, tuple(v * n for v in SMALL))
                         for (name, tenant), n in held.items() if name == pool and n},
            )
            for pool in {name for name, _ in held} - {""} if (count := sum(n for (name, _), n in held.items() if name == pool))
        }  # fmt: skip
        self.taken = sum(held.values())

    def _line(
        self, random: Random, number: int, tenant: int, category: Category, pool: tuple[int | None, str, str]
    ) -> LineView:
        pool_id, client, path = pool
        late = random.random() < 0.1
        row: Any = (number, tenant, category, 1, False, "default", *SMALL, pool_id, client, [], [], "", None)
        self.rows.append(row)
        group = LATE_GROUP if late else 0
        tasks: list[TaskView] = []
        for place in sorted(random.sample(range(1000), random.randint(1, 4))):
            rank = place * 1000 + number
            tasks.append(task(f"{number}-{place}", number, rank=(group, rank), submitted_at=float(rank)))
        return line(number, tasks, tenant=tenant, category=category, pool=path, late=late)

    def all(self) -> Snapshot:
        """What a round sees that looks at every line."""
        here = node(1, process=self.taken + self.slots, exclusive_count={WorkKind.PROCESS: self.taken})
        return snapshot(self.lines, [here], self.tenants.values(), pools=self.pools, past_use=self.past)

    def some(self, most: int, *, remembers: bool = False) -> Snapshot:
        """What a round sees that looks at the lines which may come to their turn."""
        foremost = Foremost(self.known, self.tenants, self.pools, self.past, cell="default", remembers=remembers)
        standing = [(view.line_id, *view.heads[0].rank) for view in self.lines]
        chosen = set(foremost.choose(standing, most))
        lines = tuple(view for view in self.lines if view.line_id in chosen)
        behind = foremost.waits(lambda number: POOLS[number] if number else "")
        return replace(self.all(), lines=lines, behind=behind)


@pytest.mark.parametrize(
    ("name", "parameters"), POLICIES, ids=[f"{name}{number}" for number, (name, _) in enumerate(POLICIES)]
)
def test_it_decides_as_if_it_had_looked_at_all(name: str, parameters: dict[str, Any]) -> None:
    fewer = behind = 0
    for seed in (*range(40), *SEEDS):
        world = World(Random(seed))
        share, whole = share_policy(name, parameters), world.all()
        expected = prioritize(whole, CONF, share)
        refused = sum(
            reason not in (Reason.SHARE, Reason.POSITION, Reason.NO_SLOT) for reason in expected.left.values()
        )
        part = world.some(len(expected.decisions) + refused, remembers="memory_s" in parameters)
        assert prioritize(part, CONF, share).decisions == expected.decisions, f"seed {seed}"
        fewer += len(part.lines) < len(whole.lines)
        behind += bool(part.behind)
    assert min(fewer, behind) > 20, "most often some are left out"


def test_what_may_start_nothing_is_not_looked_at_and_still_waits() -> None:
    world = World(Random(7))
    idle = [number for number, tenant in world.tenants.items() if not tenant.in_flight]
    paused, stopped = idle[0], idle[1]
    world.tenants[paused] = replace(world.tenants[paused], paused=True)
    world.tenants[stopped] = replace(world.tenants[stopped], max_in_flight=0, weight=100)
    of_them = {row[0] for row in world.rows if row[1] in (paused, stopped)}
    rows = [(*row[:12], None, "", *row[14:]) if row[0] in of_them else row for row in world.rows]
    learn(world.known, rows, world.tenants)
    part = world.some(1_000)
    looked_at = {view.tenant_id for view in part.lines}
    assert looked_at == set(world.tenants) - {paused, stopped}
    assert [(each.weight, each.tenants) for each in part.behind] == [(100, 1)]  # nobody waits while paused


def test_the_line_that_room_is_kept_for_comes_along() -> None:
    world = World(Random(7))
    without = {view.line_id for view in world.some(1).lines}
    left_out = next(view.line_id for view in world.lines if view.line_id not in without)
    foremost = Foremost(world.known, world.tenants, world.pools, world.past, cell="default", keep=left_out)
    assert left_out in foremost.choose([(view.line_id, *view.heads[0].rank) for view in world.lines], 1)


@pytest.mark.parametrize(
    ("differs", "among"),
    [({}, False), ({"pool_id": 1}, True), ({"tier_id": 2}, True), ({"memory_s": 600}, True),
     ({"floor": 5}, False), ({"floor": 5, "memory_s": 600}, True)],
    ids=["alike", "in a pool", "another tier", "remembered", "guaranteed", "guaranteed and remembered"],
)  # fmt: skip
def test_the_first_by_rank_come_along_where_rank_may_count_first(differs: dict[str, int], among: bool) -> None:
    """The first by rank was served lately, the others were not."""
    known, tenants, rows = Reference(), dict[int, TenantView](), list[Any]()
    for number in (1, 2, 3):
        tier = differs.get("tier_id", 1) if number == 3 else 1
        pool_id = differs.get("pool_id")
        row: Any = (number, number, Category.DELAYABLE, tier, False, "default", *SMALL, pool_id, "", [], [], "", None)
        rows.append(row)
        tenants[number] = TenantView(tenant_id=number, guaranteed_permille=differs.get("floor", 0))
    learn(known, rows, tenants)
    foremost = Foremost(known, tenants, (), {"tenant 1": 5.0}, cell="default", remembers="memory_s" in differs)
    assert (1 in foremost.choose([(1, 0, 10), (2, 0, 20), (3, 0, 30)], 1)) is among


def test_what_is_unknown_or_of_another_cell_is_not_looked_at() -> None:
    world = World(Random(7))
    there = [view.line_id for view in world.lines]
    learn(
        world.known,
        [(*row[:5], "elsewhere", *row[6:]) if row[0] == there[0] else row for row in world.rows],
        world.tenants,
    )
    standing = [(number, 0, number) for number in (*there, 9_999)]
    found = Foremost(world.known, world.tenants, world.pools, {}, cell="default", keep=9_999).choose(standing, 1_000)
    assert set(found) == set(there[1:])
