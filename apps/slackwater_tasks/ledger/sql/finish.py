"""The ends of attempts and tasks."""

from __future__ import annotations

from scheduler_ext.core.sql import named

LISTENED = "SELECT EXISTS (SELECT 1 FROM slackwater_tasks_listener)"


def _finish(ended: str, *more: str) -> str:
    """Delete the live rows, write final states and attempts, lower the tenants' counters: one statement for a batch.

    ``ended``: the query of what has ended. ``more``: further parts of the statement, which may read ``gone``. Live rows
    are locked first, counters last and in order, here and in every other statement.
    """
    return named(f"""
WITH u AS ({ended}),
gone AS (
    DELETE FROM slackwater_tasks_livetask l USING u
    WHERE l.task_id = ANY(ARRAY[u.id]) AND l.fence = u.fence AND l.state = :state.RUNNING AND l.node_id = %(node)s
    RETURNING l.task_id, l.tenant_id, l.attempts, l.has_children, l.queued_at, l.mutex_key, u.*),
done AS (
    UPDATE slackwater_tasks_task t SET state = g.final, finished_at = to_timestamp(g.finished), attempts_used = g.attempts + 1,
        result = g.result::jsonb, error = g.error, reason = g.reason, release_pending = g.has_children
    FROM gone g WHERE t.id = ANY(ARRAY[g.task_id]) AND t.tenant_id = ANY(ARRAY[g.tenant_id])
    RETURNING t.id, t.tenant_id, t.category, t.workflow_id, g.final, g.has_children, g.mutex_key),
att AS (
    INSERT INTO slackwater_tasks_attempt (task_id, tenant_id, number, fence, node_id, worker, queued_at, started_at, finished_at,
        outcome, error, exit_code, cpu_ms, peak_memory_mb, peak_disk_mb)
    SELECT g.task_id, g.tenant_id, g.attempts + 1, g.fence, %(node)s, g.worker, g.queued_at, to_timestamp(g.started),
        to_timestamp(g.finished), g.outcome, g.error, g.exit_code, g.cpu, g.memory, g.disk
    FROM gone g),
{"".join(more)}
n AS (SELECT tenant_id, count(*) AS c, count(*) FILTER (WHERE category = :category.URGENT) AS urgent
    FROM done GROUP BY tenant_id),
locked AS (
    SELECT c.tenant_id FROM slackwater_tenants_tenantcounter c WHERE c.tenant_id IN (SELECT tenant_id FROM n)
    ORDER BY c.tenant_id FOR UPDATE),
counted AS (
    UPDATE slackwater_tenants_tenantcounter c
    SET unfinished = c.unfinished - n.c, urgent_unfinished = c.urgent_unfinished - n.urgent
    FROM n JOIN locked USING (tenant_id) WHERE c.tenant_id = n.tenant_id)
SELECT d.id::text, d.final, d.has_children, d.mutex_key, d.tenant_id, d.workflow_id::text FROM done d
""")  # noqa: S608 - statements of ours


def _tell(events: str) -> str:
    """The part that tells listeners of ``events``, a sum of flags that may depend on the row of ``gone``."""
    return f"""
told AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, outcome, fence, attempt, at, reason)
    SELECT w.tenant_id, g.task_id, w.events & ({events}), g.final, g.outcome, g.fence, g.attempts + 1,
        to_timestamp(g.finished), g.reason
    FROM gone g JOIN slackwater_tasks_listener w ON w.tenant_id = g.tenant_id
    WHERE w.events & ({events}) <> 0),"""  # noqa: S608 - statements of ours


_ENDED = """
    SELECT * FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(states)s::int[], %(outcomes)s::int[],
        %(started)s::float8[], %(finished)s::float8[], %(results)s::text[], %(errors)s::text[], %(reasons)s::text[],
        %(exits)s::int[], %(workers)s::text[], %(cpus)s::int[], %(memories)s::int[], %(disks)s::int[])
    AS u(id, fence, final, outcome, started, finished, result, error, reason, exit_code, worker, cpu, memory, disk)"""
