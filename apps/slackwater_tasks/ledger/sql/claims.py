"""Claims: for a node, begun by it, handed back, expired."""

from __future__ import annotations

from scheduler_ext.core.sql import named


def task_of(live: str) -> str:
    """The condition that row ``t`` of the tasks' table is the task of ``live``'s row, whatever the planner believes.

    The key finds it by its id. The index by tenant, should that look as cheap, finds it by the bounds beside the tenant:
    before PostgreSQL 17 no list is searched for behind another, and every task of the tenant would be read.
    """
    return (
        f"t.id = ANY(ARRAY[{live}.task_id]) AND t.id >= {live}.task_id AND t.id <= {live}.task_id"
        f" AND t.tenant_id = ANY(ARRAY[{live}.tenant_id])"
    )


# No row unless the caller leads the cell under this epoch; whoever would take over waits for the transaction.
LEAD = """lead AS (
    SELECT 1 FROM slackwater_tasks_leader WHERE cell = %(cell)s AND epoch = %(epoch)s AND holder = %(holder)s
        AND expires_at > clock_timestamp() FOR SHARE)"""
# Whether the node's lease runs.
LEASED = """EXISTS (SELECT 1 FROM slackwater_resources_node WHERE id = %(node)s AND state IN ('starting', 'active', 'draining')
                    AND lease_expires_at > clock_timestamp())"""
PASSED = 512
"""The most tasks of a line that are passed to find those with which a node goes on."""
WORK = "t.handler, t.script_sha256, t.script_path, t.args::text, t.kwargs::text, t.cap_ms, t.attempts_used"
# What of a live row l must still hold when its task begins.
STARTS = "NOT l.cancel_requested AND (l.expires_at IS NULL OR l.expires_at > clock_timestamp())"
# The only dependant of a task that begins, if it waits for nothing else: what ends may go on with it.
NEXT = named("""CASE WHEN started.has_children THEN (
        SELECT min(l.task_id::text || ' ' || l.fence) FROM (
            SELECT d.child_id FROM slackwater_tasks_dependency d WHERE d.parent_id = started.task_id LIMIT 2) edge
        LEFT JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[edge.child_id])
            AND l.state = :state.BLOCKED AND l.pending = 1 HAVING count(*) = 1) END""")
# A row that is locked stays where it is, so it is not looked for by its key again. One that was edited after the statement
# began stands elsewhere, where the statement does not see it yet: the next round claims it.
CLAIM = named(f"""
WITH {LEAD},
chosen AS (
    SELECT l.ctid AS place, given.node, given.milli
    FROM unnest(%(ids)s::uuid[], %(fences)s::int[], %(nodes)s::int[], %(millis)s::int[]) AS given(id, fence, node, milli)
    JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[given.id])
    WHERE l.state = :state.READY AND l.fence = given.fence AND EXISTS (SELECT 1 FROM lead)
    FOR UPDATE OF l SKIP LOCKED)
UPDATE slackwater_tasks_livetask l SET state = :state.QUEUED, fence = l.fence + 1, node_id = chosen.node,
    slot_milli = chosen.milli, batch = 0,
    queued_at = clock_timestamp(), claim_expires_at = clock_timestamp() + %(ttl)s * interval '1 second',
    mutex_fence = CASE WHEN l.mutex_key IS NOT NULL THEN nextval('slackwater_tasks_mutex_fence') END
FROM chosen WHERE l.ctid = chosen.place RETURNING l.task_id::text
""")  # noqa: S608 - statements of ours
# The first of a line, of those about which a round would have nothing more to ask; ``room`` says how many. No more than a few
# others are passed for them: where a line goes on with another handler's, its end is not looked for.
NEXT_OF_LINES = named(f"""next AS (
    SELECT room.*, h.place FROM room LEFT JOIN LATERAL (
        SELECT b.rank_group, b.rank FROM slackwater_tasks_livetask b
        WHERE b.phase = :phase.READY AND b.line_id = room.line_id
        ORDER BY b.rank_group, b.rank, b.task_id OFFSET room.places + {PASSED} LIMIT 1) far ON true
    CROSS JOIN LATERAL (
        SELECT l.ctid AS place FROM slackwater_tasks_livetask l
        WHERE l.phase = :phase.READY AND l.state = :state.READY AND l.line_id = room.line_id
            AND (l.rank_group, l.rank) <= (coalesce(far.rank_group, 2147483647), coalesce(far.rank, 9223372036854775807))
            AND l.handler_id = room.handler_id AND NOT (l.alone OR l.total_attempts = 1) AND l.mutex_key IS NULL
            AND l.rate_key IS NULL AND l.last_node IS NULL AND {STARTS}
        ORDER BY l.rank_group, l.rank, l.task_id LIMIT room.places FOR UPDATE OF l SKIP LOCKED) h)""")  # noqa: S608 - ours
