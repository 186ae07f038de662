"""What a submission would cost and when it would start: it is made, looked at, and rolled back.

Nothing of it is committed. The tenant's counters are let go before the forecasts begin, so that nobody waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID, uuid4

from django.db import transaction

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.labels import labels_of
from scheduler_ext.core.run_times import TENANTS
from scheduler_ext.core.states import Category
from slackwater_resources.models import Tier
from slackwater_tasks.control.edit import edit
from slackwater_tasks.explain.explanation import predicted_start
from slackwater_tasks.explain.queries import ROW
from slackwater_tasks.field_kinds import seconds
from slackwater_tasks.ledger import learnt, reference_cache
from slackwater_tasks.ledger.connection import fetch_all, fetch_named
from slackwater_tasks.ledger.learnt import KEYS
from slackwater_tasks.read import overview
from slackwater_tasks.read.tasks import word
from slackwater_tenants.models import Tenant

MAX_ITEMS: Final = 100
"""How many groups of like tasks are shown; all are counted."""
FORECASTS_S: Final = 2.0
"""No forecast is begun after so many seconds; the remaining groups have none."""
HOUR_MS: Final = 3_600_000
GROUPS = f"""
SELECT t.handler, coalesce(nullif(t.script_path, ''), t.script_sha256), t.category, r.id, r.slug, r.price_micros_per_hour,
    t.delay_tolerance_ms, t.cap_ms, l.total_attempts - l.attempts, count(*)::int,
    (array_agg(t.id ORDER BY l.pending, t.id))[1], {KEYS}
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
JOIN slackwater_resources_tier r ON r.id = t.tier_id
WHERE l.task_id = ANY(%s) AND t.tenant_id = %s GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 12 ORDER BY min(l.pending), 11
"""  # noqa: S608 - texts of ours


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks that are alike in everything that has a price."""

    handler: str
    script: str
    category: int
    tier_id: int
    tier: str
    hour_micros: int
    tolerance_ms: int
    cap_ms: int
    attempts: int
    count: int
    first: UUID
    """The one of them that can start first."""
    run_ms: float | None
    """The learnt run time."""

    def prices(self, tenant: Tenant, category: int) -> tuple[int | None, int]:
        """Their cost in a category: one attempt each of the usual run time, and at most."""
        expected = None if self.run_ms is None else self.count * attempt_micros(tenant, self, category, self.run_ms)
        most = self.count * self.attempts * attempt_micros(tenant, self, category, self.cap_ms)
        return None if expected is None else round(expected), round(most)


def attempt_micros(tenant: Tenant, group: Group, category: int, run_ms: float) -> float:
    """The price of an attempt that holds its resources so long."""
    hour = group.hour_micros * _permille(tenant, category) / 1000
    return tenant.plan.price_micros_per_attempt + run_ms / HOUR_MS * hour


def _permille(tenant: Tenant, category: int) -> int:
    return int(tenant.plan.price_permille.get(word(Category(category)), 1000))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a submission had stored before it was rolled back."""

    answer: dict[str, Any]
    groups: list[Group]
    rows: list[dict[str, Any] | None]
    """The row of each group's first task, as an explanation reads it."""
    patience: list[tuple[int, int, dict[str, Any]]]
    """Categories and tolerances (ms) of the first task that the plan allows, each with its row."""
    limits: dict[str, Any]
    derived: list[Tier]
    """The groups' tiers that are made on first use."""


