"""What is due: scheduled tasks that become ready, tasks to be promoted, latest starts that have passed, and maps."""

from __future__ import annotations

from scheduler_ext.core.sql import named
from scheduler_ext.core.types import LATE_GROUP
from slackwater_tasks.ledger.sql.claims import task_of

WAKE = named("""
WITH due AS (
    SELECT task_id FROM slackwater_tasks_livetask WHERE phase = :phase.SCHEDULED AND not_before <= statement_timestamp()
    ORDER BY not_before LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE slackwater_tasks_livetask l SET state = :state.READY, not_before = NULL FROM due
    WHERE l.task_id = ANY(ARRAY[due.task_id])
""")
NEXT_DUE = named("""
SELECT extract(epoch FROM not_before - clock_timestamp())::float8 FROM slackwater_tasks_livetask
WHERE phase = :phase.SCHEDULED ORDER BY not_before LIMIT 1
""")
PROMOTABLE = named("""
SELECT l.task_id::text, n.tenant_id, n.tier_id, n.require_labels, n.prefer_labels, n.workflow FROM slackwater_tasks_livetask l
    JOIN slackwater_tasks_line n ON n.id = l.line_id + 0
WHERE l.phase = :phase.READY AND l.promote_at <= statement_timestamp()
ORDER BY l.promote_at LIMIT %s FOR UPDATE OF l SKIP LOCKED
""")
# Near its latest start a task moves to its tenant's urgent line; past it, it goes before all that is not late.
PROMOTE = named(f"""
WITH due AS (
    SELECT l.task_id, given.line, l.line_id <> given.line AS moves,
        l.on_late <> :late.GIVE_UP AND l.latest_start <= statement_timestamp() AND l.attempts = 0 AS late
    FROM unnest(%s::uuid[], %s::int[]) AS given(id, line) JOIN slackwater_tasks_livetask l
        ON l.task_id = ANY(ARRAY[given.id]) AND l.state = :state.READY),
moved AS (
    UPDATE slackwater_tasks_livetask l SET line_id = due.line,
        promote_at = CASE WHEN l.on_late <> :late.GIVE_UP AND l.latest_start > statement_timestamp()
            THEN l.latest_start END,
        rank_group = CASE WHEN due.late THEN {LATE_GROUP} ELSE l.rank_group END,
        rank = CASE WHEN due.late THEN (extract(epoch FROM l.latest_start) * 1000000)::bigint ELSE l.rank END
    FROM due WHERE l.task_id = ANY(ARRAY[due.task_id])
    RETURNING l.task_id, l.tenant_id, l.fence, due.moves OR due.late AS told, CASE WHEN due.late
        THEN 'its latest start passed: it goes before all that is not late'
        ELSE 'its latest start is near: it is urgent now' END AS why),
noted AS (
    INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
    SELECT task_id, tenant_id, :state.READY, :state.READY, fence, 'dispatcher', why FROM moved WHERE told)
SELECT m.task_id::text, :state.READY, m.tenant_id, t.workflow_id::text, m.why,
    date_part('epoch', statement_timestamp()) FROM moved m
JOIN slackwater_tasks_task t ON {task_of("m")} WHERE m.told
""")  # noqa: S608 - a number of ours
# Those whose client gives up then (2), and those whose client is only told so (3).
# While a tenant, line or handler is paused no time passes for its tasks.
LATE = named("""
SELECT task_id::text, on_late FROM slackwater_tasks_livetask l
WHERE on_late IN (:late.GIVE_UP, :late.TELL) AND phase IN (:phase.BLOCKED, :phase.SCHEDULED, :phase.READY)
    AND latest_start < statement_timestamp()
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_pause WHERE kind = 'tenant' AND subject = l.tenant_id)
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_pause WHERE kind = 'line' AND subject = l.line_id)
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_pause WHERE kind = 'handler' AND subject = l.handler_id)
ORDER BY latest_start LIMIT %s
""")
# Whatever is paused: this moment is not put off.
EXPIRED = named("""
SELECT task_id::text FROM slackwater_tasks_livetask WHERE expires_at <= statement_timestamp() AND state <> :state.RUNNING
ORDER BY expires_at LIMIT %s
""")
TELL_LATE = named("""
WITH late AS (
    UPDATE slackwater_tasks_livetask SET on_late = :late.RUN_FIRST WHERE task_id = ANY(%s::uuid[])
        AND on_late = :late.TELL AND state IN (:state.BLOCKED, :state.SCHEDULED, :state.READY)
    RETURNING task_id, tenant_id, state, fence, attempts, latest_start)
INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, at, reason)
SELECT late.tenant_id, late.task_id, :event.LATE, late.state, late.fence, late.attempts, late.latest_start,
    'its latest start passed: it is run first'
FROM late JOIN slackwater_tasks_listener AS listener ON listener.tenant_id = late.tenant_id
    WHERE listener.events & :event.LATE <> 0
""")
# Maps whose turn it is: all they wait for has come, or they ended by themselves.
MAPS = named("""
SELECT m.task_id, m.tenant_id FROM slackwater_tasks_mapnode m
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[m.task_id])
WHERE m.open AND (m.retry_at IS NULL OR m.retry_at <= statement_timestamp())
    AND (l.task_id IS NULL OR (l.pending = 1 AND l.state = :state.BLOCKED)) ORDER BY m.task_id LIMIT %s
""")
# What there is for upkeep's jobs to be about. Of the tasks by their key: a table that was long stays long for a while.
PRESENT = """
SELECT array_remove(ARRAY[
    CASE WHEN (SELECT task_id FROM slackwater_tasks_livetask ORDER BY task_id LIMIT 1) IS NOT NULL THEN 'tasks' END,
    CASE WHEN EXISTS (SELECT 1 FROM slackwater_tasks_pause) THEN 'pauses' END,
    CASE WHEN EXISTS (SELECT 1 FROM slackwater_tasks_impossible) THEN 'impossible' END,
    CASE WHEN EXISTS (SELECT 1 FROM slackwater_tasks_forecast) THEN 'forecasts' END,
    CASE WHEN EXISTS (SELECT 1 FROM slackwater_tasks_mapnode WHERE open) THEN 'maps' END,
    CASE WHEN EXISTS (SELECT 1 FROM slackwater_tasks_bulkoperation WHERE status = 'open') THEN 'bulk' END,
    CASE WHEN EXISTS (SELECT 1 FROM slackwater_tasks_outbox) THEN 'events' END,
    CASE WHEN EXISTS (SELECT 1 FROM slackwater_tasks_workflow WHERE status IS NULL) THEN 'workflows' END,
    CASE WHEN (SELECT id FROM slackwater_tasks_task WHERE release_pending ORDER BY id LIMIT 1) IS NOT NULL
        THEN 'unreleased' END,
    CASE WHEN EXISTS (SELECT 1 FROM slackwater_resources_node WHERE state IN ('starting', 'active', 'draining')
        AND lease_expires_at < clock_timestamp()) THEN 'unheard nodes' END], NULL)
"""
BULK = "SELECT 1 FROM slackwater_tasks_bulkoperation WHERE status = 'open' LIMIT 1"