_EVENTS = """CASE g.final WHEN :state.SUCCEEDED THEN :event.SUCCEEDED WHEN :state.FAILED THEN :event.FAILED|DEAD_LETTERED
            WHEN :state.CANCELLED THEN :event.CANCELLED ELSE :event.EXPIRED END
        | CASE g.outcome WHEN :outcome.CAP_EXCEEDED THEN :event.CAP_EXCEEDED
            WHEN :outcome.RESOURCE_EXCEEDED THEN :event.RESOURCE_EXCEEDED ELSE 0 END"""
_DEAD_LETTERS = """
dead AS (
    INSERT INTO slackwater_tasks_deadletter (task_id, tenant_id, outcome, reason, retries, next_retry_at)
    SELECT g.task_id, g.tenant_id, g.outcome, left(g.reason, 300), 0,
        CASE WHEN p.dead_letter_retries > 0 THEN clock_timestamp() + p.dead_letter_after_s * interval '1 second' END
    FROM gone g JOIN slackwater_tenants_tenant n ON n.id = g.tenant_id
    JOIN slackwater_tenants_plan p ON p.id = n.plan_id WHERE g.final = :state.FAILED ON CONFLICT (task_id) DO NOTHING),"""
# A batch of handlers that all succeeded: without what is the same for each.
_SUCCEEDED = """
    SELECT id, fence, :state.SUCCEEDED AS final, :outcome.SUCCEEDED AS outcome, started, finished, result,
        '' AS error, '' AS reason, NULL::int AS exit_code, %(worker)s::text AS worker, NULL::int AS cpu, NULL::int AS memory,
        NULL::int AS disk
    FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(started)s::float8[], %(finished)s::float8[], %(results)s::text[])
    AS u(id, fence, started, finished, result)"""
