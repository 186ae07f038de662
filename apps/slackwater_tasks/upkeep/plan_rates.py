"""Execution rates that plans give: each tenant has a limit of its own, kept as its plan says.

It stands beside those that operators and tenants set, and is counted like them. A change of a plan, or of a tenant's
plan, holds with the next round; upkeep mends what was changed past the models.
"""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_save

from slackwater_tasks.ledger.connection import execute
from slackwater_tenants.models import Plan, Tenant

_WANTED = """
WITH wanted AS (
    SELECT t.id AS tenant_id, p.rate_starts AS starts, p.rate_per_s AS per_s
    FROM slackwater_tenants_tenant t JOIN slackwater_tenants_plan p ON p.id = t.plan_id WHERE p.rate_starts IS NOT NULL)"""
GIVE = f"""{_WANTED},
changed AS (
    UPDATE slackwater_tasks_ratelimit r SET starts = w.starts, per_s = w.per_s FROM wanted w
    WHERE r.of_plan AND r.tenant_id = w.tenant_id AND (r.starts, r.per_s) <> (w.starts, w.per_s))
INSERT INTO slackwater_tasks_ratelimit (tenant_id, key, starts, per_s, own, of_plan)
SELECT w.tenant_id, '', w.starts, w.per_s, false, true FROM wanted w
WHERE NOT EXISTS (SELECT 1 FROM slackwater_tasks_ratelimit r WHERE r.of_plan AND r.tenant_id = w.tenant_id)
ON CONFLICT DO NOTHING
"""  # noqa: S608 - statements of ours
TAKE_AWAY = f"""{_WANTED},
gone AS (
    SELECT id FROM slackwater_tasks_ratelimit r WHERE r.of_plan
        AND NOT EXISTS (SELECT 1 FROM wanted w WHERE w.tenant_id = r.tenant_id) FOR UPDATE),
starts AS (DELETE FROM slackwater_tasks_ratestart s USING gone WHERE s.limit_id = gone.id)
DELETE FROM slackwater_tasks_ratelimit r USING gone WHERE r.id = gone.id
"""  # noqa: S608 - statements of ours


def settle(conn: Any) -> int:
    """Add, change and remove limits; returns how many were added or removed."""
    return int(conn.execute(GIVE).rowcount) + int(conn.execute(TAKE_AWAY).rowcount)


def _give(**_: Any) -> None:
    """Apply at once what a saved plan, or tenant's plan, gives now."""
    for statement in (GIVE, TAKE_AWAY):
        execute(statement)


def connect_signals() -> None:
    """Called once, when the app is ready."""
    for sender in (Plan, Tenant):
        post_save.connect(_give, sender=sender, dispatch_uid=f"rates of {sender.__name__}", weak=False)
