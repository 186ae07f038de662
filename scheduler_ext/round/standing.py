"""Who holds what of a cell and what each is entitled to, counted by the share policy itself on one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from scheduler_ext.core.resources import zero
from scheduler_ext.core.states import Category
from scheduler_ext.core.types import NO_SLOTS, LineView, Snapshot, add_slots
from scheduler_ext.policies.accounts import Stand
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.policies.holdings import held_in_pools
from scheduler_ext.policies.tree import Path
from scheduler_ext.round.placement import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One tenant. Shares are parts of the cell, as its policy counts them: of slots, or of the dominant resource."""

    held: float
    entitled: float
    """Its weight over the weights of all accounts with work, pool by pool."""
    waits: bool
    """Whether it has ready work that is not paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One cell at one moment."""

    utilization: float
    """Utilization of whatever is used most: the slots of a kind, or a resource."""
    jain: float
    tenants: dict[int, Held]
    """Those who hold something or have something waiting."""


def standing(snapshot: Snapshot, share: SharePolicy) -> Standing:
    """How a cell stands under its share policy."""
    chooser: Any = share.start(replace(snapshot, lines=(*snapshot.lines, *_idle(snapshot))))
    stands: dict[Path, Stand] = chooser.stands()
    entitled = _entitled(stands)
    found: dict[int, Held] = {}
    for path, stand in stands.items():
        kind, _, number = path[-1].partition(" ") if path else ("", "", "")
        if kind != "tenant" or path not in entitled:
            continue
        before = found.get(int(number), Held(held=0.0, entitled=0.0, waits=False))
        found[int(number)] = Held(
            held=before.held + stand.share, entitled=before.entitled + entitled[path],
            waits=before.waits or stand.waits,
        )  # fmt: skip
    return Standing(
        utilization=Ledger(snapshot.nodes).utilization_permille() / 1000,
        jain=jain([each.held / each.entitled for each in found.values() if each.waits]),
        tenants=found,
    )


def jain(values: list[float]) -> float:
    """Jain's index of fairness: 1 where all are alike, 1/n where one of n has all.

    R. Jain, D. Chiu and W. Hawe, *A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared
    Computer Systems*, DEC-TR-301, 1984. Of a cell the values are what is held over what is entitled to, of those who
    wait: who waits for nothing has all that it asked for.
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _entitled(stands: dict[Path, Stand]) -> dict[Path, float]:
    """Each account's part of the cell among those with work, shared out by weight level by level."""
    active = {path[:length] for path, stand in stands.items() if stand.waits or stand.share
              for length in range(len(path) + 1)}  # fmt: skip
    sums: dict[Path, int] = {}
    for path in active - {()}:
        sums[path[:-1]] = sums.get(path[:-1], 0) + stands[path].weight
    parts: dict[Path, float] = {(): 1.0}
    for path in sorted(active - {()}, key=len):
        parts[path] = parts[path[:-1]] * stands[path].weight / sums[path[:-1]]
    return parts


def _idle(snapshot: Snapshot) -> Iterator[LineView]:
    """An empty line for each tenant that holds something and has nothing waiting: it opens its account."""
    numbers, apart = count(-(1 << 60)), held_in_pools(snapshot)
    seen = {(line.tenant_id, line.pool) for line in snapshot.lines}
    places = [(tenant, path) for path, pool in snapshot.pools.items() for tenant in pool.tenants]
    for number, tenant in snapshot.tenants.items():
        own = add_slots(tenant.used_slots_milli, apart.get(number, (NO_SLOTS, zero()))[0], -1)
        if any(own.values()):
            places.append((number, ""))
    for tenant_id, pool_path in places:
        if (tenant_id, pool_path) not in seen:
            yield LineView(line_id=next(numbers), tenant_id=tenant_id, category=Category.URGENT, tier_id=0,
                           vector=zero(), heads=(), pool=pool_path)  # fmt: skip
