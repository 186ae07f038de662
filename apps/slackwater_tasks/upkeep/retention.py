"""Retention by plan, and the deletion of a tenant with all its data: in bounded batches, never what is live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import connection, transaction

from scheduler_ext.core.errors import Conflict
from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import IN_FLIGHT
from slackwater_resources.models import Tier
from slackwater_tasks.ledger.connection import Database, execute
from slackwater_tasks.models import LiveTask
from slackwater_tasks.runtime import objects, uploads
from slackwater_tenants.models import Tenant

BATCH = 1_000
EFFECTS_KEPT_DAYS = 400
"""How long the keys of finished effects are kept. A key in doubt is kept until somebody settles it."""

# The ids carry the time of submission, so the index by tenant and id finds the old ones first.
_OLD = """
    t.tenant_id = %(tenant)s AND t.state IS NOT NULL AND NOT t.release_pending AND t.finished_at < c.at
    AND t.id < (lpad(to_hex((extract(epoch FROM c.at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
"""
CUT = "SELECT clock_timestamp() - %(days)s * interval '1 day' AS at"
# A finished task stays while a live one may still ask for its result.
LOOSE = f"""
SELECT t.id FROM slackwater_tasks_task t, ({CUT}) c WHERE t.workflow_id IS NULL AND {_OLD}
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_dependency d JOIN slackwater_tasks_livetask l ON l.task_id = d.child_id
                    WHERE d.parent_id = t.id)
ORDER BY t.id LIMIT %(batch)s FOR UPDATE OF t SKIP LOCKED
"""  # noqa: S608 - texts of ours
# A workflow goes as a whole: half of one could neither be shown nor run again.
DONE_WORKFLOWS = f"""
SELECT w.id FROM slackwater_tasks_workflow w, ({CUT}) c
WHERE w.tenant_id = %(tenant)s AND w.submitted_at < c.at
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_task t WHERE t.workflow_id = w.id
                    AND (t.state IS NULL OR t.release_pending OR t.finished_at >= c.at))
    AND NOT (w.detail ? 'open' AND EXISTS (
        SELECT 1 FROM slackwater_tasks_task t JOIN slackwater_tasks_dependency d ON d.parent_id = t.id
        JOIN slackwater_tasks_livetask l ON l.task_id = d.child_id WHERE t.workflow_id = w.id))
ORDER BY w.id LIMIT 10 FOR UPDATE OF w SKIP LOCKED
"""  # noqa: S608 - texts of ours
OF_WORKFLOWS = """
SELECT t.id FROM slackwater_tasks_task t WHERE t.workflow_id = ANY(%(workflows)s)
ORDER BY t.id LIMIT %(batch)s FOR UPDATE OF t SKIP LOCKED
"""
EMPTY_WORKFLOWS = """
DELETE FROM slackwater_tasks_workflow w WHERE w.id = ANY(%s)
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_task t WHERE t.workflow_id = w.id)
"""
OLD_EFFECTS = """
DELETE FROM slackwater_tasks_effect WHERE (tenant_id, key) IN (
    SELECT tenant_id, key FROM slackwater_tasks_effect WHERE done_at < clock_timestamp() - %s * interval '1 day'
    ORDER BY done_at LIMIT %s)
"""
RUN_TIMES_KEPT_DAYS = 90
RUN_TIMES_KEPT = 2_000
"""How many keys of run times a tenant keeps, the latest used: its scripts make as many as they like."""
OLD_RUN_TIMES = """
DELETE FROM slackwater_tasks_runtime r USING (
    SELECT tenant_id, key FROM (
        SELECT tenant_id, key, updated_at, row_number() OVER (PARTITION BY tenant_id ORDER BY updated_at DESC, key) AS place
        FROM slackwater_tasks_runtime) x
    WHERE updated_at < clock_timestamp() - %s * interval '1 day' OR place > %s LIMIT %s) old
WHERE r.tenant_id = old.tenant_id AND r.key = old.key
"""
SHADOW_KEPT_DAYS = 30
OLD_SHADOWS = tuple(
    f"""
DELETE FROM slackwater_tasks_{table} WHERE id IN (
    SELECT id FROM slackwater_tasks_{table} WHERE {at} < clock_timestamp() - %s * interval '1 day' ORDER BY {at} LIMIT %s)
"""  # noqa: S608 - texts of ours
    for table, at in (("shadowcall", "at"), ("shadowrun", "began_at"))
)
"""Delete what the shadow of Celery's tasks has noted long ago."""
TENANTS = """
SELECT t.id, p.retention_days FROM slackwater_tenants_tenant t JOIN slackwater_tenants_plan p ON p.id = t.plan_id
WHERE p.retention_days > 0 ORDER BY t.id
"""
_BESIDE = (
    "attempt", "attemptlog", "chunk", "artifact", "checkpoint", "resumable", "taskwebhook", "tasktrace", "taskevent",
    "deadletter", "mapnode",
)  # fmt: skip
PAST = (
    objects.GONE,
    *(f"DELETE FROM slackwater_tasks_{table} WHERE task_id = ANY(%s)" for table in _BESIDE),  # noqa: S608 - ours
    "DELETE FROM slackwater_tasks_dependency WHERE child_id = ANY(%s)",
    "DELETE FROM slackwater_tasks_dependency WHERE parent_id = ANY(%s)",
    "DELETE FROM slackwater_tasks_task WHERE id = ANY(%s)",
)
"""Delete ended tasks, with all that belongs to them."""


def prune(db: Database, tenant_id: int | None = None) -> int:
    """Delete one batch of each tenant (or of one) that is older than its plan keeps it; returns how many.

    Tasks are counted, and the keys of effects, run times and the shadow's notes, which go only where no tenant is named.
    """
    count = uploads.expire(db, BATCH) if tenant_id is None else 0
    for tenant, days in db.conn.execute(TENANTS).fetchall():
        if tenant_id in (None, tenant):
            params = {"tenant": tenant, "days": days, "batch": BATCH}
            count += db.repeatable(partial(_prune_loose, params)) + db.repeatable(partial(_prune_workflows, params))
    if tenant_id is None:
        count += int(db.conn.execute(OLD_EFFECTS, (EFFECTS_KEPT_DAYS, BATCH)).rowcount)
        count += int(db.conn.execute(OLD_RUN_TIMES, (RUN_TIMES_KEPT_DAYS, RUN_TIMES_KEPT, BATCH)).rowcount)
        count += sum(db.conn.execute(statement, (SHADOW_KEPT_DAYS, BATCH)).rowcount for statement in OLD_SHADOWS)
    return count


def _prune_loose(params: dict[str, Any], conn: Any) -> int:
    return forget(conn, conn.execute(LOOSE, params).fetchall())


def _prune_workflows(params: dict[str, Any], conn: Any) -> int:
    found = [row[0] for row in conn.execute(DONE_WORKFLOWS, params).fetchall()]
    if not found:
        return 0
    count = forget(conn, conn.execute(OF_WORKFLOWS, {**params, "workflows": found}).fetchall())
    conn.execute(EMPTY_WORKFLOWS, (found,))
    return count


def forget(conn: Any, rows: Sequence[tuple[Any, ...]]) -> int:
    """Delete the tasks with these rows' ids; returns how many."""
    ids = [row[0] for row in rows]
    for statement in PAST:
        conn.execute(statement, (ids,))
    return len(ids)


# -- a tenant goes ----------------------------------------------------------------------------------------------------
MAX_DELETED = 5_000
DELETE_WAITING = named("""
DELETE FROM slackwater_tasks_livetask WHERE task_id = ANY(ARRAY(
    SELECT task_id FROM slackwater_tasks_livetask
    WHERE tenant_id = %s AND phase IN (:phase.BLOCKED, :phase.SCHEDULED, :phase.READY) LIMIT %s FOR UPDATE))
""")
TASK_IDS = "SELECT id FROM slackwater_tasks_task WHERE tenant_id = %s ORDER BY id DESC LIMIT %s"
CLOSE = (
    "UPDATE slackwater_tenants_tenant SET paused = true, paused_by_itself = false WHERE id = %s",
    "UPDATE slackwater_tenants_apikey SET revoked_at = clock_timestamp() WHERE tenant_id = %s AND revoked_at IS NULL",
)


def delete_tenant(tenant: Tenant, *, progress: Callable[[int], None] = lambda _: None) -> int:
    """Delete a tenant with all its data; returns how many tasks it had.

    It is paused and its keys are revoked first, and stay so if the deletion cannot go on: ``Conflict`` while tasks of
    it run. In batches: after a crash, doing it again does the rest.
    """
    with transaction.atomic():
        for statement in CLOSE:
            execute(statement, (tenant.pk,))
    _refuse_running(tenant)
    while execute(DELETE_WAITING, (tenant.pk, MAX_DELETED)):
        pass
    _refuse_running(tenant)
    count = 0
    while True:
        with transaction.atomic(), connection.cursor() as cur:
            cur.execute(TASK_IDS, (tenant.pk, MAX_DELETED))
            gone = forget(cur, cur.fetchall())
        if not gone:
            break
        count += gone
        progress(count)
    with transaction.atomic():
        # Its own tiers are protected by its lines, so the lines go first.
        tenant.lines(manager="_plain").all().delete()
        Tier.objects.filter(tenant=tenant).delete()
        uploads.forget_all(tenant)
        tenant.delete()
    return count


def _refuse_running(tenant: Tenant) -> None:
    running = LiveTask.objects.unscoped().for_tenant(tenant.pk).filter(state__in=IN_FLIGHT).count()  # it is named
    if running:
        raise Conflict(
            f"{tenant.slug} has {counted(running, 'task')} claimed or running; it is paused now: cancel, or wait for the end"
        )
