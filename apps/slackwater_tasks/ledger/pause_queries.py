"""The SQL of pausing: what a task is asked for, how it goes back to its line, and what it saved.

As in ``queries.py``, only ``transitions.py`` calls what writes a state, and ``state`` keeps to the primary key.
"""

from __future__ import annotations

from scheduler_ext.core.sql import named

# -- back to the line -------------------------------------------------------------------------------------------------
LOCK_PAUSED = named("""
SELECT l.task_id::text, l.total_attempts, l.cancel_requested, coalesce(r.declared, false)
FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS u(id, fence)
JOIN slackwater_tasks_livetask l ON l.task_id = u.id AND l.fence = u.fence
LEFT JOIN slackwater_tasks_resumable r ON r.task_id = l.task_id
WHERE l.state = :state.RUNNING AND l.node_id = %(node)s ORDER BY l.task_id FOR UPDATE OF l
""")
# Its attempt row tells the turn. It has met its latest start by having begun: nothing gives it up or moves it for that.
PAUSE = named("""
WITH u AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(outcomes)s::int[], %(started)s::float8[],
        %(finished)s::float8[], %(errors)s::text[], %(exits)s::int[], %(workers)s::text[], %(cpus)s::int[],
        %(memories)s::int[], %(disks)s::int[])
    AS u(id, fence, outcome, started, finished, error, exit_code, worker, cpu, memory, disk)),
back AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.READY, node_id = NULL, claim_expires_at = NULL,
        started_at = NULL, batch = 0,
        on_late = :late.RUN_FIRST, promote_at = NULL
    FROM u WHERE l.task_id = u.id AND l.fence = u.fence AND l.state = :state.RUNNING AND l.node_id = %(node)s
    RETURNING l.task_id, l.tenant_id, l.attempts, l.queued_at, l.mutex_key, u.*),
turn AS (
    UPDATE slackwater_tasks_resumable r SET attempt = b.attempts,
        used_ms = CASE WHEN r.attempt = b.attempts THEN r.used_ms ELSE 0 END
            + greatest(0, round((b.finished - b.started) * 1000))::bigint
    FROM back b WHERE r.task_id = b.task_id AND r.declared),
att AS (
    INSERT INTO slackwater_tasks_attempt (task_id, tenant_id, number, fence, node_id, worker, queued_at, started_at, finished_at,
        outcome, error, exit_code, cpu_ms, peak_memory_mb, peak_disk_mb)
    SELECT task_id, tenant_id, attempts + 1, fence, %(node)s, worker, queued_at, to_timestamp(started),
        to_timestamp(finished), outcome, error, exit_code, cpu, memory, disk FROM back)
SELECT b.task_id::text, b.mutex_key, b.tenant_id, t.workflow_id::text FROM back b JOIN slackwater_tasks_task t ON t.id = b.task_id
""")

# -- asking -----------------------------------------------------------------------------------------------------------
# Under the leader's epoch, like a claim. The rank is that of its next turn: while it runs nobody reads it.
ASK = named("""
WITH lead AS (
    SELECT 1 FROM slackwater_tasks_leader WHERE cell = %(cell)s AND epoch = %(epoch)s AND holder = %(holder)s
        AND expires_at > clock_timestamp() FOR SHARE),
u AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(outcomes)s::int[], %(levels)s::int[], %(groups)s::int[],
        %(ranks)s::bigint[], %(lets)s::text[]) AS u(id, fence, outcome, level, rank_group, rank, lets)),
l AS (
    UPDATE slackwater_tasks_livetask l SET rank_group = u.rank_group, rank = u.rank FROM u
    WHERE l.task_id = u.id AND l.fence = u.fence AND l.state = :state.RUNNING AND EXISTS (SELECT 1 FROM lead)
    RETURNING l.task_id, l.tenant_id, l.fence, u.outcome, u.level,
        string_to_array(u.lets, ',')::uuid[] AS lets_by)
INSERT INTO slackwater_tasks_resumable AS r (task_id, tenant_id, declared, level, asked, asked_fence, asked_at, lets_by)
SELECT task_id, tenant_id, false, level, outcome, fence, clock_timestamp(), lets_by FROM l
ON CONFLICT (task_id) DO UPDATE SET level = excluded.level, asked = excluded.asked, asked_fence = excluded.asked_fence,
    asked_at = excluded.asked_at, lets_by = excluded.lets_by
RETURNING r.task_id::text
""")
# What runs in a slot of its own and could be asked to make room.
TURNS = named("""
SELECT l.task_id::text, l.fence, l.line_id, l.node_id, l.rank_group, l.rank, l.handler_id,
    l.alone OR l.total_attempts = 1, l.priority, l.mutex_key, l.mutex_limit, extract(epoch FROM l.latest_start)::float8,
    extract(epoch FROM clock_timestamp() - l.started_at)::float8, coalesce(r.declared, false), coalesce(r.level, 0),
    r.asked_fence = l.fence, coalesce(h.idempotent, false), extract(epoch FROM t.submitted_at)::float8, t.cap_ms,
    l.kind
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
LEFT JOIN slackwater_tasks_resumable r ON r.task_id = l.task_id LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
WHERE l.phase = :phase.IN_FLIGHT AND l.state = :state.RUNNING AND l.slot_milli >= 1000
    AND (r.declared OR (%(idempotent)s AND h.idempotent))
ORDER BY l.started_at LIMIT %(limit)s
""")
SERVING = "UPDATE slackwater_tasks_line SET serving = %s WHERE id = %s AND serving < %s"

