"""What the work asks for and what the nodes have: slots for alerts and metrics, workers by tier for an autoscaler.

Each kind of slot is counted by itself, for work can use no other; paused work asks for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Final, TypeVar

from scheduler_ext.conf import LOOKAHEAD_US, SHORT_US
from scheduler_ext.core.sql import named
from scheduler_ext.core.types import PER_CHILD, WorkKind
from slackwater_conf import conf
from slackwater_resources.models import Tier
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.ledger.sql.snapshot import ACTIVE_LINES, SLOT_KIND

K = TypeVar("K")
Counted = dict[str, Fraction]
"""By kind of slot."""
MAX_COUNTED: Final = 10_000
"""Ready tasks counted of each line."""

CELLS = """
SELECT cell FROM slackwater_tenants_tenant UNION
SELECT cell FROM slackwater_resources_node WHERE state IN ('starting', 'active', 'draining')
"""
SLOTS = """
SELECT n.cell, k.key, sum(k.value::int)::int FROM slackwater_resources_node n, jsonb_each_text(n.slots) k
WHERE n.state = 'active' AND n.lease_expires_at > clock_timestamp() GROUP BY 1, 2
"""
IN_FLIGHT = named(f"""
SELECT t.cell, {SLOT_KIND}, n.tier_id, sum(l.slot_milli)::bigint FROM slackwater_tasks_livetask l
JOIN slackwater_tasks_line n ON n.id = l.line_id JOIN slackwater_tenants_tenant t ON t.id = l.tenant_id
LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
WHERE l.phase = :phase.IN_FLIGHT GROUP BY 1, 2, 3
""")  # noqa: S608 - statements of ours
# The active lines by a loose scan of the ready index, each up to a number.
READY = named(f"""{ACTIVE_LINES}
SELECT t.cell, w.kind, n.tier_id, w.count, r.mean_us
FROM active a JOIN slackwater_tasks_line n ON n.id = a.line_id JOIN slackwater_tenants_tenant t ON t.id = n.tenant_id
CROSS JOIN LATERAL (
    SELECT x.kind, x.name, count(*) AS count FROM (
        SELECT {SLOT_KIND} AS kind, h.name, coalesce(h.paused, false) AS paused FROM slackwater_tasks_livetask l
            LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
            WHERE l.phase = :phase.READY AND l.line_id = a.line_id LIMIT %(most)s) x
    WHERE NOT x.paused GROUP BY 1, 2) w
LEFT JOIN slackwater_tasks_runtime r ON r.tenant_id = n.tenant_id AND r.key = w.name AND r.samples >= 5
WHERE NOT (t.paused OR n.paused)
""")  # noqa: S608 - statements of ours
# A cell that is scaled to zero has no node: the last one that was there tells what a worker offers.
TYPICAL = """
SELECT DISTINCT ON (cell) cell, capacity, slots::text
FROM slackwater_resources_node ORDER BY cell, (state = 'active') DESC, id DESC
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the work of one cell asks for, in slots of one kind."""

    cell: str
    kind: str
    slots: float
    """What its active nodes have."""
    demand: float
    """What its work in flight and its ready work would take at once."""
    wanted: float
    """What the demand asks for at the target ratio."""

    @property
    def ratio(self) -> float | None:
        """Slots for each slot of demand; ``None`` while nothing is asked for."""
        return self.slots / self.demand if self.demand else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Of one tier in one cell."""

    cell: str
    tier: str
    own: bool
    """Whether it is a tenant's own tier."""
    ready: int
    """Tasks that could start now, counted up to a number in each line."""
    in_flight_slots: float
    waiting_slots: float
    """Slots in which the ready work begins within ``scale_within_s``."""
    per_worker: int
    """Handlers' tasks of the tier that a worker like the cell's newest runs at once; 1 where none was ever there."""
    shares: Mapping[str, Fraction]
    """Workers, as fractions: for its slots of each kind, and for its resources."""

    @property
    def workers(self) -> int:
        """Whole workers that run nothing but this tier; 0 while there is no work of it."""
        return ceil(max(self.shares.values(), default=Fraction(0)))


def demands() -> list[Demand]:
    """Every kind of slot of every cell, by name. Costs what is in flight and the active lines, not the backlog."""
    settings = conf().scheduler
    milli: dict[tuple[str, str], float] = {}
    slots = {(cell, kind): int(count or 0) for cell, kind, count in fetch_all(SLOTS)}
    for cell, kind, _, held in fetch_all(IN_FLIGHT):
        milli[cell, kind] = milli.get((cell, kind), 0) + int(held)
    for cell, kind, _, count, mean_us in fetch_all(READY, {"most": MAX_COUNTED}):
        # A task known to be short asks for the part of a slot that a claim of it takes; any other for a whole one.
        short = kind == "process" and mean_us is not None and mean_us <= SHORT_US
        each = max(1, mean_us * 1000 / LOOKAHEAD_US) if short else 1000
        milli[cell, kind] = milli.get((cell, kind), 0) + count * each
    return [
        Demand(
            cell=key[0], kind=key[1], slots=float(slots.get(key, 0)), demand=round(milli.get(key, 0)) / 1000,
            wanted=round(milli.get(key, 0)) / 1000 * settings.resource_ratio_permille / 1000,
        )
        for key in sorted(slots.keys() | milli.keys())
    ]  # fmt: skip


