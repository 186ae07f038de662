"""What the work asks for and what the nodes have: slots for alerts and metrics, workers by tier for an autoscaler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Final, TypeVar

from scheduler_ext.conf import LOOKAHEAD_US, SHORT_US
from scheduler_ext.core.sql import named
from slackwater_conf import conf
from slackwater_resources.models import Tier
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.ledger.sql.snapshot import ACTIVE_LINES

K = TypeVar("K")
MAX_COUNTED: Final = 10_000
"""Ready tasks counted of each line."""

CELLS = """
SELECT cell FROM slackwater_tenants_tenant UNION
SELECT cell FROM slackwater_resources_node WHERE state IN ('active', 'draining')
"""
SLOTS = """
SELECT cell, sum(coalesce((slots->>'process')::int, 0) + coalesce((slots->>'script')::int, 0))::int
FROM slackwater_resources_node WHERE state = 'active' AND lease_expires_at > clock_timestamp() GROUP BY 1
"""
IN_FLIGHT = named("""
SELECT t.cell, n.tier_id, sum(l.slot_milli)::bigint FROM slackwater_tasks_livetask l
JOIN slackwater_tasks_line n ON n.id = l.line_id JOIN slackwater_tenants_tenant t ON t.id = l.tenant_id
WHERE l.phase = :phase.IN_FLIGHT GROUP BY 1, 2
""")
# The active lines by a loose scan of the ready index, each up to a number.
READY = named(f"""{ACTIVE_LINES}
SELECT t.cell, n.tier_id, t.paused OR n.paused OR coalesce(h.paused, false), w.count, r.mean_us
FROM active a JOIN slackwater_tasks_line n ON n.id = a.line_id JOIN slackwater_tenants_tenant t ON t.id = n.tenant_id
CROSS JOIN LATERAL (
    SELECT x.handler_id, count(*) AS count FROM (
        SELECT l.handler_id FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY
            AND l.line_id = a.line_id LIMIT %(most)s) x
    GROUP BY 1) w
LEFT JOIN slackwater_resources_handler h ON h.id = w.handler_id
LEFT JOIN slackwater_tasks_runtime r ON r.tenant_id = n.tenant_id AND r.key = h.name AND r.samples >= 5
""")  # noqa: S608 - statements of ours
# A cell that is scaled to zero has no node: the last one that was there tells what a worker offers.
TYPICAL = """
SELECT DISTINCT ON (cell) cell, capacity,
    coalesce((slots->>'process')::int, 0) + coalesce((slots->>'script')::int, 0)
FROM slackwater_resources_node ORDER BY cell, (state = 'active') DESC, id DESC
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the work of one cell asks for, in slots."""

    cell: str
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
    """Tasks of the tier that a worker like the cell's newest runs at once; 1 where none was ever there."""
    share: Fraction
    """Workers, as a fraction: what the cell's sum is made of."""

    @property
    def workers(self) -> int:
        """Whole workers that run nothing but this tier; 0 while there is no work of it."""
        return ceil(self.share)


def demands() -> list[Demand]:
    """Every cell that has nodes or work, by name. Costs what is in flight and the active lines, not the backlog."""
    settings = conf().scheduler
    milli: dict[str, float] = {}
    slots = {cell: int(count or 0) for cell, count in fetch_all(SLOTS)}
    for cell, _, held in fetch_all(IN_FLIGHT):
        milli[cell] = milli.get(cell, 0) + int(held)
    for cell, _, _, count, mean_us in fetch_all(READY, {"most": MAX_COUNTED}):
        # A task known to be short asks for the part of a slot that a claim of it takes; any other for a whole one.
        short = mean_us is not None and mean_us <= SHORT_US
        each = max(1, mean_us * 1000 / LOOKAHEAD_US) if short else 1000
        milli[cell] = milli.get(cell, 0) + count * each
    return [
        Demand(
            cell=cell, slots=float(slots.get(cell, 0)), demand=round(milli.get(cell, 0)) / 1000,
            wanted=round(milli.get(cell, 0)) / 1000 * settings.resource_ratio_permille / 1000,
        )
        for cell in sorted(slots.keys() | milli.keys())
    ]  # fmt: skip


def wanted() -> list[Wanted]:
    """Every shared tier and every tier with work, in each cell. Costs what is in flight and the active lines."""
    settings = conf().scheduler
    held = {(cell, tier): int(milli) for cell, tier, milli in fetch_all(IN_FLIGHT)}
    ready = _waiting(fetch_all(READY, {"most": MAX_COUNTED}), int(settings.scale_within_s * 1e6))
    typical = {cell: (capacity, slots) for cell, capacity, slots in fetch_all(TYPICAL)}
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
    return _whole((one.cell, one.share) for one in found)


def by_tier(found: Iterable[Wanted]) -> dict[tuple[str, str], int]:
    """Whole workers for each cell and shared tier; tenants' own tiers together as ``own``, for names are theirs."""
    return _whole(((one.cell, "own" if one.own else one.tier), one.share) for one in found)


def _whole(shares: Iterable[tuple[K, Fraction]]) -> dict[K, int]:
    sums: dict[K, Fraction] = {}
    for key, share in shares:
        sums[key] = sums.get(key, Fraction(0)) + share
    return {key: ceil(share) for key, share in sums.items()}


def _waiting(rows: Iterable[tuple[Any, ...]], within_us: int) -> dict[tuple[str, int], tuple[int, Fraction]]:
    """By cell and tier: ready tasks, and slots. A task asks for at most a slot, and for one where nothing is learnt.

    Paused work needs no worker.
    """
    found: dict[tuple[str, int], tuple[int, Fraction]] = {}
    for cell, tier, paused, count, mean_us in rows:
        if paused:
            continue
        learnt = within_us if mean_us is None else min(round(mean_us), within_us)
        slots = Fraction(count * learnt, within_us)
        before = found.get((cell, tier), (0, Fraction(0)))
        found[cell, tier] = (before[0] + count, before[1] + slots)
    return found


def _rated(
    keys: Iterable[tuple[str, int]], tiers: Mapping[int, Tier], held: Mapping[tuple[str, int], int],
    ready: Mapping[tuple[str, int], tuple[int, Fraction]], typical: Mapping[str, tuple[list[int], int]], permille: int,
) -> Iterator[Wanted]:  # fmt: skip
    for cell, tier_id in keys:
        if tier_id not in tiers:
            continue
        tier = tiers[tier_id]
        count, waiting = ready.get((cell, tier_id), (0, Fraction(0)))
        running = Fraction(held.get((cell, tier_id), 0), 1000)
        each = _per_worker(tier, *typical[cell]) if cell in typical else 1
        yield Wanted(
            cell=cell, tier=tier.slug, own=tier.tenant_id is not None, ready=count,
            in_flight_slots=float(running), waiting_slots=float(waiting),
            per_worker=each, share=(running + waiting) * permille / 1000 / each,
        )  # fmt: skip


def _per_worker(tier: Tier, capacity: list[int], slots: int) -> int:
    fits = [have // need for have, need in zip(capacity, tier.vector, strict=True) if need]
    return max(1, min([slots, *fits]))
