"""Tasks that wait beside their line: for a mutex key, a rate, a paused handler, or a node that can run them."""

from __future__ import annotations

from scheduler_ext.core.sql import named

PARK = named("""
WITH parked AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.BLOCKED FROM unnest(%s::uuid[]) AS given(id)
    WHERE l.task_id = ANY(ARRAY[given.id]) AND l.state = :state.READY RETURNING l.task_id, l.tenant_id, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.READY, :state.BLOCKED, fence, 'dispatcher', 'parked: its mutex key is taken' FROM parked
""")
UNPARK = named("""
WITH keys AS (SELECT DISTINCT unnest(%s::text[]) AS key),
held AS (SELECT mutex_key AS key, count(*) AS n FROM slackwater_tasks_livetask
         WHERE mutex_key = ANY(%s::text[]) AND phase IN (:phase.READY, :phase.IN_FLIGHT) GROUP BY mutex_key),
free AS (
    SELECT waiting.task_id FROM keys LEFT JOIN held USING (key) CROSS JOIN LATERAL (
        SELECT l.task_id, l.mutex_limit, row_number() OVER (ORDER BY l.rank_group, l.rank, l.task_id) AS place
        FROM slackwater_tasks_livetask l WHERE l.mutex_key = keys.key AND l.phase = :phase.BLOCKED AND l.pending = 0
            AND l.parked IS NULL) waiting
    WHERE waiting.place <= waiting.mutex_limit - coalesce(held.n, 0)),
locked AS (
    SELECT l.task_id FROM free JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[free.task_id])
    ORDER BY free.task_id FOR UPDATE OF l SKIP LOCKED),
readied AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.READY FROM locked
    WHERE l.task_id = ANY(ARRAY[locked.task_id]) AND l.state = :state.BLOCKED AND l.pending = 0 AND l.parked IS NULL
    RETURNING l.task_id, l.tenant_id, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.BLOCKED, :state.READY, fence, 'dispatcher', 'its mutex key is free' FROM readied
""")
MUTEX_HOLDERS = named("""
SELECT mutex_key, mutex_limit, task_id::text, mutex_fence FROM slackwater_tasks_livetask
WHERE mutex_key IS NOT NULL AND phase = :phase.IN_FLIGHT AND mutex_fence IS NOT NULL
""")
KEYS_OF = """
SELECT DISTINCT mutex_key FROM slackwater_tasks_livetask WHERE task_id = ANY(%s::uuid[]) AND mutex_key IS NOT NULL
"""
PARKED_KEYS = named("""
SELECT DISTINCT l.mutex_key FROM slackwater_tasks_livetask l
WHERE l.mutex_key IS NOT NULL AND l.phase = :phase.BLOCKED AND l.pending = 0 AND l.parked IS NULL LIMIT %s
""")
PARK_IMPOSSIBLE = named("""
WITH parked AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.BLOCKED, parked = -1 FROM unnest(%(ids)s::uuid[]) AS given(id)
    WHERE l.task_id = ANY(ARRAY[given.id]) AND l.state = :state.READY
        RETURNING l.task_id, l.tenant_id, l.fence, l.attempts),
noted AS (
    INSERT INTO slackwater_tasks_impossible (task_id, tenant_id, reason) SELECT task_id, tenant_id, %(reason)s FROM parked
    ON CONFLICT (task_id) DO NOTHING RETURNING task_id),
notices AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, reason)
    SELECT parked.tenant_id, parked.task_id, :event.IMPOSSIBLE, :state.BLOCKED, parked.fence, parked.attempts, %(reason)s
    FROM parked JOIN noted USING (task_id) JOIN slackwater_tasks_listener AS listener ON listener.tenant_id = parked.tenant_id
        WHERE listener.events & :event.IMPOSSIBLE <> 0)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.READY, :state.BLOCKED, fence, 'dispatcher', left('impossible now: ' || %(reason)s,
    300) FROM parked
""")
# The ledger's rule: a slot of its kind, its handler, its labels, and room for its vector on an empty node. Threads and coroutines
# take their part of it.
NOW_POSSIBLE = named("""
SELECT i.task_id::text FROM slackwater_tasks_impossible i
JOIN slackwater_tasks_livetask l ON l.task_id = i.task_id AND l.state = :state.BLOCKED AND l.parked = -1
JOIN slackwater_tasks_line n ON n.id = l.line_id JOIN slackwater_tenants_tenant t ON t.id = l.tenant_id
JOIN slackwater_resources_tier r ON r.id = n.tier_id LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
CROSS JOIN LATERAL (SELECT CASE WHEN l.handler_id IS NULL THEN 'script'
    WHEN h.kind IN ('thread', 'coroutine') AND NOT (l.alone OR l.total_attempts = 1) THEN h.kind
    ELSE 'process' END AS kind) needed
WHERE EXISTS (
    SELECT 1 FROM slackwater_resources_node node CROSS JOIN LATERAL (
        SELECT CASE needed.kind WHEN 'thread' THEN 8 WHEN 'coroutine' THEN 128 ELSE 1 END AS many) at_once
    WHERE node.cell = t.cell AND node.state = 'active' AND node.lease_expires_at > clock_timestamp() AND node.slots ? needed.kind
        AND (l.handler_id IS NULL OR l.handler_id = ANY(node.handlers))
        AND ((n.require_labels = '{}' AND NOT 'reserved' = ANY(node.labels)) OR n.require_labels <> '{}'
             AND n.require_labels <@ (node.labels || ARRAY(SELECT split_part(x, '=', 1)::varchar FROM unnest(node.labels) x)))
        AND r.cpu_milli <= node.capacity[1] * at_once.many AND r.memory_mb <= node.capacity[2] * at_once.many
        AND r.disk_mb <= node.capacity[3] * at_once.many AND r.iops <= node.capacity[4] * at_once.many
        AND r.bandwidth_kbps <= node.capacity[5] * at_once.many AND r.ports <= node.capacity[6] * at_once.many)
ORDER BY i.task_id LIMIT %s
""")
FORGET_IMPOSSIBLE = named("""
DELETE FROM slackwater_tasks_impossible WHERE task_id IN (
    SELECT i.task_id FROM slackwater_tasks_impossible i LEFT JOIN slackwater_tasks_livetask l ON l.task_id = i.task_id
    WHERE l.task_id IS NULL OR l.parked IS DISTINCT FROM -1 OR l.state <> :state.BLOCKED LIMIT %s)
""")
IMPOSSIBLE_FOR = named("""
SELECT i.task_id::text, i.reason FROM slackwater_tasks_impossible i JOIN slackwater_tasks_livetask l ON l.task_id = i.task_id
WHERE i.since < clock_timestamp() - %s * interval '1 second' AND l.state = :state.BLOCKED AND l.parked = -1
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_pause WHERE kind = 'tenant' AND subject = l.tenant_id)
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_pause WHERE kind = 'line' AND subject = l.line_id)
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_pause WHERE kind = 'handler' AND subject = l.handler_id)
    AND NOT EXISTS (SELECT 1 FROM slackwater_resources_handler h WHERE h.id = l.handler_id AND h.awaited)
ORDER BY i.since LIMIT %s
""")
PARK_FOR = named("""
WITH parked AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.BLOCKED, parked = given.why
        FROM unnest(%(ids)s::uuid[], %(whys)s::int[]) AS given(id, why)
    WHERE l.task_id = ANY(ARRAY[given.id]) AND l.state = :state.READY RETURNING l.task_id, l.tenant_id, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.READY, :state.BLOCKED, fence, %(actor)s, %(reason)s FROM parked
""")