def wanted() -> list[Wanted]:
    """Every shared tier and every tier with work, in each cell. Costs what is in flight and the active lines."""
    settings = conf().scheduler
    held: dict[tuple[str, int], Counted] = {}
    for cell, kind, tier, milli in fetch_all(IN_FLIGHT):
        held.setdefault((cell, tier), {})[kind] = Fraction(int(milli), 1000)
    ready = _waiting(fetch_all(READY, {"most": MAX_COUNTED}), int(settings.scale_within_s * 1e6))
    typical = {cell: (capacity, json.loads(slots)) for cell, capacity, slots in fetch_all(TYPICAL)}
    cells = [cell for (cell,) in fetch_all(CELLS)]
    shared = Tier.objects.filter(tenant=None, retired_at=None).values_list("pk", flat=True)
    keys = {(cell, tier) for cell in cells for tier in shared} | held.keys() | ready.keys()
    tiers = Tier.objects.in_bulk({tier for _, tier in keys})
    return sorted(
        _rated(keys, tiers, held, ready, typical, settings.resource_ratio_permille),
        key=lambda one: (one.cell, one.tier),
    )


def by_cell(found: Iterable[Wanted]) -> dict[str, int]:
    """Whole workers for each cell whose workers run every tier."""
    return _whole((one.cell, one.shares) for one in found)


def by_tier(found: Iterable[Wanted]) -> dict[tuple[str, str], int]:
    """Whole workers for each cell and shared tier; tenants' own tiers together as ``own``, for names are theirs."""
    return _whole(((one.cell, "own" if one.own else one.tier), one.shares) for one in found)


def _whole(found: Iterable[tuple[K, Mapping[str, Fraction]]]) -> dict[K, int]:
    """Of what is short first: a worker brings slots of every kind, and its resources."""
    sums: dict[K, Counted] = {}
    for key, shares in found:
        so_far = sums.setdefault(key, {})
        for name, share in shares.items():
            so_far[name] = so_far.get(name, Fraction(0)) + share
    return {key: ceil(max(shares.values(), default=Fraction(0))) for key, shares in sums.items()}


def _waiting(rows: Iterable[tuple[Any, ...]], within_us: int) -> dict[tuple[str, int], tuple[int, Counted]]:
    """By cell and tier: ready tasks, and slots. A task asks for at most a slot, and for one where nothing is learnt."""
    found: dict[tuple[str, int], tuple[int, Counted]] = {}
    for cell, kind, tier, count, mean_us in rows:
        learnt = within_us if mean_us is None else min(round(mean_us), within_us)
        so_far, slots = found.get((cell, tier), (0, {}))
        slots[kind] = slots.get(kind, Fraction(0)) + Fraction(count * learnt, within_us)
        found[cell, tier] = (so_far + count, slots)
    return found


def _rated(
    keys: Iterable[tuple[str, int]], tiers: Mapping[int, Tier], held: Mapping[tuple[str, int], Counted],
    ready: Mapping[tuple[str, int], tuple[int, Counted]], typical: Mapping[str, tuple[list[int], dict[str, int]]],
    permille: int,
) -> Iterator[Wanted]:  # fmt: skip
    for cell, tier_id in keys:
        if tier_id not in tiers:
            continue
        tier = tiers[tier_id]
        count, waiting = ready.get((cell, tier_id), (0, {}))
        running = held.get((cell, tier_id), {})
        asked = {kind: (running.get(kind, Fraction(0)) + waiting.get(kind, Fraction(0))) * permille / 1000
                 for kind in running.keys() | waiting.keys()}  # fmt: skip
        capacity, slots = typical.get(cell, ([], {}))
        fits = min([max(1, have // need) for have, need in zip(capacity, tier.vector, strict=False) if need], default=1)
        shares = {kind: each / max(1, int(slots.get(kind, 0))) for kind, each in asked.items()}
        shares["resources"] = (
            sum((each / PER_CHILD.get(WorkKind(kind), 1) for kind, each in asked.items()), Fraction(0)) / fits
        )
        yield Wanted(
            cell=cell, tier=tier.slug, own=tier.tenant_id is not None, ready=count,
            in_flight_slots=float(sum(running.values())), waiting_slots=float(sum(waiting.values())),
            per_worker=max(1, min(fits, int(slots.get("process", 1)))), shares=shares,
        )  # fmt: skip
