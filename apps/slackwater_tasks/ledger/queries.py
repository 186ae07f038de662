"""Every hot query of deciding and running, set-based. Only ``transitions.py`` calls those that write a state.

What is looked for goes by ``phase`` (QUEUED and RUNNING are 4 there), which the partial indexes have; what is checked
of tasks named by their ids goes by ``state``, which none has: the planner could otherwise prove the predicate of a
partial index, believe from stale statistics that it holds one row, and scan it for every update. ``line_id + 0``
likewise: joined by the bare column, every ready task of each line might be read to find the few that are near their
latest start.
``= ANY(ARRAY[…])`` between a list and a table: only the table's key can serve it. With a bare ``=`` the planner, who
believes a table to be empty because it was when it was looked at, walks through all of it for each batch. A task's
tenant stands beside its id, for the key and the index by tenant both find it then.
What is due is asked for with ``statement_timestamp()``: the clock's time may change while a statement runs, so an index
cannot be searched by it, and every waiting row would be read.
States: 1 BLOCKED, 2 SCHEDULED, 3 READY, 4 QUEUED, 5 RUNNING, 6 SUCCEEDED, 7 FAILED, 8 CANCELLED, 9 EXPIRED.
"""

from __future__ import annotations

from scheduler_ext.core.sql import named

# -- leadership -------------------------------------------------------------------------------------------------------
LEAD = """
INSERT INTO slackwater_tasks_leader AS l (cell, holder, epoch, renewed_at, expires_at)
VALUES (%(cell)s, %(holder)s, 1, clock_timestamp(), clock_timestamp() + %(lease)s * interval '1 second')
ON CONFLICT (cell) DO UPDATE SET
    epoch = l.epoch + CASE WHEN l.holder = excluded.holder AND l.expires_at > clock_timestamp() THEN 0 ELSE 1 END,
    grace_until = CASE WHEN clock_timestamp() - l.renewed_at > %(node_lease)s * 0.7 * interval '1 second'
        THEN clock_timestamp() + %(node_lease)s * interval '1 second' ELSE l.grace_until END,
    holder = excluded.holder, renewed_at = clock_timestamp(), expires_at = excluded.expires_at
WHERE l.expires_at <= clock_timestamp() OR l.holder = excluded.holder
RETURNING l.epoch
"""
RESIGN = "UPDATE slackwater_tasks_leader SET expires_at = clock_timestamp() WHERE cell = %s AND holder = %s"

# -- waking and promoting ---------------------------------------------------------------------------------------------
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
SELECT l.task_id::text, n.tenant_id, n.tier_id FROM slackwater_tasks_livetask l
    JOIN slackwater_tasks_line n ON n.id = l.line_id + 0
WHERE l.phase = :phase.READY AND l.promote_at <= statement_timestamp()
ORDER BY l.promote_at LIMIT %s FOR UPDATE OF l SKIP LOCKED
""")
PROMOTE = named("""
UPDATE slackwater_tasks_livetask l SET line_id = u.line, promote_at = NULL
FROM unnest(%s::uuid[], %s::int[]) AS u(id, line) WHERE l.task_id = ANY(ARRAY[u.id]) AND l.state = :state.READY
""")

# -- the snapshot -----------------------------------------------------------------------------------------------------
NODES = """
SELECT id, name, capacity, slots, handlers, labels FROM slackwater_resources_node
WHERE cell = %s AND state = 'active' AND lease_expires_at > clock_timestamp() ORDER BY id
"""
IN_FLIGHT = named("""
SELECT node_id, line_id, kind, handler_id, alone OR total_attempts = 1 AS by_itself, slot_milli >= 1000 AS exclusive,
       count(*), sum(slot_milli)::int
