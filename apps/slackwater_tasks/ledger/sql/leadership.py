"""Who leads a cell, and which nodes are lost while somebody does."""

from __future__ import annotations

from scheduler_ext.core.sql import named

LEAD = """
INSERT INTO slackwater_tasks_leader AS l (cell, holder, epoch, renewed_at, expires_at)
VALUES (%(cell)s, %(holder)s, 1, clock_timestamp(), clock_timestamp() + %(lease)s * interval '1 second')
ON CONFLICT (cell) DO UPDATE SET
    epoch = l.epoch + CASE WHEN l.holder = excluded.holder AND l.expires_at > clock_timestamp() THEN 0 ELSE 1 END,
    grace_until = CASE WHEN clock_timestamp() - l.renewed_at > %(node_lease)s * 0.7 * interval '1 second'
        THEN clock_timestamp() + %(node_lease)s * interval '1 second' ELSE l.grace_until END,
    holder = excluded.holder, renewed_at = clock_timestamp(), expires_at = excluded.expires_at
WHERE l.expires_at <= clock_timestamp() OR l.holder = excluded.holder
RETURNING l.epoch, (SELECT task_id FROM slackwater_tasks_livetask ORDER BY task_id LIMIT 1) IS NULL
"""
RESIGN = "UPDATE slackwater_tasks_leader SET expires_at = clock_timestamp() WHERE cell = %s AND holder = %s"
# Not after a gap in which nobody led, nor within one lease from its end: the database itself may have been away, and
# the nodes have had no chance to renew. A shorter gap leaves every living node a part of its lease. And not before the
# node's children, who look several times a second, have seen the end of their lease and stopped.
LOSE_NODES = """
UPDATE slackwater_resources_node n SET state = 'lost' WHERE n.id IN (
    SELECT x.id FROM slackwater_resources_node x LEFT JOIN slackwater_tasks_leader l ON l.cell = x.cell
    WHERE x.state IN ('starting', 'active', 'draining') AND x.lease_expires_at < clock_timestamp() - interval '1 second'
        AND coalesce(l.grace_until, '-infinity') < clock_timestamp()
        AND coalesce(l.renewed_at, 'infinity') > clock_timestamp() - %s * 0.7 * interval '1 second'
    FOR UPDATE OF x SKIP LOCKED)
RETURNING n.id
"""
# Beyond the time after which the broker hands a killed worker's unread tokens back to its queue.
GONE_LATELY = """
SELECT id FROM slackwater_resources_node WHERE cell = %s AND state IN ('lost', 'left')
    AND lease_expires_at BETWEEN clock_timestamp() - interval '3 hours' AND clock_timestamp()
ORDER BY lease_expires_at DESC LIMIT %s
"""
_HELD = """
SELECT l.task_id::text, l.fence, l.state, l.batch, l.total_attempts, date_part('epoch', l.started_at), l.node_id
FROM slackwater_tasks_livetask l"""
HELD_BY_GONE = named(f"""{_HELD} JOIN slackwater_resources_node n ON n.id = l.node_id
WHERE l.phase = :phase.IN_FLIGHT AND n.state IN ('lost', 'left') LIMIT %s
""")
HELD_BY = named(f"{_HELD} WHERE l.phase = :phase.IN_FLIGHT AND l.node_id = %s")
COUNT_STOLEN = "UPDATE slackwater_tasks_leader SET stolen = stolen + %s WHERE cell = %s"
