"""The handlers a tenant may call: their arguments, their kind, and how long they usually run for it."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.run_times import LONG, Quantiles
from slackwater_resources.models import Handler, Node, Tier
from slackwater_tasks.models import RunTime
from slackwater_tasks.spec import FIELDS
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import is_granted


def handlers(tenant: Tenant, name: str | None = None) -> list[dict[str, Any]]:
    """The handlers that the tenant's plan grants, by name; with ``name`` that one alone."""
    patterns = tuple(tenant.plan.handlers)
    wanted = Handler.objects.filter(name=name) if name is not None else Handler.objects.order_by("name")
    granted = [row for row in wanted if is_granted(patterns, row.name)]
    names = [row.name for row in granted]
    nodes = Node.objects.filter(cell=tenant.cell, state=Node.State.ACTIVE).values_list("handlers", flat=True)
    served = {pk for pks in nodes for pk in pks}
    learnt = RunTime.objects.filter(tenant=tenant, key__in=names)
    usual = {row.key: row for row in learnt}
    allowed = {
        "tier": FIELDS["tier"].default,
        "tiers": sorted(
            Tier.objects.filter(Q(tenant=tenant, retired_at=None) | Q(tenant=None, slug__in=tenant.plan.tiers))
            .values_list("slug", flat=True)
        ),
        "max_execution_cap_s": tenant.plan.max_cap_s,
    }  # fmt: skip
    return [
        {
            **{
                field: getattr(row, field)
                for field in ("name", "kind", "idempotent", "checkpoints", "paused", "schema")
            },
            "description": row.description or None,
            "available": row.pk in served,
            **_run_times(usual.get(row.name)),
            **allowed,
        }
        for row in granted
    ]


def _run_times(learnt: RunTime | None) -> dict[str, Any]:
    """Its run times: the mean, the median and the 90th percentile."""
    buckets = {int(bucket): count for bucket, count in learnt.buckets.items()} if learnt else {}
    quantiles = Quantiles(buckets) if buckets else None
    return {
        "usual_run_s": learnt.mean_us / 1e6 if learnt else None,
        "median_run_s": quantiles.at(0.5) / 1e6 if quantiles else None,
        "long_run_s": quantiles.at(LONG) / 1e6 if quantiles else None,
        "runs": learnt.samples if learnt else 0,
    }


def handler(tenant: Tenant, name: str) -> dict[str, Any]:
    """One of them; ``NotFound`` if there is none, or the plan does not grant it."""
    found = handlers(tenant, name)
    if not found:
        raise NotFound(f"There is no handler {name[:200]} that your plan grants.")
    return found[0]