FROM slackwater_tasks_livetask WHERE phase = :phase.IN_FLIGHT GROUP BY 1, 2, 3, 4, 5, 6
""")
MUTEX_HELD = named("""
SELECT mutex_key, count(*)::int FROM slackwater_tasks_livetask
WHERE mutex_key IS NOT NULL AND phase = :phase.IN_FLIGHT GROUP BY mutex_key
""")
# The active lines by a loose scan of the ready index: one descent a line, whatever the backlog.
ACTIVE_LINES = named("""
WITH RECURSIVE active AS (
    (SELECT line_id FROM slackwater_tasks_livetask WHERE phase = :phase.READY ORDER BY line_id LIMIT 1)
    UNION ALL
    SELECT (SELECT l.line_id FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id > a.line_id
            ORDER BY l.line_id LIMIT 1)
    FROM active a WHERE a.line_id IS NOT NULL)""")
NOMINATE = named(f"""{ACTIVE_LINES}
SELECT h.* FROM active a CROSS JOIN LATERAL (
    SELECT l.task_id::text, l.line_id, l.fence, l.rank_group, l.rank, l.kind, l.handler_id, l.priority,
           l.alone OR l.total_attempts = 1, l.mutex_key, l.mutex_limit, l.last_node,
           extract(epoch FROM l.latest_start)::float8
    FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id = a.line_id
    ORDER BY l.rank_group, l.rank, l.task_id LIMIT %s) h
WHERE a.line_id IS NOT NULL
""")  # noqa: S608 - statements of ours
LINES = """
SELECT n.id, n.tenant_id, n.category, n.tier_id, n.paused, t.cell,
       r.cpu_milli, r.memory_mb, r.disk_mb, r.iops, r.bandwidth_kbps, r.ports, coalesce(n.pool_id, t.pool_id)
FROM slackwater_tasks_line n JOIN slackwater_tenants_tenant t ON t.id = n.tenant_id
    JOIN slackwater_resources_tier r ON r.id = n.tier_id
"""
TENANTS = """
SELECT t.id, t.paused, p.weight, p.max_in_flight, p.guaranteed_permille, p.maximum_permille
FROM slackwater_tenants_tenant t JOIN slackwater_tenants_plan p ON p.id = t.plan_id
"""
HANDLERS = "SELECT id, name, kind, paused FROM slackwater_resources_handler"
MAKE_LINE = """
INSERT INTO slackwater_tasks_line (tenant_id, category, tier_id, paused) VALUES (%s, %s, %s, false)
ON CONFLICT (tenant_id, category, tier_id) DO UPDATE SET category = excluded.category RETURNING id
"""
RUN_TIMES = (
    "SELECT tenant_id, key, mean_us, least(samples, 1000)::int FROM slackwater_tasks_runtime WHERE samples >= %s"
)
RUN_TIMES_OF = f"{RUN_TIMES} AND key = ANY(%s)"

# -- claims -----------------------------------------------------------------------------------------------------------
CLAIM = named("""
WITH lead AS (
    SELECT 1 FROM slackwater_tasks_leader WHERE cell = %(cell)s AND epoch = %(epoch)s AND holder = %(holder)s
        AND expires_at > clock_timestamp() FOR SHARE),
c AS (
    SELECT l.task_id, u.node, u.milli
    FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(nodes)s::int[], %(millis)s::int[]) AS u(id, fence, node, milli)
    JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[u.id])
    WHERE l.state = :state.READY AND l.fence = u.fence AND EXISTS (SELECT 1 FROM lead)
    FOR UPDATE OF l SKIP LOCKED)
UPDATE slackwater_tasks_livetask l SET state = :state.QUEUED, fence = l.fence + 1, node_id = c.node,
    slot_milli = c.milli, batch = 0,
    queued_at = clock_timestamp(), claim_expires_at = clock_timestamp() + %(ttl)s * interval '1 second',
    mutex_fence = CASE WHEN l.mutex_key IS NOT NULL THEN nextval('slackwater_tasks_mutex_fence') END
