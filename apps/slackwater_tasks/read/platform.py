"""What operators see of all tenants, or of one: who runs what where, and what each holds.

Unscoped throughout, because operators see all tenants. The cost grows with what is in flight or shown, not with what waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any
from uuid import UUID

from scheduler_ext.core.sql import named
from slackwater_tasks.ledger.connection import fetch_dicts, fetch_value

RUNNING = named("""
SELECT l.task_id AS id, t.name, t.handler, coalesce(nullif(t.script_path, ''), left(t.script_sha256, 12)) AS script,
    n.slug AS tenant, o.name AS node, l.started_at, (t.cap_ms / 1000.0)::float8 AS cap_s,
    (l.slot_milli / 1000.0)::float8 AS slots,
    greatest(0, extract(epoch FROM clock_timestamp() - l.started_at))::float8 AS running_s
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
    JOIN slackwater_tenants_tenant n ON n.id = l.tenant_id LEFT JOIN slackwater_resources_node o ON o.id = l.node_id
WHERE l.phase = :phase.IN_FLIGHT AND l.state = :state.RUNNING AND (%(tenant)s::bigint IS NULL OR l.tenant_id = %(tenant)s)
    AND (%(node)s::bigint IS NULL OR l.node_id = %(node)s) AND (%(cell)s::text IS NULL OR o.cell = %(cell)s)
    AND (%(ids)s::uuid[] IS NULL OR l.task_id = ANY(%(ids)s::uuid[]))
ORDER BY l.started_at, l.task_id LIMIT %(limit)s
""")
TENANTS = named("""
WITH held AS (
    SELECT tenant_id, count(*) FILTER (WHERE state = :state.QUEUED)::int AS queued,
        count(*) FILTER (WHERE state = :state.RUNNING)::int AS running
    FROM slackwater_tasks_livetask WHERE phase = :phase.IN_FLIGHT GROUP BY tenant_id)
SELECT t.id, t.slug AS tenant, t.name, p.slug AS plan, p.weight, t.paused, t.cell, coalesce(c.unfinished, 0) AS unfinished,
    coalesce(c.urgent_unfinished, 0) AS urgent, coalesce(h.queued, 0) AS queued, coalesce(h.running, 0) AS running
FROM slackwater_tenants_tenant t JOIN slackwater_tenants_plan p ON p.id = t.plan_id
LEFT JOIN slackwater_tenants_currentcounter c ON c.tenant_id = t.id LEFT JOIN held h ON h.tenant_id = t.id
ORDER BY coalesce(c.unfinished, 0) DESC, t.slug
""")
OWNER = """
SELECT tenant_id FROM slackwater_tasks_task WHERE id = %(id)s
UNION ALL SELECT tenant_id FROM slackwater_tasks_workflow WHERE id = %(id)s LIMIT 1
"""


def running(
    tenant_id: int | None = None,
    *,
    node_id: int | None = None,
    cell: str | None = None,
    ids: Sequence[UUID] | None = None,
    limit: int = 20,
) -> list[dict[str, Any]]:
    """Running tasks, the longest running first."""
    return fetch_dicts(
        RUNNING, {"tenant": tenant_id, "node": node_id, "cell": cell, "ids": ids and list(ids), "limit": limit}
    )


def tenants(tenant: str = "") -> list[dict[str, Any]]:
    """Each tenant with the part of its cell that it holds, is entitled to and waits for, the one with most work first."""
    from slackwater_tasks.read.autoscaling import waited_for, work
    from slackwater_tasks.read.shares import standings  # it loads what decides rounds, which other commands need not

    held = {number: each for _, found in standings().values() for number, each in found.tenants.items()}
    asked = waited_for(work())
    return [
        _with_share(row, held.get(number := row.pop("id")), asked.get((row["cell"], number)))
        for row in fetch_dicts(TENANTS)
        if tenant in ("", row["tenant"])
    ]


def _with_share(row: dict[str, Any], held: Any, asked: float | None) -> dict[str, Any]:
    return {
        **row, "held_percent": round(100 * held.held, 1) if held else 0.0,
        "entitled_percent": round(100 * held.entitled, 1) if held else None,
        "waited_for_percent": None if asked is None else ceil(100 * asked),
    }  # fmt: skip


def owner_of(wanted: UUID) -> int | None:
    """The tenant of this task or workflow."""
    found: int | None = fetch_value(OWNER, {"id": wanted})
    return found
