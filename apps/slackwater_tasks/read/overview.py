"""What a tenant sees of the platform: tiers, nodes, its own lines, and what its plan still allows.

Every number here costs what is shown, not what waits: counts of ready tasks stop at :data:`MAX_COUNTED`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.resources import DIMENSIONS
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category, TaskState
from slackwater_resources.models import Handler, Node, Tier
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.models import Line
from slackwater_tasks.read.tasks import word
from slackwater_tenants.models import CurrentCounter, Tenant, plan_numbers
from slackwater_tenants.services import is_granted, paused_by

MAX_COUNTED = 10_000
SEEN = [Node.State.STARTING, Node.State.ACTIVE, Node.State.DRAINING]


def tiers(tenant: Tenant) -> list[dict[str, Any]]:
    """The tiers a tenant may name: the shared ones of its plan, and its own."""
    own = Q(tenant=tenant, retired_at=None, derived=False)
    return [tier(row) for row in Tier.objects.filter(own | Q(tenant=None, slug__in=tenant.plan.tiers))]


def tier(row: Tier) -> dict[str, Any]:
    """A tier as clients see it."""
    return {
        "name": row.slug,
        "own": row.tenant_id is not None,
        **{name: getattr(row, name) for name in DIMENSIONS},
        "default_execution_cap_s": row.default_cap_s,
        "price_micros_per_hour": row.price_micros_per_hour,
    }


IN_FLIGHT_BY_NODE = named("""
SELECT node_id, count(*) FILTER (WHERE tenant_id = %(tenant)s AND state = :state.QUEUED)::int,
       count(*) FILTER (WHERE tenant_id = %(tenant)s AND state = :state.RUNNING)::int, count(*)::int
FROM slackwater_tasks_livetask WHERE phase = :phase.IN_FLIGHT GROUP BY node_id
""")


def _in_flight(tenant_id: int | None) -> dict[int, tuple[int, int, int]]:
    rows = fetch_all(IN_FLIGHT_BY_NODE, {"tenant": tenant_id})
    return {node: (queued, running, total) for node, queued, running, total in rows}


def nodes(tenant: Tenant) -> list[dict[str, Any]]:
    """The live nodes of the tenant's cell, with the tenant's own tasks on each."""
    names = dict(Handler.objects.values_list("pk", "name"))
    patterns = tuple(tenant.plan.handlers)
    counts = _in_flight(tenant.pk)
    found = []
    for node in Node.objects.filter(cell=tenant.cell, state__in=SEEN).order_by("name"):
        queued, running, _ = counts.get(node.pk, (0, 0, 0))
        handlers = sorted(names[pk] for pk in node.handlers if pk in names and is_granted(patterns, names[pk]))
        found.append({**_node(node), "handlers": handlers, "own_queued": queued, "own_running": running})
    return found


def all_nodes(*, gone: bool) -> list[dict[str, Any]]:
    """The nodes of all cells, for operators; with ``gone`` also those that left or were lost."""
    counts = _in_flight(None)
    rows = Node.objects.order_by("cell", "name", "-started_at")
    return [
        {
            **_node(node),
            "cell": node.cell,
            "hostname": node.hostname,
            "in_flight": counts.get(node.pk, (0, 0, 0))[2],
            "lease_expires_at": node.lease_expires_at,
        }
        for node in (rows if gone else rows.filter(state__in=SEEN))
    ]


def _node(node: Node) -> dict[str, Any]:
    names = ("name", "state", "slots", "labels", "sandbox", "enforced", "started_at", "heartbeat_at")
    shown = {name: getattr(node, name) for name in names}
    return {"id": node.incarnation, **shown, "capacity": dict(zip(DIMENSIONS, node.capacity, strict=False))}


LINES = named("""
SELECT array_agg(n.id), n.category, r.slug, bool_and(n.paused), bool_or(n.paused_by_itself), sum(w.ready)::int,
    min(w.oldest)
FROM slackwater_tasks_line n JOIN slackwater_resources_tier r ON r.id = n.tier_id
CROSS JOIN LATERAL (
    SELECT count(*)::int AS ready, min(x.latest_start) AS oldest FROM (
        SELECT l.latest_start FROM slackwater_tasks_livetask l WHERE l.line_id = n.id
            AND l.phase = :phase.READY LIMIT %(most)s + 1) x) w