FROM c WHERE l.task_id = ANY(ARRAY[c.task_id]) RETURNING l.task_id::text
""")
_START = named("""
WITH s AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.RUNNING, started_at = clock_timestamp(), batch = %(batch)s
    FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS u(id, fence)
    WHERE l.task_id = ANY(ARRAY[u.id]) AND l.fence = u.fence AND l.state = :state.QUEUED AND l.node_id = %(node)s
        AND NOT l.cancel_requested
        AND EXISTS (SELECT 1 FROM slackwater_resources_node WHERE id = %(node)s AND state IN ('active', 'draining')
                    AND lease_expires_at > clock_timestamp())
    RETURNING l.task_id, l.tenant_id, l.fence, l.attempts){told}
SELECT s.task_id::text, s.fence, s.tenant_id, t.handler, t.script_sha256, t.script_path, t.args, t.kwargs, t.cap_ms,
       s.attempts + 1, t.name, t.workflow_id::text
FROM s JOIN slackwater_tasks_task t ON t.id = ANY(ARRAY[s.task_id]) AND t.tenant_id = ANY(ARRAY[s.tenant_id])
""")
# Each of the two busiest statements is there twice: where nobody in the platform listens, nothing is told.
START = _START.format(told="")
START_TOLD = _START.format(
    told=""",
told AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, reason)
    SELECT s.tenant_id, s.task_id, 1, 5, s.fence, s.attempts + 1, ''
    FROM s JOIN slackwater_tasks_listener w ON w.tenant_id = s.tenant_id WHERE w.events & 1 <> 0)"""
)
# What a start without an answer had started: nobody else has the claims, and none has begun.
STARTED = named("""
SELECT l.task_id::text, l.fence, l.tenant_id, t.handler, t.script_sha256, t.script_path, t.args, t.kwargs, t.cap_ms,
       l.attempts + 1, t.name, t.workflow_id::text
FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS u(id, fence)
JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[u.id])
JOIN slackwater_tasks_task t ON t.id = ANY(ARRAY[l.task_id]) AND t.tenant_id = ANY(ARRAY[l.tenant_id])
WHERE l.fence = u.fence AND l.state = :state.RUNNING AND l.node_id = %(node)s
    AND EXISTS (SELECT 1 FROM slackwater_resources_node WHERE id = %(node)s AND state IN ('active', 'draining')
                AND lease_expires_at > clock_timestamp())
""")
LISTENED = "SELECT EXISTS (SELECT 1 FROM slackwater_tasks_listener)"

# Deletes the live row, writes the final state and the attempt, and lowers the tenant's counters: one statement for a
# batch. Live rows are locked first, counters last and in order, here and in every other statement.
_FINISH = named("""
WITH u AS ({attempts}),
gone AS (
    DELETE FROM slackwater_tasks_livetask l USING u
    WHERE l.task_id = ANY(ARRAY[u.id]) AND l.fence = u.fence AND l.state = :state.RUNNING AND l.node_id = %(node)s
    RETURNING l.task_id, l.tenant_id, l.attempts, l.has_children, l.queued_at, l.mutex_key, u.*),
done AS (
    UPDATE slackwater_tasks_task t SET state = g.final, finished_at = to_timestamp(g.finished), attempts_used = g.attempts + 1,
        result = g.result::jsonb, error = g.error, reason = g.reason, release_pending = g.has_children
    FROM gone g WHERE t.id = ANY(ARRAY[g.task_id]) AND t.tenant_id = ANY(ARRAY[g.tenant_id])
    RETURNING t.id, t.tenant_id, t.category, t.workflow_id, g.final, g.has_children, g.mutex_key),
