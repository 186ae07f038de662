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
from scheduler_ext.core.labels import RESERVED, with_names
from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.sql import named
from scheduler_ext.core.types import PER_CHILD, Reason, WorkKind
from slackwater_conf import conf
from slackwater_resources.models import Tier
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.ledger.learnt import run_times
from slackwater_tasks.ledger.sql.snapshot import ACTIVE_LINES, SLOT_KIND

K = TypeVar("K")
Counted = dict[str, Fraction]
"""Numbers by kind of slot."""
Key = tuple[str, int, str, bool]
"""Cell, tier, the labels it requires, and whether no node has them."""
MAX_COUNTED: Final = 10_000
"""How many ready tasks are counted of each line."""
MOST_SETS: Final = 50
"""How many sets of labels are reported: tenants choose the words."""

WORKERS = named("""
SELECT n.name, n.labels, EXISTS (
    SELECT 1 FROM slackwater_tasks_livetask l WHERE l.phase = :phase.IN_FLIGHT AND l.node_id = n.id)
FROM slackwater_resources_node n WHERE n.cell = %s AND n.state IN ('starting', 'active')
    AND n.lease_expires_at > clock_timestamp() ORDER BY n.started_at DESC, n.id DESC
""")
CELLS = """
SELECT cell FROM slackwater_tenants_tenant UNION
SELECT cell FROM slackwater_resources_node WHERE state IN ('starting', 'active', 'draining')
"""
SLOTS = """
SELECT n.cell, k.key, n.labels, sum(k.value::int)::int FROM slackwater_resources_node n, jsonb_each_text(n.slots) k
WHERE n.state = 'active' AND n.lease_expires_at > clock_timestamp() GROUP BY 1, 2, 3
"""
_LABELS = "array_to_string(n.require_labels, ',')"
IN_FLIGHT = named(f"""
SELECT t.cell, {SLOT_KIND}, n.tier_id, {_LABELS}, sum(l.slot_milli)::bigint FROM slackwater_tasks_livetask l
JOIN slackwater_tasks_line n ON n.id = l.line_id JOIN slackwater_tenants_tenant t ON t.id = l.tenant_id
LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
WHERE l.phase = :phase.IN_FLIGHT GROUP BY 1, 2, 3, 4
""")  # noqa: S608 - statements of ours
# The active lines by a loose scan of the ready index, each up to a number; in its order, or a line of a few is looked for
# through the whole table while another has nearly all.
READY = named(f"""{ACTIVE_LINES}
SELECT t.cell, w.kind, n.tier_id, {_LABELS}, w.count, n.tenant_id, w.name
FROM active a JOIN slackwater_tasks_line n ON n.id = a.line_id JOIN slackwater_tenants_tenant t ON t.id = n.tenant_id
CROSS JOIN LATERAL (
    SELECT x.kind, x.name, count(*) AS count FROM (
        SELECT {SLOT_KIND} AS kind, h.name, coalesce(h.paused, false) AS paused FROM slackwater_tasks_livetask l
            LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
            WHERE l.phase = :phase.READY AND l.line_id = a.line_id
            ORDER BY l.rank_group, l.rank, l.task_id LIMIT %(most)s) x
    WHERE NOT x.paused GROUP BY 1, 2) w
WHERE NOT (t.paused OR n.paused)
""")  # noqa: S608 - statements of ours
# What waits beside its line because no node has its labels: nodes that have them would run it.
LACKING = named(f"""
SELECT t.cell, {SLOT_KIND}, n.tier_id, {_LABELS}, count(*), NULL::float8
FROM slackwater_tasks_impossible i JOIN slackwater_tasks_livetask l ON l.task_id = i.task_id
    AND l.state = :state.BLOCKED AND l.parked = -1
JOIN slackwater_tasks_line n ON n.id = l.line_id JOIN slackwater_tenants_tenant t ON t.id = l.tenant_id
LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
WHERE i.reason = %s AND NOT (t.paused OR n.paused OR coalesce(h.paused, false)) GROUP BY 1, 2, 3, 4
""")  # noqa: S608 - statements of ours
# A cell that is scaled to zero has no node: the last one that was there tells what a worker offers.
TYPICAL = """
SELECT cell, labels, capacity, slots FROM (
    SELECT DISTINCT ON (cell, labels) cell, labels, capacity, slots::text, state = 'active' AS active, id
    FROM slackwater_resources_node ORDER BY cell, labels, (state = 'active') DESC, id DESC) newest
ORDER BY active DESC, id DESC
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the work of one cell asks for, in slots of one kind."""

    cell: str
    kind: str
    labels: str = ""
    """Of the work that requires these labels, and the nodes that have them; empty: of all."""
    slots: float
    """What its active nodes have."""
    demand: float
    """What its work in flight and its ready work would take at once."""
    wanted: float
    """The slots that meet the demand at the target ratio."""

    @property
    def ratio(self) -> float | None:
        """Slots for each slot of demand; ``None`` while there is no demand."""
        return self.slots / self.demand if self.demand else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The work of one tier in one cell."""

    cell: str
    tier: str
    own: bool
    """Whether it is a tenant's own tier."""
    labels: str
    """What the work requires of a node's labels, comma-separated; empty: nothing."""
    lacking: bool
    """Whether no node has them: it waits for one that does."""
    ready: int
    """Tasks that could start now, counted up to a number in each line."""
    in_flight_slots: float
    waiting_slots: float
    """Slots in which the ready work begins within ``scale_within_s``."""
    per_worker: int
    """How many handlers' tasks of the tier a worker like the cell's newest runs at once; 1 without any worker yet."""
    shares: Mapping[str, Fraction]
    """Workers needed, as fractions: for its slots of each kind, and for its resources."""

    @property
    def workers(self) -> int:
        """Whole workers that run nothing but this tier; 0 while there is no work of it."""
        return ceil(max(self.shares.values(), default=Fraction(0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How many workers a cell wants and has, of all or of those with labels."""

    cell: str
    labels: str
    """Comma-separated; empty: of all workers, without those that are asked for by their labels."""
    kind: str
    """What is short first: a kind of slot, or ``resources``; empty: nothing is asked for."""
    wanted: int
    have: int
    release: tuple[str, ...] = ()
    """Idle nodes that nobody would miss, where there are more than are wanted."""

    @property
    def action(self) -> str:
        """``more``, ``fewer``, or nothing. Fewer is said of all workers only: one with labels may serve the others."""
        if self.wanted > self.have:
            return "more"
        return "fewer" if self.wanted < self.have and not self.labels else ""

    @property
    def reason(self) -> str:
        of = f" with {self.labels}" if self.labels else ""
        by = f" by {self.kind}" if self.kind else ""
        return f"{counted(self.wanted, 'worker')}{of} wanted{by}, {self.have} there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """All that asks for slots at one moment, as rows that begin with cell, kind, tier and labels."""

    in_flight: list[tuple[Any, ...]]
    """With thousandths of a slot that are held."""
    ready: list[tuple[Any, ...]]
    """With tasks, and what each usually takes (microseconds; ``None``: nothing is learnt)."""
    lacking: list[tuple[Any, ...]]
    """The same of what waits because no node has its labels."""
    of_tenants: Mapping[tuple[str, str, int], float]
    """Thousandths of a slot that each tenant's ready work would take at once, by cell, kind and tenant."""


def work() -> Work:
    """Read it. Costs what is in flight and the active lines, not the backlog."""
    rows = fetch_all(READY, {"most": MAX_COUNTED})
    known = run_times({(name,) for *_, name in rows if name})
    ready = []
    of_tenants: dict[tuple[str, str, int], float] = {}
    for cell, kind, tier, labels, count, tenant, name in rows:
        usual = known.of(tenant, (name,)) if name else None
        mean_us = usual.mean_us if usual is not None else None
        ready.append((cell, kind, tier, labels, count, mean_us))
        key = (cell, kind, tenant)
        of_tenants[key] = of_tenants.get(key, 0.0) + count * _milli(kind, mean_us)
    lacking = fetch_all(LACKING, [Reason.NO_LABELS.value])
    return Work(in_flight=fetch_all(IN_FLIGHT), ready=ready, lacking=lacking, of_tenants=of_tenants)


def _milli(kind: str, mean_us: int | None) -> float:
    """A task known to be short asks for the part of a slot that a claim of it takes; any other for a whole one."""
    short = kind == "process" and mean_us is not None and mean_us <= SHORT_US
    return max(1, mean_us * 1000 / LOOKAHEAD_US) if short and mean_us is not None else 1000


def waited_for(asking: Work) -> dict[tuple[str, int], float]:
    """By cell and tenant, what its ready work would take at once, as a part of the cell's slots of the kind it lacks most."""
    slots = _slots(())
    found: dict[tuple[str, int], float] = {}
    for (cell, kind, tenant), milli in asking.of_tenants.items():
        part = milli / 1000 / max(1, slots.get((cell, kind, ""), 0))
        found[cell, tenant] = max(found.get((cell, tenant), 0.0), part)
    return found


def demands(asking: Work | None = None) -> list[Demand]:
    """Every kind of slot of every cell, by name, and then of each set of labels that work requires.

    ``asking``: what was read a moment ago.
    """
    settings, asking = conf().scheduler, asking or work()
    milli: dict[tuple[str, str, str], float] = {}
    for cell, kind, _, labels, held in asking.in_flight:
        for asked in {"", labels}:
            milli[cell, kind, asked] = milli.get((cell, kind, asked), 0) + int(held)
    for whose, rows in ((("",), asking.ready), ((), asking.lacking)):
        for cell, kind, _, labels, count, mean_us in rows:
            for asked in {*whose, labels}:
                milli[cell, kind, asked] = milli.get((cell, kind, asked), 0) + count * _milli(kind, mean_us)
    slots = _slots(milli.keys())
    return [
        Demand(
            cell=key[0], kind=key[1], labels=key[2], slots=float(slots.get(key, 0)), demand=round(milli.get(key, 0)) / 1000,
            wanted=round(milli.get(key, 0)) / 1000 * settings.resource_ratio_permille / 1000,
        )
        for key in sorted(slots.keys() | milli.keys(), key=lambda key: (key[0], key[2], key[1]))
    ]  # fmt: skip


def _slots(asked: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str, str], int]:
    """What the active nodes have of each kind, in all and by what is asked of their labels."""
    sets = {(cell, labels) for cell, _, labels in asked if labels}
    found: dict[tuple[str, str, str], int] = {}
    for cell, kind, labels, count in fetch_all(SLOTS):
        has = with_names(labels)
        for name in ("", *(each for whose, each in sets if whose == cell and has.issuperset(each.split(",")))):
            found[cell, kind, name] = found.get((cell, kind, name), 0) + int(count or 0)
    return found


def wanted(asking: Work | None = None) -> list[Wanted]:
    """Every shared tier and every tier with work, in each cell; ``asking``: what was read a moment ago."""
    settings, asking = conf().scheduler, asking or work()
    held: dict[Key, Counted] = {}
    for cell, kind, tier, labels, milli in asking.in_flight:
        held.setdefault((cell, tier, labels, False), {})[kind] = Fraction(int(milli), 1000)
    within_us = int(settings.scale_within_s * 1e6)
    # What requires no label lacks a node that is not reserved: any worker will do.
    open_to = [*asking.ready, *(row for row in asking.lacking if not row[3])]
    ready = _waiting(open_to, within_us, lacking=False)
    ready |= _waiting((row for row in asking.lacking if row[3]), within_us, lacking=True)
    cells = [cell for (cell,) in fetch_all(CELLS)]
    shared = Tier.objects.filter(tenant=None, retired_at=None).values_list("pk", flat=True)
    keys = {(cell, tier, "", False) for cell in cells for tier in shared} | held.keys() | ready.keys()
    tiers = Tier.objects.in_bulk({key[1] for key in keys})
    return sorted(
        _rated(keys, tiers, held, ready, _typical(keys), settings.resource_ratio_permille),
        key=lambda one: (one.cell, one.tier, one.labels, one.lacking),
    )


def _typical(keys: Iterable[Key]) -> dict[tuple[str, str], tuple[list[int], dict[str, int]]]:
    """What a worker offers, by cell and labels: the newest that has them, else the newest of the cell."""
    rows = [
        (cell, with_names(labels), capacity, json.loads(slots)) for cell, labels, capacity, slots in fetch_all(TYPICAL)
    ]
    found = {}
    for cell, labels in {(key[0], key[2]) for key in keys}:
        asked = frozenset(labels.split(",")) if labels else frozenset()
        there = [row for row in rows if row[0] == cell]
        best = next((row for row in there if asked <= row[1]), there[0] if there else None)
        if best is not None:
            found[cell, labels] = best[2], best[3]
    return found


def by_cell(found: Iterable[Wanted]) -> dict[str, int]:
    """Whole workers for each cell whose workers run every tier."""
    return _whole((one.cell, one.shares) for one in found if not one.lacking)


def by_tier(found: Iterable[Wanted]) -> dict[tuple[str, str], int]:
    """Whole workers for each cell and shared tier; tenants' own tiers count together as ``own``: their names are
    private.
    """
    return _whole(((one.cell, "own" if one.own else one.tier), one.shares) for one in found if not one.lacking)


def by_labels(found: Iterable[Wanted]) -> dict[tuple[str, str], int]:
    """Whole workers for each cell and set of labels, also of those that no node has; ``""``: what requires none.

    Of very many sets those that ask for most.
    """
    all_sets = _whole(((one.cell, one.labels), one.shares) for one in found)
    most = sorted(all_sets, key=lambda key: (key[1] != "", -all_sets[key], key))[:MOST_SETS]
    return {key: all_sets[key] for key in sorted(most)}


def advice(cell: str) -> list[Advice]:
    """For each set of labels that work requires and a node ever had, and at last for the cell as a whole.

    Words that tenants make up ask for nothing; of very many sets those that ask for most are told.
    """
    found = [one for one in wanted() if one.cell == cell]
    workers = [(name, with_names(labels), busy) for name, labels, busy in fetch_all(WORKERS, [cell])]
    ever = [with_names(labels) for whose, labels, *_ in fetch_all(TYPICAL) if whose == cell]
    asking = _sums((one.labels, one.shares) for one in found if one.labels)
    known = [each for each in asking if any(has.issuperset(each.split(",")) for has in ever)]
    sets = {each: asking[each] for each in sorted(known, key=lambda each: (-_most(asking[each])[1], each))[:MOST_SETS]}
    have = {each: sum(1 for _, has, _ in workers if has.issuperset(each.split(","))) for each in sets}
    answer = [
        Advice(cell=cell, labels=each, kind=_most(shares)[0], wanted=_most(shares)[1], have=have[each])
        for each, shares in sorted(sets.items())
    ]
    asked = {one.labels: one.wanted for one in answer}
    lacking = {one.labels for one in found if one.lacking}
    if shut := [each for each in workers if RESERVED in each[1]]:  # they serve none but those who ask for them
        workers = [each for each in workers if RESERVED not in each[1]]
        served = {each for each in sets for _, has, _ in shut if has.issuperset(each.split(","))}
        found, lacking = [one for one in found if one.labels not in served], lacking | served
    kind, count = _most(_sums(("", one.shares) for one in found if not one.lacking).get("", {}))
    count -= sum(max(0, number - have[each]) for each, number in asked.items() if each not in lacking)
    release: list[str] = []
    for name, has, busy in workers:
        missed = [each for each in sets if has.issuperset(each.split(","))]
        if not busy and len(workers) - len(release) > count and all(have[each] > asked[each] for each in missed):
            release.append(name)
            have |= {each: have[each] - 1 for each in missed}
    whole = Advice(cell=cell, labels="", kind=kind, wanted=max(0, count), have=len(workers), release=tuple(release))
    return [*answer, whole]


def _whole(found: Iterable[tuple[K, Mapping[str, Fraction]]]) -> dict[K, int]:
    """Of what is short first: a worker brings slots of every kind, and its resources."""
    return {key: _most(shares)[1] for key, shares in _sums(found).items()}


def _most(shares: Counted) -> tuple[str, int]:
    """What is short first, and whole workers for it."""
    kind = max(shares, key=lambda name: (shares[name], name), default="")
    count = ceil(shares.get(kind, 0))
    return kind if count else "", count


def _sums(found: Iterable[tuple[K, Mapping[str, Fraction]]]) -> dict[K, Counted]:
    sums: dict[K, Counted] = {}
    for key, shares in found:
        so_far = sums.setdefault(key, {})
        for name, share in shares.items():
            so_far[name] = so_far.get(name, Fraction(0)) + share
    return sums


def _waiting(rows: Iterable[tuple[Any, ...]], within_us: int, *, lacking: bool) -> dict[Key, tuple[int, Counted]]:
    """By cell, tier and labels: ready tasks, and slots. A task asks for at most a slot, and for one where nothing is learnt."""
    found: dict[Key, tuple[int, Counted]] = {}
    for cell, kind, tier, labels, count, mean_us in rows:
        key = (cell, tier, labels, lacking)
        learnt = within_us if mean_us is None else min(round(mean_us), within_us)
        so_far, slots = found.get(key, (0, {}))
        slots[kind] = slots.get(kind, Fraction(0)) + Fraction(count * learnt, within_us)
        found[key] = (so_far + count, slots)
    return found


def _rated(
    keys: Iterable[Key], tiers: Mapping[int, Tier], held: Mapping[Key, Counted],
    ready: Mapping[Key, tuple[int, Counted]],
    typical: Mapping[tuple[str, str], tuple[list[int], dict[str, int]]], permille: int,
) -> Iterator[Wanted]:  # fmt: skip
    for key in keys:
        cell, tier_id, labels, lacking = key
        if tier_id not in tiers:
            continue
        tier = tiers[tier_id]
        count, waiting = ready.get(key, (0, {}))
        running = held.get(key, {})
        asked = {kind: (running.get(kind, Fraction(0)) + waiting.get(kind, Fraction(0))) * permille / 1000
                 for kind in running.keys() | waiting.keys()}  # fmt: skip
        capacity, slots = typical.get((cell, labels), ([], {}))
        fits = min([max(1, have // need) for have, need in zip(capacity, tier.vector, strict=False) if need], default=1)
        shares = {kind: each / max(1, int(slots.get(kind, 0))) for kind, each in asked.items()}
        shares["resources"] = (
            sum((each / PER_CHILD.get(WorkKind(kind), 1) for kind, each in asked.items()), Fraction(0)) / fits
        )
        yield Wanted(
            cell=cell, tier=tier.slug, own=tier.tenant_id is not None, labels=labels, lacking=lacking, ready=count,
            in_flight_slots=float(sum(running.values())), waiting_slots=float(sum(waiting.values())),
            per_worker=max(1, min(fits, int(slots.get("process", 1)))), shares=shares,
        )  # fmt: skip
