"""Running tasks that are asked to make room, and how they go back to their line."""

from __future__ import annotations

from scheduler_ext.core.sql import named
from slackwater_tasks.ledger.sql.claims import LEAD, task_of
from slackwater_tasks.ledger.sql.finish import recorded

LOCK_PAUSED = named("""
SELECT l.task_id::text, l.total_attempts, l.cancel_requested, coalesce(r.declared, false)
FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS given(id, fence)
JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[given.id]) AND l.fence = given.fence
LEFT JOIN slackwater_tasks_resumable r ON r.task_id = ANY(ARRAY[given.id])
WHERE l.state = :state.RUNNING AND l.node_id = %(node)s ORDER BY given.id FOR UPDATE OF l
""")
# Its attempt row tells the turn. One that waits for others from now on is blocked.
# It has met its latest start by having begun: nothing gives it up or moves it for that.
PAUSE = named(f"""
WITH ended AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(outcomes)s::int[], %(started)s::float8[],
        %(finished)s::float8[], %(errors)s::text[], %(exits)s::int[], %(workers)s::text[], %(cpus)s::int[],
        %(memories)s::int[], %(disks)s::int[])
    AS given(id, fence, outcome, started, finished, error, exit_code, worker, cpu, memory, disk)),
back AS (
    UPDATE slackwater_tasks_livetask l SET
        state = CASE WHEN l.pending > 0 THEN :state.BLOCKED ELSE :state.READY END, node_id = NULL, claim_expires_at = NULL,
        started_at = NULL, batch = 0, expires_at = NULL,
        on_late = :late.RUN_FIRST, promote_at = NULL
    FROM ended JOIN slackwater_tasks_livetask was ON was.task_id = ANY(ARRAY[ended.id])
    WHERE l.task_id = ANY(ARRAY[ended.id]) AND l.fence = ended.fence AND l.state = :state.RUNNING
        AND l.node_id = %(node)s
    RETURNING l.task_id, l.tenant_id, l.attempts, l.queued_at, was.started_at AS running_at, l.mutex_key, l.state, ended.*),
turn AS (
    UPDATE slackwater_tasks_resumable r SET attempt = back.attempts,
        used_ms = CASE WHEN r.attempt = back.attempts THEN r.used_ms ELSE 0 END
            + greatest(0, round((back.finished - back.started) * 1000))::bigint
    FROM back WHERE r.task_id = back.task_id AND r.declared),
{recorded("back", "back.attempts + 1")}
SELECT back.task_id::text, back.state, back.mutex_key, back.tenant_id, t.workflow_id::text, back.finished FROM back
    JOIN slackwater_tasks_task t ON {task_of("back")}
""")  # noqa: S608 - statements of ours
# Under the leader's epoch, like a claim. The rank is that of its next turn: while it runs nobody reads it.
ASK = named(f"""
WITH {LEAD},
asked AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(outcomes)s::int[], %(levels)s::int[], %(groups)s::int[],
        %(ranks)s::bigint[], %(lets)s::text[]) AS given(id, fence, outcome, level, rank_group, rank, lets)),
noted AS (
    UPDATE slackwater_tasks_livetask l SET rank_group = asked.rank_group, rank = asked.rank FROM asked
    WHERE l.task_id = ANY(ARRAY[asked.id]) AND l.fence = asked.fence AND l.state = :state.RUNNING AND EXISTS (SELECT 1 FROM lead)
    RETURNING l.task_id, l.tenant_id, l.fence, asked.outcome, asked.level,
        string_to_array(asked.lets, ',')::uuid[] AS lets_by)
INSERT INTO slackwater_tasks_resumable AS r (task_id, tenant_id, declared, level, asked, asked_fence, asked_at, lets_by)
SELECT task_id, tenant_id, false, level, outcome, fence, clock_timestamp(), lets_by FROM noted
ON CONFLICT (task_id) DO UPDATE SET level = excluded.level, asked = excluded.asked, asked_fence = excluded.asked_fence,
    asked_at = excluded.asked_at, lets_by = excluded.lets_by
RETURNING r.task_id::text
""")  # noqa: S608 - statements of ours
# What runs in a slot of its own and could be asked to make room.
TURNS = named("""
SELECT l.task_id::text, l.fence, l.line_id, l.node_id, l.rank_group, l.rank, l.handler_id,
    l.alone OR l.total_attempts = 1, l.priority, l.mutex_key, l.mutex_limit, date_part('epoch', l.latest_start),
    extract(epoch FROM clock_timestamp() - l.started_at)::float8, coalesce(r.declared, false), coalesce(r.level, 0),
    r.asked_fence = l.fence, coalesce(h.idempotent, false), date_part('epoch', t.submitted_at), t.cap_ms,
    l.kind, coalesce(l.path_us, 0), l.work_us
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
LEFT JOIN slackwater_tasks_resumable r ON r.task_id = l.task_id LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
WHERE l.phase = :phase.IN_FLIGHT AND l.state = :state.RUNNING AND l.slot_milli >= 1000
    AND (r.declared OR (%(idempotent)s AND h.idempotent))
ORDER BY l.started_at LIMIT %(limit)s
""")
SERVING = "UPDATE slackwater_tasks_line SET serving = %s WHERE id = %s AND serving < %s"