# As CLAIM, of lines that nodes go on with: whichever are first by now, for those that a round saw may have begun.
CLAIM_NEXT = named(f"""
WITH {LEAD},
room AS (
    SELECT * FROM unnest(%(nodes)s::bigint[], %(lines)s::bigint[], %(handlers)s::bigint[], %(millis)s::int[],
        %(counts)s::int[]) AS u(node_id, line_id, handler_id, slot_milli, places) WHERE EXISTS (SELECT 1 FROM lead)),
{NEXT_OF_LINES}
UPDATE slackwater_tasks_livetask l SET state = :state.QUEUED, fence = l.fence + 1, node_id = next.node_id,
    slot_milli = next.slot_milli, batch = 0,
    queued_at = clock_timestamp(), claim_expires_at = clock_timestamp() + %(ttl)s * interval '1 second'
FROM next WHERE l.ctid = next.place RETURNING l.task_id::text, l.fence - 1, l.node_id, l.line_id
""")  # noqa: S608 - statements of ours


def _start(tell: str = "") -> str:
    return named(f"""
WITH started AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.RUNNING, started_at = statement_timestamp(), batch = %(batch)s
    FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS given(id, fence)
    WHERE l.task_id = ANY(ARRAY[given.id]) AND l.fence = given.fence AND l.state = :state.QUEUED AND l.node_id = %(node)s
        AND {STARTS} AND {LEASED}
    RETURNING l.task_id, l.tenant_id, l.fence, l.attempts, l.has_children){tell}
SELECT started.task_id::text, started.fence, started.tenant_id, {WORK}, started.attempts + 1, t.name, t.workflow_id::text,
    date_part('epoch', statement_timestamp()), {NEXT}
FROM started JOIN slackwater_tasks_task t ON {task_of("started")}
""")  # noqa: S608 - statements of ours


# Each of the two busiest statements is there twice: where nobody in the platform listens, nobody is told.
START = _start()
START_AND_TELL = _start(""",
notices AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, reason)
    SELECT started.tenant_id, started.task_id, :event.STARTED, :state.RUNNING, started.fence, started.attempts + 1, ''
    FROM started JOIN slackwater_tasks_listener AS listener ON listener.tenant_id = started.tenant_id
        WHERE listener.events & :event.STARTED <> 0)""")
# What a start without an answer had started: nobody else has the claims, and none has begun.
STARTED = named(f"""
SELECT l.task_id::text, l.fence, l.tenant_id, {WORK}, l.attempts + 1, t.name, t.workflow_id::text,
    date_part('epoch', l.started_at), NULL
FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS given(id, fence)
JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[given.id])
JOIN slackwater_tasks_task t ON {task_of("l")}
WHERE l.fence = given.fence AND l.state = :state.RUNNING AND l.node_id = %(node)s AND {LEASED}
""")  # noqa: S608 - statements of ours
# Back to READY without spending an attempt; the event says why. alone: a suspect runs by itself next time. elsewhere:
# on another node, where one has room.
HAND_BACK = named(f"""
WITH back AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.READY, node_id = NULL, claim_expires_at = NULL,
        started_at = NULL, batch = 0,
        alone = l.alone OR %(alone)s, last_node = CASE WHEN %(elsewhere)s THEN l.node_id ELSE l.last_node END
    FROM unnest(%(ids)s::uuid[], %(fences)s::int[]) AS given(id, fence)
    WHERE l.task_id = ANY(ARRAY[given.id]) AND l.fence = given.fence AND l.state = ANY(%(states)s::int[])
        AND l.node_id = %(node)s
    RETURNING l.task_id, l.tenant_id, l.fence, l.mutex_key),
noted AS (
    INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
    SELECT task_id, tenant_id, %(from_state)s, :state.READY, fence, %(actor)s, %(reason)s FROM back)
SELECT back.task_id::text, back.mutex_key, back.tenant_id, t.workflow_id::text, date_part('epoch', statement_timestamp())
FROM back JOIN slackwater_tasks_task t ON {task_of("back")}
""")  # noqa: S608 - statements of ours

# What no node has begun for too long: as NOMINATE gives ready ones, and who has it.
UNBEGUN = named("""
SELECT l.task_id::text, l.line_id, l.fence, l.rank_group, l.rank, l.kind, l.handler_id, l.priority,
       l.alone OR l.total_attempts = 1, l.mutex_key, l.mutex_limit, l.last_node,
       date_part('epoch', l.latest_start), n.id, n.name
FROM slackwater_tasks_livetask l JOIN slackwater_resources_node n ON n.id = l.node_id
WHERE l.phase = :phase.IN_FLIGHT AND l.state = :state.QUEUED AND n.cell = %s
    AND l.queued_at < clock_timestamp() - %s * interval '1 second' ORDER BY l.queued_at, l.task_id
""")


def _return_queued(which: str) -> str:
    return named(f"""
WITH back AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.READY, node_id = NULL, claim_expires_at = NULL
    FROM (SELECT q.task_id FROM slackwater_tasks_livetask q JOIN slackwater_tenants_tenant t ON t.id = q.tenant_id
          WHERE q.phase = :phase.IN_FLIGHT AND q.state = :state.QUEUED AND t.cell = %(cell)s AND {which}
              FOR UPDATE OF q SKIP LOCKED) queued
    WHERE l.task_id = ANY(ARRAY[queued.task_id]) RETURNING l.task_id, l.tenant_id, l.fence)
INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
SELECT task_id, tenant_id, :state.QUEUED, :state.READY, fence, 'dispatcher', %(reason)s FROM back
""")  # noqa: S608 - statements of ours


RETURN_ALL_QUEUED = _return_queued("true")
RETURN_EXPIRED = _return_queued("q.claim_expires_at < clock_timestamp()")
