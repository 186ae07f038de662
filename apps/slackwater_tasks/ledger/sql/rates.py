"""The windows of execution rates.

A claim counts against its limits from the moment it is committed. It stays open until its start is known, and is then
kept until the time frame has passed. So at any claim the starts of the last time frame, and the claims that have not
started yet, are together no more than the limit; and therefore no span of that length ever holds more starts.
"""

from __future__ import annotations

from scheduler_ext.core.sql import named

LIMITS = "SELECT id, tenant_id, handler_id, key, starts, per_s FROM slackwater_tasks_ratelimit ORDER BY id"
# A task's code begins a little after its start is written; how much is known exactly when the attempt is recorded.
# One that runs for longer than this is taken to have begun this much later at most.
SETTLE = named("""
WITH open AS (SELECT id, task_id, fence, claimed_at FROM slackwater_tasks_ratestart WHERE at IS NULL ORDER BY id LIMIT 10000),
seen AS (
    SELECT o.id, o.claimed_at, a.started_at AS began, l.state, l.started_at AS running,
        a.started_at IS NULL AND l.state IS NULL AND EXISTS (
            SELECT 1 FROM slackwater_tasks_taskevent e WHERE e.task_id = o.task_id AND e.fence = o.fence
                AND e.from_state = :state.QUEUED)
        AS unbegun
    FROM open o LEFT JOIN slackwater_tasks_attempt a ON a.task_id = o.task_id AND a.fence = o.fence
    LEFT JOIN slackwater_tasks_livetask l ON l.task_id = o.task_id AND l.fence = o.fence
        AND l.state IN (:state.QUEUED, :state.RUNNING)),
back AS (DELETE FROM slackwater_tasks_ratestart r USING seen WHERE r.id = seen.id AND seen.unbegun)
UPDATE slackwater_tasks_ratestart r SET at = CASE
        WHEN s.began IS NOT NULL THEN least(clock_timestamp(), greatest(s.began, s.claimed_at))
        WHEN s.state = :state.RUNNING THEN s.running + %(margin)s * interval '1 second'
        ELSE clock_timestamp() END
FROM seen s WHERE r.id = s.id AND NOT s.unbegun AND (s.state IS NULL OR s.began IS NOT NULL
    OR (s.state = :state.RUNNING AND s.running < clock_timestamp() - %(margin)s * interval '1 second'))
""")
FORGET = """
DELETE FROM slackwater_tasks_ratestart r USING slackwater_tasks_ratelimit m
WHERE r.limit_id = m.id AND r.at < clock_timestamp() - (m.per_s + 0.005) * interval '1 second'
"""
COUNT = """
SELECT limit_id, count(*)::int, extract(epoch FROM min(at) - clock_timestamp())::float8
FROM slackwater_tasks_ratestart GROUP BY limit_id
"""
PEEK = """
SELECT r.limit_id, count(*)::int, extract(epoch FROM min(r.at) - clock_timestamp())::float8
FROM slackwater_tasks_ratestart r JOIN slackwater_tasks_ratelimit m ON m.id = r.limit_id
WHERE r.at IS NULL OR r.at > clock_timestamp() - m.per_s * interval '1 second' GROUP BY r.limit_id
"""
KEYS_OF = "SELECT task_id::text, rate_key FROM slackwater_tasks_livetask WHERE task_id = ANY(%s::uuid[]) AND rate_key IS NOT NULL"
LOCK = "SELECT id, starts FROM slackwater_tasks_ratelimit WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE"
COUNT_OF = "SELECT limit_id, count(*)::int FROM slackwater_tasks_ratestart WHERE limit_id = ANY(%s::bigint[]) GROUP BY limit_id"
TAKE = """
INSERT INTO slackwater_tasks_ratestart (limit_id, task_id, fence)
SELECT * FROM unnest(%s::bigint[], %s::uuid[], %s::int[])
"""
