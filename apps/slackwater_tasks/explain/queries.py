"""What explaining a task reads. Changes nothing."""

from __future__ import annotations

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category

ROW = """
SELECT l.state, l.pending, l.parked, l.line_id, l.fence, l.rank_group, l.rank, l.kind, l.handler_id, l.priority,
       t.priority AS own_priority, t.category AS own_category, l.path_us, l.has_children,
       l.alone OR l.total_attempts = 1 AS by_itself, l.mutex_key, l.mutex_limit, l.last_node,
       extract(epoch FROM l.latest_start)::float8 AS latest_s, l.latest_start, l.not_before, l.attempts, l.rate_key,
       t.tenant_id, t.state AS final, n.name AS node, w.cell, w.paused AS tenant_paused, i.paused AS line_paused,
       i.category, i.require_labels,
       i.prefer_labels, r.slug AS tier, h.name AS handler, coalesce(h.paused, false) AS handler_paused,
       coalesce(h.awaited, false) AS awaited,
       EXISTS (SELECT 1 FROM slackwater_tasks_leader x WHERE x.cell = w.cell AND x.expires_at > clock_timestamp()) AS led,
       EXISTS (SELECT 1 FROM slackwater_tasks_mapnode y WHERE y.task_id = t.id) AS mapped,
       clock_timestamp() AS now, m.since AS impossible_since,
       coalesce(s.asked_fence = l.fence, false) AS made_room, s.asked_at, s.lets_by
FROM slackwater_tasks_task t JOIN slackwater_tenants_tenant w ON w.id = t.tenant_id
    LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id
LEFT JOIN slackwater_tasks_line i ON i.id = l.line_id LEFT JOIN slackwater_resources_tier r ON r.id = i.tier_id
LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id LEFT JOIN slackwater_resources_node n ON n.id = l.node_id
LEFT JOIN slackwater_tasks_impossible m ON m.task_id = t.id LEFT JOIN slackwater_tasks_resumable s ON s.task_id = l.task_id
WHERE t.id = %s AND t.tenant_id = %s
"""
PARENTS = named("""
SELECT p.id::text, p.name, l.state FROM slackwater_tasks_dependency d JOIN slackwater_tasks_task p ON p.id = d.parent_id
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = p.id WHERE d.child_id = %s
    AND d.outcome = :edge.PENDING ORDER BY p.id LIMIT %s
""")
# Which of those that need it, or need what needs it, has the priority that it inherited, or the urgency.
PRESSING = named(f"""
WITH RECURSIVE down AS (
    SELECT child_id AS id FROM slackwater_tasks_dependency WHERE parent_id = %(id)s AND outcome = :edge.PENDING
    UNION SELECT d.child_id FROM slackwater_tasks_dependency d JOIN down ON d.parent_id = down.id
    WHERE d.outcome = :edge.PENDING)
SELECT t.id::text, t.name FROM (SELECT id FROM down LIMIT 10000) x JOIN slackwater_tasks_task t ON t.id = x.id
WHERE CASE WHEN %(priority)s IS NULL THEN t.category = {int(Category.URGENT)} ELSE t.priority = %(priority)s END LIMIT 1
""")  # noqa: S608 - a number of ours
HOLDERS = named("""
SELECT task_id::text FROM slackwater_tasks_livetask WHERE mutex_key = %s AND phase = :phase.IN_FLIGHT
    AND task_id <> %s LIMIT %s
""")


# Of those parked with it, or ready in its line, who comes before it.
def _before(among: str) -> str:
    return named(f"""
SELECT count(*)::int FROM (
    SELECT 1 FROM slackwater_tasks_livetask l WHERE {among}
    AND (l.rank_group, l.rank, l.task_id) < (%(rank_group)s, %(rank)s, %(id)s) LIMIT %(most)s) x
""")  # noqa: S608 - statements of ours


IN_LINE = _before("l.phase = :phase.READY AND l.line_id = %(line_id)s")
FOR_RATE = _before("l.phase = :phase.BLOCKED AND l.parked = %(parked)s AND l.line_id = %(line_id)s")
FOR_KEY = _before("l.phase = :phase.BLOCKED AND l.pending = 0 AND l.mutex_key = %(mutex_key)s")
# Of the tasks it made room for those that wait still, and whether they are its own tenant's: others' are not named.
LET_BY = named("""
SELECT task_id::text, tenant_id = %s FROM slackwater_tasks_livetask WHERE task_id = ANY(%s::uuid[])
    AND state = :state.READY ORDER BY task_id
""")
# Nodes that would run it but for their state.
NOT_AT_WORK = """
SELECT name, state, labels FROM slackwater_resources_node WHERE cell = %s AND state IN ('starting', 'draining')
    AND lease_expires_at > clock_timestamp() AND (%s::bigint IS NULL OR handlers @> ARRAY[%s::bigint]) ORDER BY id LIMIT 100
"""