att AS (
    INSERT INTO slackwater_tasks_attempt (task_id, tenant_id, number, fence, node_id, worker, queued_at, started_at, finished_at,
        outcome, error, exit_code, cpu_ms, peak_memory_mb, peak_disk_mb)
    SELECT g.task_id, g.tenant_id, g.attempts + 1, g.fence, %(node)s, g.worker, g.queued_at, to_timestamp(g.started),
        to_timestamp(g.finished), g.outcome, g.error, g.exit_code, g.cpu, g.memory, g.disk
    FROM gone g),
{told}{dead}
n AS (SELECT tenant_id, count(*) AS c, count(*) FILTER (WHERE category = :category.URGENT) AS urgent
    FROM done GROUP BY tenant_id),
locked AS (
    SELECT c.tenant_id FROM slackwater_tenants_tenantcounter c WHERE c.tenant_id IN (SELECT tenant_id FROM n)
    ORDER BY c.tenant_id FOR UPDATE),
counted AS (
    UPDATE slackwater_tenants_tenantcounter c
    SET unfinished = c.unfinished - n.c, urgent_unfinished = c.urgent_unfinished - n.urgent
    FROM n JOIN locked USING (tenant_id) WHERE c.tenant_id = n.tenant_id)
SELECT d.id::text, d.final, d.has_children, d.mutex_key, d.tenant_id, d.workflow_id::text FROM done d
""")
_TOLD = """
told AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, outcome, fence, attempt, at, reason)
    SELECT w.tenant_id, g.task_id, w.events & ({events}), g.final, g.outcome, g.fence, g.attempts + 1,
        to_timestamp(g.finished), g.reason
    FROM gone g JOIN slackwater_tasks_listener w ON w.tenant_id = g.tenant_id
    WHERE w.events & ({events}) <> 0),"""
# The numbers are those of ``models.Event``; a failed task is a dead letter.
_AT_THE_END = """CASE g.final WHEN 6 THEN 2 WHEN 7 THEN 516 WHEN 8 THEN 1024 ELSE 256 END
        | CASE g.outcome WHEN 4 THEN 16 WHEN 7 THEN 32 ELSE 0 END"""
FINISH = _FINISH.format(
    told=_TOLD.format(events=_AT_THE_END),
    attempts="""
    SELECT * FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(states)s::int[], %(outcomes)s::int[],
        %(started)s::float8[], %(finished)s::float8[], %(results)s::text[], %(errors)s::text[], %(reasons)s::text[],
        %(exits)s::int[], %(workers)s::text[], %(cpus)s::int[], %(memories)s::int[], %(disks)s::int[])
    AS u(id, fence, final, outcome, started, finished, result, error, reason, exit_code, worker, cpu, memory, disk)""",
    dead="""
dead AS (
    INSERT INTO slackwater_tasks_deadletter (task_id, tenant_id, outcome, reason, retries, next_retry_at)
    SELECT g.task_id, g.tenant_id, g.outcome, left(g.reason, 300), 0,
        CASE WHEN p.dead_letter_retries > 0 THEN clock_timestamp() + p.dead_letter_after_s * interval '1 second' END
    FROM gone g JOIN slackwater_tenants_tenant n ON n.id = g.tenant_id
    JOIN slackwater_tenants_plan p ON p.id = n.plan_id WHERE g.final = 7 ON CONFLICT (task_id) DO NOTHING),""",
)
# The same for a batch of handlers that all succeeded, without what is the same for each.
_PLAIN = """
    SELECT id, fence, 6 AS final, 1 AS outcome, started, finished, result, '' AS error, '' AS reason,
        NULL::int AS exit_code, %(worker)s::text AS worker, NULL::int AS cpu, NULL::int AS memory,
        NULL::int AS disk
    FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(started)s::float8[], %(finished)s::float8[], %(results)s::text[])
    AS u(id, fence, started, finished, result)"""
SUCCEED = _FINISH.format(attempts=_PLAIN, told="", dead="")
SUCCEED_TOLD = _FINISH.format(attempts=_PLAIN, told=_TOLD.format(events="2"), dead="")
LOCK_RUNNING = named("""
SELECT l.task_id::text, l.fence, l.attempts, l.total_attempts, l.cancel_requested, l.batch, t.retry
FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS u(id, fence)
JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[u.id]) AND l.fence = u.fence
JOIN slackwater_tasks_task t ON t.id = ANY(ARRAY[l.task_id]) AND t.tenant_id = ANY(ARRAY[l.tenant_id])
WHERE l.state = :state.RUNNING AND l.node_id = %(node)s ORDER BY u.id FOR UPDATE OF l
""")
RETRY = named("""
WITH u AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(delays)s::float8[], %(outcomes)s::int[], %(started)s::float8[],
        %(finished)s::float8[], %(errors)s::text[], %(exits)s::int[], %(workers)s::text[], %(cpus)s::int[],
        %(memories)s::int[], %(disks)s::int[])
    AS u(id, delay, outcome, started, finished, error, exit_code, worker, cpu, memory, disk)),
