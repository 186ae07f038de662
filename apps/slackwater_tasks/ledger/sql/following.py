"""What begins in the place of what has ended, in the statement that records that.

FOLLOW records a plain success, releases its one dependant, claims an opening for that, and begins it: what SUCCEED, RELEASE,
UNBLOCK and START do one after the other, and it refuses what any of them refuses. Then the success is recorded all the same,
and the dependant is left to them. GO_ON records a batch, and begins as many more of each line with which its node goes on.
"""

from __future__ import annotations

from scheduler_ext.core.sql import named
from slackwater_tasks.ledger.sql import openings
from slackwater_tasks.ledger.sql.claims import LEASED, NEXT, NEXT_OF_LINES, STARTS, WORK, task_of
from slackwater_tasks.ledger.sql.finish import counted, finish, gone, recorded, successes, tell


def _succeed_and_begin(*more: str) -> str:
    """Live rows are locked first, the success's and then, if it is free, the dependant's; counters and openings last.

    Of the dependant's row the version is begun that the statement sees: the ends of its other parents, which were
    written with it, are then seen too. ``done`` reads ``known``, so that the task's row is locked before it is written:
    a lock that comes after finds no row, and nothing would be counted.
    """
    return named(f"""
WITH ended AS (
    SELECT %(id)s::uuid AS id, %(fence)s::int AS fence, :state.SUCCEEDED AS final, :outcome.SUCCEEDED AS outcome,
        %(started)s::float8 AS started, %(finished)s::float8 AS finished, %(result)s::text AS result, '' AS error,
        '' AS reason, NULL::int AS exit_code, %(worker)s::text AS worker, NULL::int AS cpu, NULL::int AS memory,
        NULL::int AS disk),
{gone()},
next AS (
    SELECT l.task_id, l.line_id, l.handler_id, l.alone OR l.total_attempts = 1 AS alone
    FROM slackwater_tasks_livetask seen
    JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[seen.task_id]) AND l.xmin = seen.xmin
    WHERE seen.task_id = ANY(ARRAY[%(next)s::uuid]) AND l.fence = %(next_fence)s AND l.state = :state.BLOCKED
        AND l.pending = 1 AND l.condition = ANY(%(conditions)s::int[]) AND l.handler_id IS NOT NULL
        AND l.parked IS NULL AND l.mutex_key IS NULL AND l.rate_key IS NULL
        AND coalesce(l.not_before <= clock_timestamp(), true) AND {STARTS}
        AND EXISTS (SELECT 1 FROM gone)
        AND (SELECT array_agg(d.child_id) = ARRAY[%(next)s::uuid] FROM (
            SELECT child_id FROM slackwater_tasks_dependency WHERE parent_id = %(id)s::uuid LIMIT 2) d)
        AND (SELECT count(*) FILTER (WHERE d.parent_id = %(id)s::uuid AND d.outcome = :edge.PENDING) = 1
                AND bool_and(d.outcome = :edge.SUCCEEDED OR d.parent_id = %(id)s::uuid)
            FROM slackwater_tasks_dependency d WHERE d.child_id = %(next)s::uuid)
    FOR UPDATE OF l SKIP LOCKED),
known AS (
    SELECT t.id, t.tenant_id, t.category FROM gone JOIN slackwater_tasks_task t ON {task_of("gone")}
    WHERE (SELECT count(*) FROM next) >= 0 FOR NO KEY UPDATE OF t),
{recorded("gone", "gone.attempts + 1")},
{counted("known")},
mine AS (
    SELECT o.line_id, o.handler_id, o.alone FROM next JOIN slackwater_tasks_opening o USING (line_id, handler_id, alone)
    WHERE EXISTS (SELECT 1 FROM counted) FOR UPDATE OF o SKIP LOCKED),
place AS (
    UPDATE slackwater_tasks_opening o SET places = o.places - 1 FROM mine
    WHERE (o.line_id, o.handler_id, o.alone) = (mine.line_id, mine.handler_id, mine.alone) AND o.places > 0
        AND o.node_id = %(node)s AND o.kind = 'process' AND {openings.HOLDS} AND {LEASED}
    RETURNING o.slot_milli, 2 * o.places < o.given AS low),
started AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.RUNNING, fence = l.fence + 1, pending = 0, node_id = %(node)s,
        slot_milli = place.slot_milli, queued_at = clock_timestamp(), started_at = statement_timestamp(), batch = 1,
        latest_start = greatest(clock_timestamp(), l.not_before) + l.tolerance_ms * interval '1 millisecond',
        promote_at = CASE WHEN l.promote_at IS NOT NULL THEN greatest(clock_timestamp(), l.not_before)
            + (l.tolerance_ms - least(l.tolerance_ms, %(lead_ms)s)) * interval '1 millisecond' END
    FROM next, place WHERE l.task_id = ANY(ARRAY[next.task_id])
    RETURNING l.task_id, l.tenant_id, l.fence, l.attempts, l.has_children, place.low),
edge AS (
    UPDATE slackwater_tasks_dependency d SET outcome = :edge.SUCCEEDED FROM started
    WHERE d.parent_id = ANY(ARRAY[%(id)s::uuid]) AND d.child_id = ANY(ARRAY[started.task_id])),
released AS (
    INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
    SELECT task_id, tenant_id, :state.BLOCKED, :state.READY, fence - 1, 'release', 'what it needed has come' FROM started),
{"".join(more)}
done AS (
    UPDATE slackwater_tasks_task t SET state = gone.final, finished_at = to_timestamp(gone.finished),
        attempts_used = gone.attempts + 1, latest_start = gone.latest_start, result = gone.result::jsonb,
        error = gone.error, reason = gone.reason,
        release_pending = gone.has_children AND NOT EXISTS (SELECT 1 FROM started)
    FROM gone JOIN known ON known.id = gone.task_id WHERE {task_of("gone")}
    RETURNING t.id, t.tenant_id, t.workflow_id, t.state, t.release_pending, gone.mutex_key, gone.finished)
SELECT done.id::text, done.state, done.release_pending, done.mutex_key, done.tenant_id, done.workflow_id::text,
    done.finished, begun.* FROM done LEFT JOIN (
        SELECT started.low, started.task_id::text, started.fence, started.tenant_id, {WORK}, started.attempts + 1, t.name,
            t.workflow_id::text, date_part('epoch', statement_timestamp()), {NEXT}
        FROM started JOIN slackwater_tasks_task t ON {task_of("started")}) begun ON true
""")  # noqa: S608 - statements of ours


