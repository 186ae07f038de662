"""What a tenant is told of besides its work, each once: failed firings, quotas that run out, keys that expire.

What was told stands in a table, written in the transaction that writes the deliveries; of a quota it goes when there is
room again, so that the next time is told too.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from scheduler_ext.core.states import TaskState
from slackwater_monitoring.models import Subscription
from slackwater_monitoring.notify.deliveries import SUBSCRIPTIONS, Asked, Notice, deliver
from slackwater_monitoring.notify.subscriptions import covers
from slackwater_tasks.field_kinds import utc_text

WARN_AT: Final = 0.8
"""The share of a quota from which on a tenant is warned."""
EXHAUSTED_AT: Final = 0.98
"""The rate refills while it is looked at: nearly all is all."""
AGAIN_BELOW: Final = 0.9
"""Below this part of a threshold the next time is told again."""
KEY_DAYS: Final = (1, 7)
"""A key's end is told so many days before, if it was to last longer than that."""


def _utc(moment: str) -> str:
    return f"to_char({moment} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"


# What was not told before of what `found` has: tenant, event, subject, moment, data.
_TOLD = """
told AS (
    INSERT INTO slackwater_monitoring_told (tenant_id, event, subject, at)
    SELECT tenant_id, event, subject, at FROM found ORDER BY tenant_id, event, subject
    ON CONFLICT DO NOTHING RETURNING tenant_id, event, subject)
SELECT found.tenant_id, found.event, found.at, found.data
FROM found JOIN told USING (tenant_id, event, subject) ORDER BY found.at
"""
FAILED_FIRINGS: Final = f"""
WITH found AS (
    SELECT f.tenant_id, 'schedule.failed' AS event, f.id::text AS subject, f.fired_at AS at, jsonb_build_object(
        'schedule_id', f.schedule_id, 'name', s.name, 'fire_at', {_utc("f.fire_at")}, 'reason', f.error) AS data
    FROM slackwater_schedules_schedulefire f JOIN slackwater_schedules_schedule s ON s.id = f.schedule_id
    WHERE f.outcome = 'failed' AND f.fired_at > clock_timestamp() - interval '1 day' AND NOT EXISTS (
        SELECT 1 FROM slackwater_monitoring_told t
        WHERE t.tenant_id = f.tenant_id AND t.event = 'schedule.failed' AND t.subject = f.id::text)
    ORDER BY f.fired_at LIMIT %(most)s), {_TOLD}
"""  # noqa: S608 - statements of ours
QUOTAS: Final = f"""
WITH used AS (
    SELECT c.tenant_id, q.name, q.used, q.most FROM slackwater_tenants_currentcounter c
    JOIN slackwater_tenants_tenant t ON t.id = c.tenant_id JOIN slackwater_tenants_plan p ON p.id = t.plan_id
    CROSS JOIN LATERAL (VALUES ('unfinished_tasks', c.unfinished::float8, p.max_waiting::float8),
        ('submissions', greatest(0, extract(epoch FROM c.theoretical_arrival - clock_timestamp())::float8)
            * p.tasks_per_hour / 3600, p.burst::float8)) AS q(name, used, most)
    WHERE q.most > 0),
reached AS (SELECT * FROM (VALUES ('quota.warning', {WARN_AT}), ('quota.exhausted', {EXHAUSTED_AT})) AS e(event, share)),
gone AS (
    DELETE FROM slackwater_monitoring_told d USING used, reached WHERE d.tenant_id = used.tenant_id
        AND d.event = reached.event AND d.subject = used.name AND used.used < used.most * reached.share
            * {AGAIN_BELOW}),
found AS (
    SELECT used.tenant_id, reached.event, used.name AS subject, clock_timestamp() AS at, jsonb_build_object(
        'quota', used.name, 'used', round(used.used), 'limit', used.most) AS data
    FROM used JOIN reached ON used.used >= used.most * reached.share), {_TOLD}
"""  # noqa: S608 - statements and numbers of ours
EXPIRING_KEYS: Final = f"""
WITH found AS (
    SELECT k.tenant_id, 'key.expiring' AS event, concat_ws(' ', k.prefix, d.days, k.expires_at) AS subject,
        clock_timestamp() AS at, jsonb_build_object(
            'key_id', k.prefix, 'name', k.name, 'expires_at', {_utc("k.expires_at")}) AS data
    FROM slackwater_tenants_apikey k CROSS JOIN LATERAL (
        SELECT days FROM unnest(%(days)s::int[]) AS days WHERE k.expires_at < clock_timestamp() + days * interval '1 day'
            AND k.created_at < k.expires_at - days * interval '1 day' ORDER BY days LIMIT 1) d
    WHERE k.revoked_at IS NULL AND k.expires_at > clock_timestamp()), {_TOLD}
"""  # noqa: S608 - statements of ours
OLD_TOLD: Final = """
DELETE FROM slackwater_monitoring_told
WHERE event IN ('schedule.failed', 'key.expiring') AND at < clock_timestamp() - interval '30 days'
"""


def tell_soon(conn: Any, most: int, notices: list[Notice]) -> int:
    """Tell of firings that failed and of quotas, in the transaction of ``conn``; returns how many events that were."""
    rows = conn.execute(FAILED_FIRINGS, {"most": most}).fetchall()
    return _tell(conn, rows + conn.execute(QUOTAS).fetchall(), notices)


def tell_later(conn: Any, most: int, notices: list[Notice]) -> int:
    """Tell of keys that expire soon, and forget what was told long ago."""
    conn.execute(OLD_TOLD)
    return _tell(conn, conn.execute(EXPIRING_KEYS, {"days": list(KEY_DAYS)}).fetchall(), notices)


def _tell(conn: Any, rows: list[Any], notices: list[Notice]) -> int:
    if not rows:
        return 0
    asked: dict[int, list[Asked]] = {}
    for entry in conn.execute(SUBSCRIPTIONS, (list({row[0] for row in rows}),)).fetchall():
        asked.setdefault(entry[1], []).append(Asked(*entry))
    payloads = [(row[0], {"type": row[1], "timestamp": utc_text(row[2]), "data": row[3]}) for row in rows]
    made = [
        (asking, payload["type"], None, "", payload)
        for tenant_id, payload in payloads
        for asking in asked.get(tenant_id, ())
        if _wants(asking, payload["type"])
    ]
    if made:
        deliver(conn, made)
    # No task's: a name of its own, and a state that nobody reads.
    notices += [(str(uuid4()), int(TaskState.READY), tenant, None, None, payload) for tenant, payload in payloads]
    return len(rows)


def _wants(asking: Asked, event: str) -> bool:
    """Whether a subscription asked for it. One of some tags or handlers speaks of work alone."""
    narrowed = asking.tags or asking.handlers or asking.channel == Subscription.Channel.TASK
    return covers(asking.events, event) and not narrowed