back AS (
    UPDATE slackwater_tasks_livetask l SET state = CASE WHEN u.delay > 0 THEN 2 ELSE 3 END, attempts = l.attempts + 1,
        not_before = CASE WHEN u.delay > 0 THEN clock_timestamp() + u.delay * interval '1 second' END,
        node_id = NULL, last_node = %(node)s, claim_expires_at = NULL, started_at = NULL, batch = 0, progress = NULL
    FROM u WHERE l.task_id = ANY(ARRAY[u.id]) AND l.state = :state.RUNNING
    RETURNING l.task_id, l.tenant_id, l.attempts, l.fence, l.queued_at, l.state, l.mutex_key, l.not_before, u.*),
att AS (
    INSERT INTO slackwater_tasks_attempt (task_id, tenant_id, number, fence, node_id, worker, queued_at, started_at, finished_at,
        outcome, error, exit_code, cpu_ms, peak_memory_mb, peak_disk_mb)
    SELECT task_id, tenant_id, attempts, fence, %(node)s, worker, queued_at, to_timestamp(started),
        to_timestamp(finished), outcome, error, exit_code, cpu, memory, disk FROM back),
told AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, outcome, fence, attempt, at, retry_at, reason)
    SELECT w.tenant_id, b.task_id, w.events & b.told, b.state, b.outcome, b.fence, b.attempts, to_timestamp(b.finished),
        coalesce(b.not_before, clock_timestamp()), right(rtrim(b.error), 300)
    FROM slackwater_tasks_listener w JOIN (
        SELECT *, 8 | CASE outcome WHEN 4 THEN 16 WHEN 7 THEN 32 ELSE 0 END AS told FROM back) b USING (tenant_id)
    WHERE w.events & b.told <> 0)
SELECT b.task_id::text, b.state, b.mutex_key, b.tenant_id, t.workflow_id::text
FROM back b JOIN slackwater_tasks_task t ON t.id = ANY(ARRAY[b.task_id]) AND t.tenant_id = ANY(ARRAY[b.tenant_id])
""")
# Back to READY without spending an attempt; the event says why. alone: a suspect runs by itself next time.
HAND_BACK = named("""
WITH back AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.READY, node_id = NULL, claim_expires_at = NULL,
        started_at = NULL, batch = 0,
        alone = l.alone OR %(alone)s
    FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS u(id, fence)
    WHERE l.task_id = ANY(ARRAY[u.id]) AND l.fence = u.fence AND l.state = ANY(%(states)s::int[])
        AND l.node_id = %(node)s
    RETURNING l.task_id, l.tenant_id, l.fence, l.mutex_key),
e AS (
    INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
    SELECT task_id, tenant_id, %(from_state)s, 3, fence, %(actor)s, %(reason)s FROM back)
