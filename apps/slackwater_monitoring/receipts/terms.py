"""Terms: what holds for a tenant's tasks from their submission on: prices and policies, each change a version."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from scheduler_ext.core.states import Category
from slackwater_conf import conf
from slackwater_monitoring.receipts import moments

# A tenant's first terms hold for all that it submitted before anybody looked.
NOTE = """
WITH now AS (
    SELECT n.id AS tenant_id, jsonb_build_object('plan', p.slug,
        'attempt_micros', p.price_micros_per_attempt, 'category_permille', p.price_permille,
        'tier_hour_micros', (SELECT coalesce(jsonb_object_agg(r.id, r.price_micros_per_hour), '{}')
            FROM slackwater_resources_tier r WHERE r.tenant_id = n.id OR r.tenant_id IS NULL),
        'order', coalesce((SELECT c.policy FROM slackwater_tasks_policychoice c WHERE c.cell = n.cell AND c.kind = 'order'
            AND c.line_id IS NULL AND c.pool_id IS NULL AND (c.tenant_id = n.id OR c.tenant_id IS NULL)
            ORDER BY c.tenant_id LIMIT 1), %(order)s),
        'share', coalesce((SELECT c.policy FROM slackwater_tasks_policychoice c WHERE c.cell = n.cell AND c.kind = 'share'
            AND c.pool_id IS NULL ORDER BY c.id LIMIT 1), %(share)s)) AS terms
    FROM slackwater_tenants_tenant n JOIN slackwater_tenants_plan p ON p.id = n.plan_id),
last AS (SELECT DISTINCT ON (tenant_id) tenant_id, version, terms FROM slackwater_monitoring_terms
    ORDER BY tenant_id, version DESC)
INSERT INTO slackwater_monitoring_terms (tenant_id, version, since, terms)
SELECT now.tenant_id, coalesce(last.version, 0) + 1,
    CASE WHEN last.version IS NULL THEN to_timestamp(0) ELSE clock_timestamp() END, now.terms
FROM now LEFT JOIN last USING (tenant_id) WHERE last.terms IS DISTINCT FROM now.terms ORDER BY 1
ON CONFLICT DO NOTHING
"""
READ = """
SELECT tenant_id, version, since, terms FROM slackwater_monitoring_terms WHERE tenant_id = ANY(%s) ORDER BY tenant_id, version
"""
CATEGORIES = {int(category): category.name.lower() for category in Category}


@dataclass(frozen=True, slots=True)
class Terms:
    """One version of a tenant's terms."""

    version: int
    attempt_micros: int
    hours: dict[str, int]
    permille: dict[str, int]
    order: str
    share: str

    def hour_micros(self, tier_id: int, category: int) -> int:
        """The price of an hour, in thousandths of a millionth."""
        return self.hours.get(str(tier_id), 0) * self.permille.get(CATEGORIES[category], 1000)


class Book:
    """The terms of some tenants."""

    def __init__(self, conn: Any, tenants: list[int]) -> None:
        self._known: dict[int, tuple[list[int], list[Terms]]] = {}
        self._read(conn, tenants)
        if len(self._known) < len(tenants):  # one of them is new
            note(conn)
            self._known.clear()
            self._read(conn, tenants)

    def _read(self, conn: Any, tenants: list[int]) -> None:
        for tenant, version, since, terms in moments.cursor(conn).execute(READ, (tenants,)).fetchall():
            known, versions = self._known.setdefault(tenant, ([], []))
            known.append(since)
            versions.append(
                Terms(version, terms["attempt_micros"], terms["tier_hour_micros"], terms["category_permille"],
                      terms["order"], terms["share"])
            )  # fmt: skip

    def of(self, tenant: int, at: int) -> Terms:
        """What held for the tenant at a moment."""
        known, versions = self._known[tenant]
        return versions[max(0, bisect_right(known, at) - 1)]


def note(conn: Any) -> int:
    """Note the terms that have changed; returns of how many tenants."""
    scheduler = conf().scheduler
    return int(conn.execute(NOTE, {"order": scheduler.order_policy, "share": scheduler.share_policy}).rowcount)