WHERE n.tenant_id = %(tenant)s GROUP BY n.category, r.slug ORDER BY n.category, r.slug
""")
IN_FLIGHT_BY_LINE = named("""
SELECT line_id, state, count(*)::int FROM slackwater_tasks_livetask WHERE phase = :phase.IN_FLIGHT
    AND tenant_id = %s GROUP BY 1, 2
""")


def find_lines(tenant_id: int, category: str, tier: str) -> QuerySet[Line]:
    """The tenant's lines of that category and tier, by name: one for each set of labels its tasks ask for.

    ``NotFound`` when it has none.
    """
    number = Category.__members__.get(category.upper()) if category == category.lower() else None
    rows = Line.objects.unscoped().filter(tenant_id=tenant_id, tier__slug=tier, category=number)  # the tenant is named
    if number is None or not rows.exists():
        raise NotFound(f"There is no line {category[:63]}/{tier[:63]}; a line exists from its first task on.")
    return rows.order_by("pk")


def queue(tenant: Tenant, category: str, tier: str) -> dict[str, Any]:
    """One line of the tenant's; ``NotFound`` if it has none of that category and tier."""
    find_lines(tenant.pk, category, tier)
    return next(row for row in queues(tenant) if (row["category"], row["tier"]) == (category, tier))


def queues(tenant: Tenant) -> list[dict[str, Any]]:
    """The tenant's lines, one for each category and tier it has used."""
    lines = fetch_all(LINES, {"tenant": tenant.pk, "most": MAX_COUNTED})
    held = {(line, state): count for line, state, count in fetch_all(IN_FLIGHT_BY_LINE, [tenant.pk])}
    return [
        {
            "category": word(Category(category)),
            "tier": tier,
            "paused": paused or tenant.paused,
            "paused_by": paused_by(paused, itself) or paused_by(tenant.paused, tenant.paused_by_itself),
            "ready": min(ready, MAX_COUNTED),
            "ready_is_minimum": ready > MAX_COUNTED,
            "queued": sum(held.get((line, TaskState.QUEUED), 0) for line in alike),
            "running": sum(held.get((line, TaskState.RUNNING), 0) for line in alike),
            "earliest_latest_start": oldest,
        }
        for alike, category, tier, paused, itself, ready, oldest in lines
    ]


def _rate(tenant: Tenant, counter: CurrentCounter | None) -> dict[str, Any]:
    """How many submissions the rate accepts at once now, and when it accepts the next one and all of them."""
    plan, now = tenant.plan, timezone.now()
    arrival = counter.theoretical_arrival if counter is not None else None
    if plan.tasks_per_hour == 0:
        return {"available_now": 0, "next_at": None, "full_at": None}
    if arrival is None or arrival <= now:
        return {"available_now": int(plan.burst), "next_at": now, "full_at": now}
    interval = timedelta(hours=1) / plan.tasks_per_hour
    available = max(0, plan.burst - -(-(arrival - now) // interval))
    next_at = now if available else arrival - (plan.burst - 1) * interval
    return {"available_now": available, "next_at": next_at, "full_at": arrival}


def _prices(tenant: Tenant) -> dict[str, Any]:
    """What work costs, in millionths of the unit the platform charges in."""
    named = Tier.objects.filter(Q(tenant=tenant) | Q(tenant=None, slug__in=tenant.plan.tiers))
    return {
        "attempt_micros": tenant.plan.price_micros_per_attempt,
        "tier_hour_micros": {tier.slug: tier.price_micros_per_hour for tier in named},
        "category_permille": tenant.plan.price_permille,
    }


def limits(tenant: Tenant) -> dict[str, Any]:
    """The numbers of the tenant's plan, and what is used of them now."""
    counter = CurrentCounter.objects.filter(pk=tenant.pk).first()
    held = sum(queued + running for queued, running, _ in _in_flight(tenant.pk).values())
    rate = _rate(tenant, counter)
    return {
        "plan": tenant.plan.slug,
        "limits": plan_numbers(tenant.plan),
        "used": {
            "unfinished": counter.unfinished if counter is not None else 0,
            "urgent_unfinished": counter.urgent_unfinished if counter is not None else 0,
            "in_flight": held,
            "submissions_available_now": rate["available_now"],
        },
        "rate": {"per_hour": tenant.plan.tasks_per_hour, "burst": tenant.plan.burst, **rate},
        "prices": _prices(tenant),
    }
