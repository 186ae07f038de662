"""Dependants: told of their parents' ends, and released."""

from __future__ import annotations

from scheduler_ext.core.sql import named

# Who clears a parent's mark flips its edges, and lowers each child by the edges flipped for it. A parent that runs
# again meanwhile has no mark, or has ended otherwise: nobody hears of an end that was taken back. Parents are locked in
# order of their ids, then the children.
RELEASE = named("""
WITH u AS (
    SELECT t.id, u.outcome FROM unnest(%s::uuid[], %s::int[], %s::int[]) AS u(id, state, outcome)
    JOIN slackwater_tasks_task t ON t.id = u.id WHERE t.state = u.state AND t.release_pending
    ORDER BY u.id FOR NO KEY UPDATE OF t),
told AS (UPDATE slackwater_tasks_task t SET release_pending = false FROM u WHERE t.id = u.id),
e AS (
    UPDATE slackwater_tasks_dependency d SET outcome = u.outcome FROM u
    WHERE d.parent_id = ANY(ARRAY[u.id]) AND d.outcome = :edge.PENDING RETURNING d.child_id),
n AS (SELECT child_id, count(*)::int AS c FROM e GROUP BY child_id),
locked AS (
    SELECT l.task_id, n.c FROM n JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[n.child_id])
    ORDER BY n.child_id FOR UPDATE OF l)
UPDATE slackwater_tasks_livetask l SET pending = l.pending - k.c FROM locked k WHERE l.task_id = ANY(ARRAY[k.task_id])
RETURNING l.task_id::text, l.pending, l.condition
""")
EDGE_COUNTS = named("""
SELECT child_id::text, count(*) FILTER (WHERE outcome = :edge.FAILED)::int,
    count(*) FILTER (WHERE outcome = :edge.CANCELLED)::int
FROM slackwater_tasks_dependency WHERE child_id = ANY(%s::uuid[]) GROUP BY child_id
""")
UNBLOCK = named("""
WITH r AS (
    UPDATE slackwater_tasks_livetask l SET
        state = CASE WHEN l.not_before > clock_timestamp() THEN :state.SCHEDULED ELSE :state.READY END,
        latest_start = greatest(clock_timestamp(), l.not_before) + l.tolerance_ms * interval '1 millisecond',
        promote_at = CASE WHEN l.promote_at IS NOT NULL THEN greatest(clock_timestamp(), l.not_before)
            + (l.tolerance_ms - least(l.tolerance_ms, %(lead_ms)s)) * interval '1 millisecond' END
    FROM unnest(%(ids)s::uuid[]) AS u(id) WHERE l.task_id = ANY(ARRAY[u.id]) AND l.state = :state.BLOCKED
        AND l.pending = 0
    RETURNING l.task_id, l.tenant_id, l.state, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.BLOCKED, state, fence, 'release', 'what it needed has come' FROM r
""")
UNRELEASED = "SELECT id::text, state FROM slackwater_tasks_task WHERE release_pending ORDER BY id LIMIT %s"