def quote(tenant: Tenant, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Quote what ``make`` submits: raises what a submission would raise, and commits nothing."""
    with transaction.atomic():
        point = transaction.savepoint()
        seen = _look(tenant, make)
        transaction.savepoint_rollback(point)
        _make_again(seen.derived)
        stop = time.monotonic() + FORECASTS_S
        starts = [
            _start(tenant, group.category, group, row, stop) for group, row in zip(seen.groups, seen.rows, strict=True)
        ]
        patience = list(_patience(tenant, seen, stop))
        transaction.set_rollback(True)
    items = [_item(tenant, group, start) for group, start in zip(seen.groups[:MAX_ITEMS], starts, strict=False)]
    return {
        "created": bool(seen.answer.get("created", True)),
        "tasks": sum(group.count for group in seen.groups),
        "price": _sum(tenant, seen.groups),
        "items": items,
        "predicted_start": min((s for s in starts if s), key=lambda s: s["likely"], default=None),
        "patience": patience,
        "limits_left": seen.limits,
        "as_of": reference_cache.now(),
    }


def _look(tenant: Tenant, make: Callable[[], dict[str, Any]]) -> _Seen:
    answer = make()
    ids = [UUID(str(task_id)) for task_id in _ids(tenant, answer)] if answer.get("created", True) else []
    groups = _groups(tenant.pk, fetch_all(GROUPS, [ids, tenant.pk]))
    rows = [_row(tenant, group.first) if n < MAX_ITEMS else None for n, group in enumerate(groups)]
    limits = _left(tenant)
    derived = list(Tier.objects.filter(pk__in={group.tier_id for group in groups}, derived=True))
    return _Seen(answer, groups, rows, _variants(tenant, groups[0]) if groups else [], limits, derived)


def _make_again(tiers: Sequence[Tier]) -> None:
    """Make the tiers that were taken back with the rest: the lines of the forecasts have them."""
    there = set(Tier.objects.filter(pk__in=[tier.pk for tier in tiers]).values_list("pk", flat=True))
    for tier in tiers:
        if tier.pk not in there:
            tier.slug = uuid4().hex  # by its own name, who makes the same would wait until this one is gone
            tier.save(force_insert=True)


def _groups(tenant_id: int, rows: Sequence[Any]) -> list[Group]:
    """The tasks that are alike: scripts whose names differ count together where their run times are the same."""
    known = learnt.run_times([row[-1] for row in rows], least=TENANTS)
    found: dict[tuple[Any, ...], Group] = {}
    for *alike, count, first, keys in rows:
        usual = known.of(tenant_id, keys)
        group = Group(*[*alike, count, first, None if usual is None else usual.mean_us / 1000])
        same = found.get((*alike, group.run_ms))
        found[*alike, group.run_ms] = group if same is None else replace(same, count=same.count + count)
    return list(found.values())


def _ids(tenant: Tenant, answer: dict[str, Any]) -> Sequence[Any]:
    """The tasks in an answer: its own list, its one task, or those of its workflows."""
    if answer.get("task_ids"):
        return list(answer["task_ids"])
    if answer.get("task_id") or "state" in answer:
        return [answer.get("task_id") or answer["id"]]
    workflows = [i for i in [answer.get("workflow_id"), *answer.get("workflow_ids", ())] if i]
    return [
        row[0]
        for row in fetch_all("SELECT id FROM slackwater_tasks_task WHERE workflow_id = ANY(%s::uuid[])", [workflows])
    ]


def _row(tenant: Tenant, task_id: UUID) -> dict[str, Any] | None:
    return fetch_named(ROW, [task_id, tenant.pk])


def _left(tenant: Tenant) -> dict[str, Any]:
    """What the plan allows after this submission."""
    now = overview.limits(tenant)
    return {
        "submissions_now": now["rate"]["available_now"],
        "waiting": max(0, tenant.plan.max_waiting - now["used"]["unfinished"]),
        "in_flight": max(0, tenant.plan.max_in_flight - now["used"]["in_flight"]),
    }


def _variants(tenant: Tenant, group: Group) -> list[tuple[int, int, dict[str, Any]]]:
    """The first task in other categories and with other tolerances, as far as the plan allows them."""
    found = []
    for category in Category:
        usual = int(tenant.plan.delay_tolerance_s.get(word(category), 300) * 1000)
        for tolerance in sorted({usual, group.tolerance_ms}):
            if (category, tolerance) == (group.category, group.tolerance_ms):
                continue
            with suppress(SlackwaterError), transaction.atomic():
                edit(tenant.pk, group.first, {"category": word(category), "delay_tolerance_s": tolerance / 1000})
                found.append((int(category), tolerance, _row(tenant, group.first) or {}))
                transaction.set_rollback(True)
    return found


def _start(
    tenant: Tenant, category: int, group: Group, row: dict[str, Any] | None, stop: float
) -> dict[str, Any] | None:
    """When the task of a row starts; ``None`` where nobody can tell, or no time is left."""
    if not row or row["state"] is None or row["pending"] or time.monotonic() > stop:
        return None
    # The line may have been new, and been taken back with the rest.
    labels = labels_of(row["require_labels"] or (), row["prefer_labels"] or ())
    line_id = reference_cache.line_id(tenant.pk, category, group.tier_id, labels)
    return predicted_start(group.first, {**row, "line_id": line_id})


def _patience(tenant: Tenant, seen: _Seen, stop: float) -> Iterator[dict[str, Any]]:
    for category, tolerance_ms, row in seen.patience:
        start = _start(tenant, category, seen.groups[0], row, stop)
        groups = [replace(group, category=category) for group in seen.groups]
        yield {
            "category": word(Category(category)),
            "delay_tolerance_s": seconds(tolerance_ms),
            "price": _sum(tenant, groups),
            "predicted_start": start,
        }


def _sum(tenant: Tenant, groups: Sequence[Group]) -> dict[str, Any]:
    prices = [group.prices(tenant, group.category) for group in groups]
    known = [expected for expected, _ in prices if expected is not None]
    return {
        "expected_micros": sum(known) if len(known) == len(prices) else None,
        "most_micros": sum(most for _, most in prices),
    }


def _item(tenant: Tenant, group: Group, start: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "tasks": group.count,
        "handler": group.handler or None,
        "script": group.script or None,
        "category": word(Category(group.category)),
        "tier": group.tier,
        "delay_tolerance_s": seconds(group.tolerance_ms),
        "execution_cap_s": seconds(group.cap_ms),
        "attempts": group.attempts,
        "attempt_micros": tenant.plan.price_micros_per_attempt,
        "hour_micros": round(group.hour_micros * _permille(tenant, group.category) / 1000),
        "expected_run_s": None if group.run_ms is None else seconds(round(group.run_ms)),
        "price": _sum(tenant, [group]),
        "predicted_start": start,
    }