def _unpark(freed: str) -> str:
    return named(f"""{freed},
readied AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.READY, parked = NULL FROM freed
    WHERE l.task_id = ANY(ARRAY[freed.task_id]) AND l.state = :state.BLOCKED AND l.pending = 0 AND l.parked IS NOT NULL
    RETURNING l.task_id, l.tenant_id, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.BLOCKED, :state.READY, fence, %(actor)s, %(reason)s FROM readied
""")  # noqa: S608 - statements of ours


# From each line as many as may start under the limit: which of them do is the share's choice. The lines by a loose
# scan.
UNPARK_LIMITED = _unpark("""
WITH RECURSIVE limits AS (SELECT * FROM unnest(%(limits)s::int[], %(counts)s::int[]) AS given(id, number)),
lines AS (
    SELECT line.parked, line.line_id FROM limits CROSS JOIN LATERAL (
        SELECT l.parked, l.line_id FROM slackwater_tasks_livetask l WHERE l.phase = :phase.BLOCKED AND l.parked = limits.id
        ORDER BY l.line_id LIMIT 1) line
    UNION ALL
    SELECT line.parked, line.line_id FROM lines CROSS JOIN LATERAL (
        SELECT l.parked, l.line_id FROM slackwater_tasks_livetask l
        WHERE l.phase = :phase.BLOCKED AND l.parked = lines.parked AND l.line_id > lines.line_id
            ORDER BY l.line_id LIMIT 1) line),
freed AS (
    SELECT heads.task_id FROM lines JOIN limits ON limits.id = lines.parked CROSS JOIN LATERAL (
        SELECT l.task_id FROM slackwater_tasks_livetask l
        WHERE l.phase = :phase.BLOCKED AND l.parked = lines.parked AND l.line_id = lines.line_id
        ORDER BY l.rank_group, l.rank, l.task_id LIMIT limits.number) heads)""")
UNPARK_THESE = _unpark("WITH freed AS (SELECT unnest(%(ids)s::uuid[]) AS task_id)")
# Whose limit is gone, and who is near the latest start: it goes to the urgent line first, and waits there.
STALE_PARKED = named("""
SELECT l.task_id::text FROM slackwater_tasks_livetask l
WHERE l.phase = :phase.BLOCKED AND l.parked > 0 AND l.pending = 0
    AND (l.promote_at <= statement_timestamp() OR NOT EXISTS (SELECT 1 FROM slackwater_tasks_ratelimit m WHERE m.id = l.parked))
LIMIT %s
""")
# They wait beside their line, ``parked`` being -1 less the handler's id: each handler's are one piece of the index.
RESUMED = named("""
SELECT waiting.task_id::text FROM slackwater_resources_handler h CROSS JOIN LATERAL (
    SELECT l.task_id FROM slackwater_tasks_livetask l
    WHERE l.phase = :phase.BLOCKED AND l.parked = (-1 - h.id)::int AND l.parked IS NOT NULL AND l.pending = 0
    ORDER BY l.line_id, l.rank_group, l.rank, l.task_id LIMIT %(most)s) waiting
WHERE NOT h.paused LIMIT %(most)s
""")