FINISH = _finish(_ENDED, _tell(_EVENTS), _DEAD_LETTERS)
SUCCEED = _finish(_SUCCEEDED)
SUCCEED_AND_TELL = _finish(_SUCCEEDED, _tell(":event.SUCCEEDED"))
LOCK_RUNNING = named("""
SELECT l.task_id::text, l.fence, l.attempts, l.total_attempts, l.cancel_requested, l.batch, t.retry
FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS u(id, fence)
JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[u.id]) AND l.fence = u.fence
JOIN slackwater_tasks_task t ON t.id = ANY(ARRAY[l.task_id]) AND t.tenant_id = ANY(ARRAY[l.tenant_id])
WHERE l.state = :state.RUNNING AND l.node_id = %(node)s ORDER BY u.id FOR UPDATE OF l
""")
RETRY = named("""
WITH u AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(delays)s::float8[], %(outcomes)s::int[], %(started)s::float8[],
        %(finished)s::float8[], %(errors)s::text[], %(exits)s::int[], %(workers)s::text[], %(cpus)s::int[],
        %(memories)s::int[], %(disks)s::int[])
    AS u(id, delay, outcome, started, finished, error, exit_code, worker, cpu, memory, disk)),
back AS (
    UPDATE slackwater_tasks_livetask l SET state = CASE WHEN u.delay > 0 THEN :state.SCHEDULED ELSE :state.READY END,
        attempts = l.attempts + 1, not_before = CASE WHEN u.delay > 0 THEN clock_timestamp() + u.delay * interval '1 second' END,
        node_id = NULL, last_node = %(node)s, claim_expires_at = NULL, started_at = NULL, batch = 0, progress = NULL
    FROM u WHERE l.task_id = ANY(ARRAY[u.id]) AND l.state = :state.RUNNING
    RETURNING l.task_id, l.tenant_id, l.attempts, l.fence, l.queued_at, l.state, l.mutex_key, l.not_before, u.*),
att AS (
    INSERT INTO slackwater_tasks_attempt (task_id, tenant_id, number, fence, node_id, worker, queued_at, started_at, finished_at,
        outcome, error, exit_code, cpu_ms, peak_memory_mb, peak_disk_mb)
    SELECT task_id, tenant_id, attempts, fence, %(node)s, worker, queued_at, to_timestamp(started),
        to_timestamp(finished), outcome, error, exit_code, cpu, memory, disk FROM back),
told AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, outcome, fence, attempt, at, retry_at, reason)
    SELECT w.tenant_id, b.task_id, w.events & b.told, b.state, b.outcome, b.fence, b.attempts, to_timestamp(b.finished),
        coalesce(b.not_before, clock_timestamp()), right(rtrim(b.error), 300)
    FROM slackwater_tasks_listener w JOIN (
        SELECT *, :event.RETRYING | CASE outcome WHEN :outcome.CAP_EXCEEDED THEN :event.CAP_EXCEEDED
            WHEN :outcome.RESOURCE_EXCEEDED THEN :event.RESOURCE_EXCEEDED ELSE 0 END AS told FROM back) b USING (tenant_id)
    WHERE w.events & b.told <> 0)
SELECT b.task_id::text, b.state, b.mutex_key, b.tenant_id, t.workflow_id::text
FROM back b JOIN slackwater_tasks_task t ON t.id = ANY(ARRAY[b.task_id]) AND t.tenant_id = ANY(ARRAY[b.tenant_id])
""")
# Ends waiting tasks (cancelled, expired, impossible): live row out, final state in, event, counters.
END_WAITING = named("""
WITH u AS (SELECT DISTINCT unnest(%(ids)s::uuid[]) AS id),
locked AS (
    SELECT l.task_id, l.state AS was FROM slackwater_tasks_livetask l JOIN u ON u.id = l.task_id
    WHERE l.state = ANY(%(states)s::int[]) ORDER BY l.task_id FOR UPDATE OF l),
gone AS (
    DELETE FROM slackwater_tasks_livetask l USING locked WHERE l.task_id = locked.task_id
    RETURNING l.task_id, l.tenant_id, l.attempts, l.fence, l.has_children, l.mutex_key, locked.was),
done AS (
    UPDATE slackwater_tasks_task t SET state = %(final)s, finished_at = clock_timestamp(), attempts_used = g.attempts,
        reason = left(%(reason)s, 200), release_pending = g.has_children
    FROM gone g WHERE t.id = ANY(ARRAY[g.task_id]) AND t.tenant_id = ANY(ARRAY[g.tenant_id])
    RETURNING t.id, t.tenant_id, t.category, t.workflow_id, g.has_children, g.mutex_key),
told AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, reason)
    SELECT w.tenant_id, g.task_id, w.events & %(events)s, %(final)s, g.fence, g.attempts, left(%(reason)s, 300)
    FROM gone g JOIN slackwater_tasks_listener w ON w.tenant_id = g.tenant_id
    WHERE w.events & %(events)s <> 0),
ev AS (
    INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
    SELECT g.task_id, g.tenant_id, g.was, %(final)s, g.fence, %(actor)s, left(%(reason)s, 300) FROM gone g),
dead AS (
    INSERT INTO slackwater_tasks_deadletter (task_id, tenant_id, outcome, reason, retries)
    SELECT g.task_id, g.tenant_id, NULL, left(%(reason)s, 300), 0 FROM gone g
    WHERE %(final)s = :state.FAILED ON CONFLICT (task_id) DO NOTHING),
n AS (SELECT tenant_id, count(*) AS c, count(*) FILTER (WHERE category = :category.URGENT) AS urgent
    FROM done GROUP BY tenant_id),
counters AS (
    SELECT c.tenant_id FROM slackwater_tenants_tenantcounter c WHERE c.tenant_id IN (SELECT tenant_id FROM n)
    ORDER BY c.tenant_id FOR UPDATE),
counted AS (
    UPDATE slackwater_tenants_tenantcounter c
    SET unfinished = c.unfinished - n.c, urgent_unfinished = c.urgent_unfinished - n.urgent
    FROM n JOIN counters USING (tenant_id) WHERE c.tenant_id = n.tenant_id)
SELECT id::text, has_children, mutex_key, tenant_id, workflow_id::text FROM done
""")