# -- checkpoints ------------------------------------------------------------------------------------------------------
DECLARE = """
INSERT INTO slackwater_tasks_resumable (task_id, tenant_id, declared, level)
SELECT u.id, %s, true, u.level FROM unnest(%s::uuid[], %s::int[]) AS u(id, level)
ON CONFLICT (task_id) DO UPDATE SET declared = true
"""
# The live row is held for the moment: nobody can take the task away between the look and the commit.
SAVE = named("""
WITH held AS (
    SELECT l.task_id, l.tenant_id FROM slackwater_tasks_livetask l JOIN slackwater_tenants_tenant n ON n.id = l.tenant_id
    JOIN slackwater_tenants_plan p ON p.id = n.plan_id
    WHERE l.task_id = %(id)s AND l.fence = %(fence)s AND l.state = :state.RUNNING
        AND p.max_checkpoint_bytes >= %(size)s FOR SHARE OF l),
last AS (SELECT coalesce(max(number), 0) AS number FROM slackwater_tasks_checkpoint WHERE task_id = %(id)s),
old AS (
    DELETE FROM slackwater_tasks_checkpoint c USING held, last WHERE c.task_id = held.task_id AND c.number < last.number)
INSERT INTO slackwater_tasks_checkpoint (task_id, number, tenant_id, fence, format, content, sha256, size)
SELECT held.task_id, last.number + 1, held.tenant_id, %(fence)s, %(format)s, %(content)s, %(sha256)s, %(size)s
FROM held, last RETURNING number
""")
LIMIT_OF = """
SELECT p.max_checkpoint_bytes FROM slackwater_tenants_tenant n JOIN slackwater_tenants_plan p ON p.id = n.plan_id WHERE n.id = %s
"""
LOAD = """
SELECT number, format, content, sha256 FROM slackwater_tasks_checkpoint WHERE task_id = %s AND tenant_id = %s
ORDER BY number DESC
"""
DAMAGED = """
WITH gone AS (DELETE FROM slackwater_tasks_checkpoint WHERE task_id = %(id)s AND number = %(number)s RETURNING task_id, tenant_id)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, 5, 5, %(fence)s, %(actor)s, %(reason)s FROM gone
"""
NOTE = named("""
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, 5, 5, fence, %(actor)s, %(reason)s FROM slackwater_tasks_livetask
WHERE task_id = %(id)s AND fence = %(fence)s AND state = :state.RUNNING
""")
FORGET = "DELETE FROM slackwater_tasks_checkpoint WHERE task_id = ANY(%s::uuid[])"
ANEW = """
WITH r AS (
    UPDATE slackwater_tasks_resumable SET level = 0, used_ms = 0, asked = NULL, asked_fence = NULL, asked_at = NULL
    WHERE task_id = ANY(%s::uuid[]) RETURNING task_id, declared)
UPDATE slackwater_tasks_livetask l SET alone = true FROM r WHERE r.task_id = l.task_id AND r.declared
"""
# A failed task keeps its checkpoints as long as it stays a dead letter: run again, it goes on from there.
DELETE_ENDED = """
DELETE FROM slackwater_tasks_checkpoint c WHERE (c.task_id, c.number) IN (
    SELECT x.task_id, x.number FROM slackwater_tasks_checkpoint x
    WHERE NOT EXISTS (SELECT 1 FROM slackwater_tasks_livetask l WHERE l.task_id = x.task_id)
        AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_deadletter d WHERE d.task_id = x.task_id)
    LIMIT %s)
"""

# -- tasks of paused handlers -----------------------------------------------------------------------------------------
# They wait beside their line, ``parked`` being -1 less the handler's id: each handler's are one piece of the index.
RESUMED = named("""
SELECT w.task_id::text FROM slackwater_resources_handler h CROSS JOIN LATERAL (
    SELECT l.task_id FROM slackwater_tasks_livetask l
    WHERE l.phase = :phase.BLOCKED AND l.parked = (-1 - h.id)::int AND l.parked IS NOT NULL AND l.pending = 0
    ORDER BY l.line_id, l.rank_group, l.rank, l.task_id LIMIT %(most)s) w
WHERE NOT h.paused LIMIT %(most)s
""")
