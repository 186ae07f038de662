"""Hints of smaller tiers: handlers and scripts whose last runs used less than their tier offers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.db.models import Q

from scheduler_ext.sandbox.keeper.work_folder import FLOOR_MB
from slackwater_monitoring.models import Sizing
from slackwater_resources.models import Tier
from slackwater_tenants.models import Tenant

MIN_RUNS: Final = 20
"""Fewer runs give no hint."""
HELD_PERCENT: Final = 95


def percentile(values: Sequence[int], percent: int = HELD_PERCENT) -> int:
    """The smallest of ``values`` that at least ``percent`` of 100 do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def hints(tenant: Tenant) -> list[dict[str, Any]]:
    """The tenant's handlers and scripts that would have run in a smaller tier, by name."""
    own = Q(tenant=tenant, retired_at=None)
    tiers = list(Tier.objects.filter(own | Q(tenant=None, slug__in=tenant.plan.tiers)))
    # Unscoped, because the tenant is named.
    rows = Sizing.objects.unscoped().filter(tenant_id=tenant.pk).select_related("tier").order_by("kind", "name", "tier")
    return list(_hints(rows.iterator(), tiers))


def all_hints(most: int) -> list[dict[str, Any]]:
    """The hints of all tenants, for operators: of the ``most`` that ran most, each with the tenant's name."""
    # Unscoped: the admin sees all tenants.
    rows = Sizing.objects.unscoped().select_related("tier", "tenant__plan").order_by("-runs")[:most]
    found, tiers = [], list(Tier.objects.filter(retired_at=None))
    for row in rows:
        plan = row.tenant.plan.tiers
        allowed = [t for t in tiers if t.tenant_id == row.tenant_id or (t.tenant_id is None and t.slug in plan)]
        said = hint(row, allowed)
        if said is not None:
            found.append({"tenant": row.tenant, **said})
    return found


def _hints(rows: Iterator[Sizing], tiers: Sequence[Tier]) -> Iterator[dict[str, Any]]:
    for row in rows:
        found = hint(row, tiers)
        if found is not None:
            yield found


def hint(row: Sizing, tiers: Sequence[Tier]) -> dict[str, Any] | None:
    """The smallest of ``tiers`` below the row's that would have held it; ``None`` when none would, or too few ran.

    Nothing is smaller in what was not measured, as a handler's memory and disk where the kernel keeps no account.
    """
    used = {
        "cpu_milli": percentile(row.cpu_milli) if row.cpu_milli else 0,
        "memory_mb": _known(row.memory_mb),
        "disk_mb": _known(row.disk_mb),
    }
    if len(row.cpu_milli) < MIN_RUNS:
        return None
    fitting = [tier for tier in tiers if _is_smaller(tier, row.tier) and _holds(tier, row.tier, used)]
    if not fitting:
        return None
    best = min(fitting, key=lambda tier: (*tier.vector, tier.slug))
    return {
        "kind": row.kind,
        "name": row.name,
        "tier": row.tier.slug,
        "suggested_tier": best.slug,
        "runs": len(row.cpu_milli),
        "runs_over": sum(_over(best, *run) for run in zip(row.cpu_milli, row.memory_mb, row.disk_mb, strict=True)),
        "p95": used,
        "updated_at": row.updated_at,
    }


def _known(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return percentile(known) if len(known) >= MIN_RUNS else None


def _is_smaller(tier: Tier, than: Tier) -> bool:
    pairs = list(zip(tier.vector, than.vector, strict=True))
    return all(a <= b for a, b in pairs) and tier.vector != than.vector


def _holds(tier: Tier, asked: Tier, used: dict[str, int | None]) -> bool:
    return all(_room(tier, name) >= (_room(asked, name) if most is None else most) for name, most in used.items())


def _room(tier: Tier, name: str) -> int:
    # Every script has some disk, also where its tier has none.
    return max(tier.disk_mb, FLOOR_MB) if name == "disk_mb" else int(getattr(tier, name))


def _over(tier: Tier, cpu: int, memory: int | None, disk: int | None) -> bool:
    return cpu > tier.cpu_milli or (memory or 0) > tier.memory_mb or (disk or 0) > _room(tier, "disk_mb")