SELECT b.task_id::text, b.mutex_key, b.tenant_id, t.workflow_id::text
FROM back b JOIN slackwater_tasks_task t ON t.id = ANY(ARRAY[b.task_id]) AND t.tenant_id = ANY(ARRAY[b.tenant_id])
""")
RETURN_QUEUED = named("""
WITH back AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.READY, node_id = NULL, claim_expires_at = NULL
    FROM (SELECT q.task_id FROM slackwater_tasks_livetask q JOIN slackwater_tenants_tenant t ON t.id = q.tenant_id
          WHERE q.phase = :phase.IN_FLIGHT AND q.state = :state.QUEUED AND t.cell = %(cell)s AND {which}
              FOR UPDATE OF q SKIP LOCKED) x
    WHERE l.task_id = ANY(ARRAY[x.task_id]) RETURNING l.task_id, l.tenant_id, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, 4, 3, fence, 'dispatcher', %(reason)s FROM back
""")
RETURN_ALL_QUEUED = RETURN_QUEUED.format(which="true")
RETURN_EXPIRED = RETURN_QUEUED.format(which="q.claim_expires_at < clock_timestamp()")

# -- mutex keys -------------------------------------------------------------------------------------------------------
PARK = named("""
WITH p AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.BLOCKED FROM unnest(%s::uuid[]) AS u(id)
    WHERE l.task_id = ANY(ARRAY[u.id]) AND l.state = :state.READY RETURNING l.task_id, l.tenant_id, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, 3, 1, fence, 'dispatcher', 'parked: its mutex key is taken' FROM p
""")
UNPARK = named("""
WITH k AS (SELECT DISTINCT unnest(%s::text[]) AS key),
held AS (SELECT mutex_key AS key, count(*) AS n FROM slackwater_tasks_livetask
         WHERE mutex_key = ANY(%s::text[]) AND phase IN (:phase.READY, :phase.IN_FLIGHT) GROUP BY mutex_key),
free AS (
    SELECT w.task_id FROM k LEFT JOIN held USING (key) CROSS JOIN LATERAL (
        SELECT l.task_id, l.mutex_limit, row_number() OVER (ORDER BY l.rank_group, l.rank, l.task_id) AS place
        FROM slackwater_tasks_livetask l WHERE l.mutex_key = k.key AND l.phase = :phase.BLOCKED AND l.pending = 0
            AND l.parked IS NULL) w
    WHERE w.place <= w.mutex_limit - coalesce(held.n, 0)),
locked AS (
    SELECT l.task_id FROM free JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[free.task_id])
    ORDER BY free.task_id FOR UPDATE OF l SKIP LOCKED),
r AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.READY FROM locked
    WHERE l.task_id = ANY(ARRAY[locked.task_id]) AND l.state = :state.BLOCKED AND l.pending = 0 AND l.parked IS NULL
    RETURNING l.task_id, l.tenant_id, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, 1, 3, fence, 'dispatcher', 'its mutex key is free' FROM r
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

