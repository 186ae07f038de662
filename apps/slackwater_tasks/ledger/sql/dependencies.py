"""Dependants: told of their parents' ends, and released."""

from __future__ import annotations

from scheduler_ext.core.sql import named

# Who clears a parent's mark flips its edges, and lowers each child by the edges flipped for it. A parent that runs
# again meanwhile has no mark, or has ended otherwise: nobody hears of an end that was taken back. Parents are locked in
# order of their ids, then the children.
RELEASE = named("""
WITH parents AS (
    SELECT t.id, given.outcome FROM unnest(%s::uuid[], %s::int[], %s::int[]) AS given(id, state, outcome)
    JOIN slackwater_tasks_task t ON t.id = given.id WHERE t.state = given.state AND t.release_pending
    ORDER BY given.id FOR NO KEY UPDATE OF t),
cleared AS (UPDATE slackwater_tasks_task t SET release_pending = false FROM parents WHERE t.id = parents.id),
edges AS (
    UPDATE slackwater_tasks_dependency d SET outcome = parents.outcome FROM parents
    WHERE d.parent_id = ANY(ARRAY[parents.id]) AND d.outcome = :edge.PENDING RETURNING d.child_id),
counts AS (SELECT child_id, count(*)::int AS number FROM edges GROUP BY child_id),
locked AS (
    SELECT l.task_id, counts.number FROM counts JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[counts.child_id])
    ORDER BY counts.child_id FOR UPDATE OF l)
UPDATE slackwater_tasks_livetask l SET pending = l.pending - locked.number FROM locked
    WHERE l.task_id = ANY(ARRAY[locked.task_id])
RETURNING l.task_id::text, l.pending, l.condition
""")
EDGE_OUTCOMES = """
SELECT child_id::text, array_agg(DISTINCT outcome) FROM slackwater_tasks_dependency WHERE child_id = ANY(%s::uuid[])
GROUP BY child_id
"""
UNBLOCK = named("""
WITH readied AS (
    UPDATE slackwater_tasks_livetask l SET
        state = CASE WHEN l.not_before > clock_timestamp() THEN :state.SCHEDULED ELSE :state.READY END,
        latest_start = greatest(clock_timestamp(), l.not_before) + l.tolerance_ms * interval '1 millisecond',
        promote_at = CASE WHEN l.promote_at IS NOT NULL THEN greatest(clock_timestamp(), l.not_before)
            + (l.tolerance_ms - least(l.tolerance_ms, %(lead_ms)s)) * interval '1 millisecond' END
    FROM unnest(%(ids)s::uuid[]) AS given(id) WHERE l.task_id = ANY(ARRAY[given.id]) AND l.state = :state.BLOCKED
        AND l.pending = 0
    RETURNING l.task_id, l.tenant_id, l.state, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.BLOCKED, state, fence, 'release', 'what it needed has come' FROM readied
""")
UNRELEASED = "SELECT id::text, state FROM slackwater_tasks_task WHERE release_pending ORDER BY id LIMIT %s"