FOLLOW = _succeed_and_begin()
FOLLOW_AND_TELL = _succeed_and_begin(
    tell(":event.SUCCEEDED"),
    """
notices_of_next AS (
    INSERT INTO slackwater_tasks_outbox (tenant_id, task_id, events, state, fence, attempt, reason)
    SELECT started.tenant_id, started.task_id, :event.STARTED, :state.RUNNING, started.fence, started.attempts + 1, ''
    FROM started JOIN slackwater_tasks_listener AS listener ON listener.tenant_id = started.tenant_id
        WHERE listener.events & :event.STARTED <> 0),""",
)
# Of each line as many begin as ended, in the place of those.
_BEGUN = named(f"""
room AS (
    SELECT o.line_id, o.handler_id, o.slot_milli, least(ended.number, ended.milli / o.slot_milli)::int AS places
    FROM slackwater_tasks_grant o CROSS JOIN LATERAL (
        SELECT count(*) AS number, sum(gone.slot_milli) AS milli FROM gone
        WHERE gone.line_id = o.line_id AND gone.handler_id = o.handler_id
            AND (gone.slot_milli < 1000) = (o.slot_milli < 1000)) ended
    WHERE o.node_id = %(node)s AND ended.number > 0 AND {openings.HOLDS}),
{NEXT_OF_LINES},
begun AS (
    UPDATE slackwater_tasks_livetask l SET state = :state.RUNNING, fence = l.fence + 1, node_id = %(node)s,
        slot_milli = next.slot_milli, queued_at = statement_timestamp(), started_at = statement_timestamp(),
        batch = (SELECT count(*) FROM next)
    FROM next WHERE l.ctid = next.place RETURNING l.task_id, l.tenant_id, l.fence, l.attempts),
""")  # noqa: S608 - statements of ours
_AND_BEGUN = f""", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM done
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, begun.task_id::text, begun.fence, begun.tenant_id, {WORK},
    begun.attempts + 1, t.name, t.workflow_id::text, date_part('epoch', statement_timestamp()), NULL
FROM begun JOIN slackwater_tasks_task t ON {task_of("begun")}"""  # noqa: S608 - statements of ours
# Rows of what ended, as SUCCEED has them, and behind those columns the ones of what began, as START has them.
GO_ON = finish(successes(), _BEGUN, of_live=", l.line_id, l.handler_id, l.slot_milli", beside=_AND_BEGUN)
