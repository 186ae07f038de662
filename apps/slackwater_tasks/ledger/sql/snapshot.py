"""What a round reads: nodes, lines, tenants, what is in flight, and the heads of the lines."""

from __future__ import annotations

from scheduler_ext.core.sql import named

NODES = """
SELECT id, name, capacity, slots, handlers, labels FROM slackwater_resources_node
WHERE cell = %s AND state = 'active' AND lease_expires_at > clock_timestamp() ORDER BY id
"""
# The kind of slot that a live task l takes, whose handler is h.
SLOT_KIND = """CASE WHEN l.handler_id IS NULL THEN 'script' WHEN l.alone OR l.total_attempts = 1 THEN 'process'
    ELSE coalesce(h.kind, 'process') END"""
IN_FLIGHT = named("""
SELECT node_id, line_id, kind, handler_id, alone OR total_attempts = 1 AS by_itself, slot_milli >= 1000 AS exclusive,
       count(*), sum(slot_milli)::int
FROM slackwater_tasks_livetask WHERE phase = :phase.IN_FLIGHT GROUP BY 1, 2, 3, 4, 5, 6
""")
# By the index of keys, in which most tasks are not: as long as nothing is known of the tables, a condition that any key
# meets is what makes it look better than a look at all that is in flight.
MUTEX_HELD = named("""
SELECT mutex_key, count(*)::int FROM slackwater_tasks_livetask
WHERE mutex_key >= '' AND phase = :phase.IN_FLIGHT GROUP BY mutex_key
""")
# The active lines by a loose scan of the ready index: one descent a line, whatever the backlog.
ACTIVE_LINES = named("""
WITH RECURSIVE active AS (
    (SELECT line_id FROM slackwater_tasks_livetask WHERE phase = :phase.READY ORDER BY line_id LIMIT 1)
    UNION ALL
    SELECT (SELECT l.line_id FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id > a.line_id
            ORDER BY l.line_id LIMIT 1)
    FROM active a WHERE a.line_id IS NOT NULL)""")
# Anything that waits, or an opening of which less than half is left.
WANTS_ROOM = named("""
SELECT EXISTS (SELECT 1 FROM slackwater_tasks_livetask WHERE phase = :phase.READY)
    OR EXISTS (SELECT 1 FROM slackwater_tasks_opening WHERE cell = %s AND 2 * places < given)
""")
# ``date_part`` gives the number that ``extract`` gives as a numeric, to be made one by way of text: a third of the work.
HEADS = named("""CROSS JOIN LATERAL (
    SELECT l.task_id::text, l.line_id, l.fence, l.rank_group, l.rank, l.kind, l.handler_id, l.priority,
           l.alone OR l.total_attempts = 1, l.mutex_key, l.mutex_limit, l.last_node,
           date_part('epoch', l.latest_start)
    FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id = a.line_id
    ORDER BY l.rank_group, l.rank, l.task_id LIMIT %s) h""")
NOMINATE = f"""{ACTIVE_LINES}
SELECT h.* FROM active a {HEADS} WHERE a.line_id IS NOT NULL
"""  # noqa: S608 - statements of ours
NOMINATE_OF = f"SELECT h.* FROM unnest(%s::bigint[]) a(line_id) {HEADS}"  # noqa: S608 - statements of ours
# Where each active line stands: the place of its first task. One row of arrays, which is a tenth of the work of many rows.
# So many tasks are read one after the other, which is less where lines are short; from there on one descent a line.
FRONTS = named("""
WITH RECURSIVE few AS MATERIALIZED (
    SELECT DISTINCT ON (line_id) line_id, rank_group, rank FROM (
        SELECT l.line_id, l.rank_group, l.rank FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY
        ORDER BY l.line_id, l.rank_group, l.rank LIMIT %s) seen
    ORDER BY line_id, rank_group, rank),
active AS (
    (SELECT line_id, rank_group, rank, false AS beyond FROM few ORDER BY line_id DESC LIMIT 1)
    UNION ALL
    SELECT next.line_id, next.rank_group, next.rank, true FROM active a CROSS JOIN LATERAL (
        SELECT l.line_id, l.rank_group, l.rank FROM slackwater_tasks_livetask l
        WHERE l.phase = :phase.READY AND l.line_id > a.line_id ORDER BY l.line_id, l.rank_group, l.rank LIMIT 1) next)
SELECT array_agg(line_id), array_agg(rank_group), array_agg(rank), (SELECT count(*) FROM few) FROM (
    SELECT line_id, rank_group, rank FROM few UNION ALL SELECT line_id, rank_group, rank FROM active WHERE beyond) found
""")
LINES = """
SELECT n.id, n.tenant_id, n.category, n.tier_id, n.paused, t.cell,
       r.cpu_milli, r.memory_mb, r.disk_mb, r.iops, r.bandwidth_kbps, r.ports, coalesce(n.pool_id, t.pool_id), t.client,
       n.require_labels, n.prefer_labels, n.workflow, CASE WHEN n.workflow <> '' THEN (SELECT w.share_weight
           FROM slackwater_tasks_workflow w WHERE w.id = nullif(n.workflow, '')::uuid) END
FROM slackwater_tasks_line n JOIN slackwater_tenants_tenant t ON t.id = n.tenant_id
    JOIN slackwater_resources_tier r ON r.id = n.tier_id
"""
TENANTS = """
SELECT t.id, t.paused, p.weight, p.max_in_flight, p.guaranteed_permille, p.maximum_permille, p.slug
FROM slackwater_tenants_tenant t JOIN slackwater_tenants_plan p ON p.id = t.plan_id
"""
HANDLERS = "SELECT id, name, kind, paused FROM slackwater_resources_handler"
# One that asks for other labels stands where those of its category and tier stand, and is paused as they are.
MAKE_LINE = """
WITH given AS (
    SELECT %s::bigint AS tenant, %s::int AS category, %s::bigint AS tier, %s::varchar[] AS require, %s::varchar[] AS prefer,
        %s::varchar AS workflow)
INSERT INTO slackwater_tasks_line (tenant_id, category, tier_id, require_labels, prefer_labels, workflow, paused,
    paused_by_itself, pool_id)
SELECT given.*, coalesce(s.paused, false), coalesce(s.paused_by_itself, false), s.pool_id
FROM given LEFT JOIN LATERAL (SELECT n.* FROM slackwater_tasks_line n WHERE n.tenant_id = given.tenant
    AND n.category = given.category AND n.tier_id = given.tier ORDER BY n.id LIMIT 1) s ON true
ON CONFLICT (tenant_id, category, tier_id, require_labels, prefer_labels, workflow) DO UPDATE SET category = excluded.category
RETURNING id
"""
RUN_TIMES = (
    "SELECT tenant_id, key, mean_us, coalesce(long_us, mean_us) FROM slackwater_tasks_runtime WHERE samples >= %s"
)
RUN_TIMES_OF = f"{RUN_TIMES} AND key = ANY(%s)"