# -- what no node can run ---------------------------------------------------------------------------------------------
PARK_IMPOSSIBLE = named("""
WITH p AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.BLOCKED, parked = -1 FROM unnest(%(ids)s::uuid[]) AS u(id)
    WHERE l.task_id = ANY(ARRAY[u.id]) AND l.state = :state.READY
        RETURNING l.task_id, l.tenant_id, l.fence, l.attempts),
noted AS (
    INSERT INTO slackwater_tasks_impossible (task_id, tenant_id, reason) SELECT task_id, tenant_id, %(reason)s FROM p
    ON CONFLICT (task_id) DO NOTHING RETURNING task_id),
told AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, reason)
    SELECT p.tenant_id, p.task_id, 64, 1, p.fence, p.attempts, %(reason)s
    FROM p JOIN noted USING (task_id) JOIN slackwater_tasks_listener w ON w.tenant_id = p.tenant_id
        WHERE w.events & :event.IMPOSSIBLE <> 0)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, 3, 1, fence, 'dispatcher', left('impossible now: ' || %(reason)s, 300) FROM p
""")
# The ledger's rule: a slot of its kind, its handler, and room for its vector on an empty node. Threads and coroutines
# take their part of it.
NOW_POSSIBLE = named("""
SELECT i.task_id::text FROM slackwater_tasks_impossible i
JOIN slackwater_tasks_livetask l ON l.task_id = i.task_id AND l.state = :state.BLOCKED AND l.parked = -1
JOIN slackwater_tasks_line n ON n.id = l.line_id JOIN slackwater_tenants_tenant t ON t.id = l.tenant_id
JOIN slackwater_resources_tier r ON r.id = n.tier_id LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
CROSS JOIN LATERAL (SELECT CASE WHEN l.handler_id IS NULL THEN 'script'
    WHEN h.kind IN ('thread', 'coroutine') AND NOT (l.alone OR l.total_attempts = 1) THEN h.kind
    ELSE 'process' END AS kind) k
WHERE EXISTS (
    SELECT 1 FROM slackwater_resources_node x CROSS JOIN LATERAL (
        SELECT CASE k.kind WHEN 'thread' THEN 8 WHEN 'coroutine' THEN 128 ELSE 1 END AS many) m
    WHERE x.cell = t.cell AND x.state = 'active' AND x.lease_expires_at > clock_timestamp() AND x.slots ? k.kind
        AND (l.handler_id IS NULL OR l.handler_id = ANY(x.handlers))
        AND r.cpu_milli <= x.capacity[1] * m.many AND r.memory_mb <= x.capacity[2] * m.many
        AND r.disk_mb <= x.capacity[3] * m.many AND r.iops <= x.capacity[4] * m.many
        AND r.bandwidth_kbps <= x.capacity[5] * m.many AND r.ports <= x.capacity[6] * m.many)
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
ORDER BY i.since LIMIT %s
""")

# -- dependants -------------------------------------------------------------------------------------------------------
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
        state = CASE WHEN l.not_before > clock_timestamp() THEN 2 ELSE 3 END,
        latest_start = greatest(clock_timestamp(), l.not_before) + l.tolerance_ms * interval '1 millisecond',
        promote_at = CASE WHEN l.promote_at IS NOT NULL THEN greatest(clock_timestamp(), l.not_before)
            + (l.tolerance_ms - least(l.tolerance_ms, %(lead_ms)s)) * interval '1 millisecond' END
    FROM unnest(%(ids)s::uuid[]) AS u(id) WHERE l.task_id = ANY(ARRAY[u.id]) AND l.state = :state.BLOCKED
        AND l.pending = 0
    RETURNING l.task_id, l.tenant_id, l.state, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, 1, state, fence, 'release', 'what it needed has come' FROM r
""")
UNRELEASED = "SELECT id::text, state FROM slackwater_tasks_task WHERE release_pending ORDER BY id LIMIT %s"

# -- ends without a run -----------------------------------------------------------------------------------------------
# Ends waiting tasks (cancelled, expired, impossible): live row out, final state in, event, counters.
END_WAITING = named("""
WITH u AS (SELECT DISTINCT unnest(%(ids)s::uuid[]) AS id),
locked AS (
    SELECT l.task_id, l.state AS was FROM slackwater_tasks_livetask l JOIN u ON u.id = l.task_id
    WHERE l.state = ANY(%(states)s::int[]) ORDER BY l.task_id FOR UPDATE OF l),
gone AS (
    DELETE FROM slackwater_tasks_livetask l USING locked WHERE l.task_id = locked.task_id
    RETURNING l.task_id, l.tenant_id, l.attempts, l.fence, l.has_children, l.mutex_key, locked.was),
done AS (
    UPDATE slackwater_tasks_task t SET state = %(final)s, finished_at = clock_timestamp(), attempts_used = g.attempts,
        reason = left(%(reason)s, 200), release_pending = g.has_children
    FROM gone g WHERE t.id = ANY(ARRAY[g.task_id]) AND t.tenant_id = ANY(ARRAY[g.tenant_id])
    RETURNING t.id, t.tenant_id, t.category, t.workflow_id, g.has_children, g.mutex_key),
told AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, reason)
    SELECT w.tenant_id, g.task_id, w.events & %(events)s, %(final)s, g.fence, g.attempts, left(%(reason)s, 300)
    FROM gone g JOIN slackwater_tasks_listener w ON w.tenant_id = g.tenant_id
    WHERE w.events & %(events)s <> 0),
ev AS (
    INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
    SELECT g.task_id, g.tenant_id, g.was, %(final)s, g.fence, %(actor)s, left(%(reason)s, 300) FROM gone g),
dead AS (
    INSERT INTO slackwater_tasks_deadletter (task_id, tenant_id, outcome, reason, retries)
    SELECT g.task_id, g.tenant_id, NULL, left(%(reason)s, 300), 0 FROM gone g
    WHERE %(final)s = 7 ON CONFLICT (task_id) DO NOTHING),
n AS (SELECT tenant_id, count(*) AS c, count(*) FILTER (WHERE category = :category.URGENT) AS urgent
    FROM done GROUP BY tenant_id),
counters AS (
    SELECT c.tenant_id FROM slackwater_tenants_tenantcounter c WHERE c.tenant_id IN (SELECT tenant_id FROM n)
    ORDER BY c.tenant_id FOR UPDATE),
counted AS (
    UPDATE slackwater_tenants_tenantcounter c
    SET unfinished = c.unfinished - n.c, urgent_unfinished = c.urgent_unfinished - n.urgent
    FROM n JOIN counters USING (tenant_id) WHERE c.tenant_id = n.tenant_id)
SELECT id::text, has_children, mutex_key, tenant_id, workflow_id::text FROM done
""")
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
TELL_LATE = named("""
WITH l AS (
    UPDATE slackwater_tasks_livetask SET on_late = :late.RUN_FIRST WHERE task_id = ANY(%s::uuid[])
        AND on_late = :late.TELL AND state IN (:state.BLOCKED, :state.SCHEDULED, :state.READY)
    RETURNING task_id, tenant_id, state, fence, attempts, latest_start)
INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, at, reason)
SELECT l.tenant_id, l.task_id, 128, l.state, l.fence, l.attempts, l.latest_start,
    'its latest start passed: it is run first'
FROM l JOIN slackwater_tasks_listener w ON w.tenant_id = l.tenant_id WHERE w.events & :event.LATE <> 0
""")

# -- lost nodes -------------------------------------------------------------------------------------------------------
# Not after a gap in which nobody led, nor within one lease from its end: the database itself may have been away, and
# the nodes have had no chance to renew. A shorter gap leaves every living node a part of its lease. And not before the
# node's children, who look several times a second, have seen the end of their lease and stopped.
LOSE_NODES = """
UPDATE slackwater_resources_node n SET state = 'lost' WHERE n.id IN (
    SELECT x.id FROM slackwater_resources_node x LEFT JOIN slackwater_tasks_leader l ON l.cell = x.cell
    WHERE x.state IN ('active', 'draining') AND x.lease_expires_at < clock_timestamp() - interval '1 second'
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
HELD_BY_GONE = named("""
SELECT l.task_id::text, l.fence, l.state, l.batch, l.total_attempts, extract(epoch FROM l.started_at)::float8, l.node_id
FROM slackwater_tasks_livetask l JOIN slackwater_resources_node n ON n.id = l.node_id
WHERE l.phase = :phase.IN_FLIGHT AND n.state IN ('lost', 'left') LIMIT %s
""")
HELD_BY = named("""
SELECT l.task_id::text, l.fence, l.state, l.batch, l.total_attempts, extract(epoch FROM l.started_at)::float8, l.node_id
FROM slackwater_tasks_livetask l WHERE l.phase = :phase.IN_FLIGHT AND l.node_id = %s
""")
