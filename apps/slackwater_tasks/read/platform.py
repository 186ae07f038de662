"""What operators see of all tenants, or of one: who runs what where, and what each holds.

Unscoped throughout, because operators see all tenants. The cost grows with what is in flight or shown, not with what waits.
"""

from __future__ import annotations

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
ORDER BY l.started_at, l.task_id LIMIT %(limit)s
""")
# What is held is counted once for all; weights are shared out among those that have unfinished work and are not paused.
TENANTS = named("""
WITH held AS (
    SELECT tenant_id, count(*) FILTER (WHERE state = :state.QUEUED)::int AS queued,
        count(*) FILTER (WHERE state = :state.RUNNING)::int AS running, sum(slot_milli) / 1000.0 AS slots
    FROM slackwater_tasks_livetask WHERE phase = :phase.IN_FLIGHT GROUP BY tenant_id)
SELECT t.slug AS tenant, t.name, p.slug AS plan, p.weight, t.paused, t.cell, coalesce(c.unfinished, 0) AS unfinished,
    coalesce(c.urgent_unfinished, 0) AS urgent, coalesce(h.queued, 0) AS queued, coalesce(h.running, 0) AS running,
    round(100 * coalesce(h.slots, 0) / nullif(sum(h.slots) OVER (PARTITION BY t.cell), 0), 1)::float8 AS held_percent,
    CASE WHEN c.unfinished > 0 AND NOT t.paused THEN round(100.0 * p.weight / sum(p.weight) FILTER (
        WHERE c.unfinished > 0 AND NOT t.paused) OVER (PARTITION BY t.cell), 1)::float8 END AS entitled_percent
FROM slackwater_tenants_tenant t JOIN slackwater_tenants_plan p ON p.id = t.plan_id
LEFT JOIN slackwater_tenants_tenantcounter c ON c.tenant_id = t.id LEFT JOIN held h ON h.tenant_id = t.id
ORDER BY coalesce(c.unfinished, 0) DESC, t.slug
""")
OWNER = """
SELECT tenant_id FROM slackwater_tasks_task WHERE id = %(id)s
UNION ALL SELECT tenant_id FROM slackwater_tasks_workflow WHERE id = %(id)s LIMIT 1
"""


def running(
    tenant_id: int | None = None, *, node_id: int | None = None, cell: str | None = None, limit: int = 20
) -> list[dict[str, Any]]:
    """What runs, the longest first."""
    return fetch_dicts(RUNNING, {"tenant": tenant_id, "node": node_id, "cell": cell, "limit": limit})


def tenants(tenant: str = "") -> list[dict[str, Any]]:
    """Each tenant with what it holds and what its weight entitles it to, the one with most work first."""
    return [row for row in fetch_dicts(TENANTS) if tenant in ("", row["tenant"])]


def owner_of(wanted: UUID) -> int | None:
    """Whose task or workflow this is."""
    found: int | None = fetch_value(OWNER, {"id": wanted})
    return found
