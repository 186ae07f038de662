"""Dependants: told of their parents' ends, and released."""

from __future__ import annotations

from scheduler_ext.core.sql import named
from slackwater_tasks.ledger.sql import openings

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
# Of the dependants of some parents that wait for none any more: how their parents have ended. A statement of its own,
# which sees what others had flipped before RELEASE had the dependants' rows.
EDGE_OUTCOMES = named("""
SELECT child_id::text, array_agg(DISTINCT outcome) FROM slackwater_tasks_dependency WHERE child_id = ANY(ARRAY(
    SELECT l.task_id FROM unnest(%s::uuid[]) AS given(id)
    JOIN slackwater_tasks_dependency d ON d.parent_id = ANY(ARRAY[given.id])
    JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[d.child_id])
    WHERE l.pending = 0 AND l.state = :state.BLOCKED))
GROUP BY child_id
""")
# The rows are locked by RELEASE. Those that find an opening are claimed, in the order of their lines; nothing else of
# theirs may be left for a round to decide. Nobody is waited for: an opening that somebody claims, in a transaction of a
# client's maybe, is left to him. claim_s: how long such a claim lasts; 0: none is made.
UNBLOCK = named(f"""
WITH freed AS (
    SELECT l.task_id, l.line_id, l.handler_id, l.alone OR l.total_attempts = 1 AS alone,
        l.mutex_key IS NULL AND l.rate_key IS NULL AND coalesce(l.not_before <= clock_timestamp(), true) AS plain,
        row_number() OVER (PARTITION BY l.line_id, l.handler_id, l.alone OR l.total_attempts = 1,
            l.mutex_key IS NULL AND l.rate_key IS NULL AND coalesce(l.not_before <= clock_timestamp(), true)
            ORDER BY l.rank_group, l.rank, l.task_id) AS at
    FROM unnest(%(ids)s::uuid[]) AS given(id) JOIN slackwater_tasks_livetask l ON l.task_id = ANY(ARRAY[given.id])
    WHERE l.state = :state.BLOCKED AND l.pending = 0),
alike AS (
    SELECT line_id, handler_id, alone, count(*)::int AS n FROM freed
    WHERE plain AND handler_id IS NOT NULL AND %(claim_s)s::float8 > 0 GROUP BY 1, 2, 3),
mine AS (
    SELECT alike.* FROM alike JOIN slackwater_tasks_opening o USING (line_id, handler_id, alone)
    FOR UPDATE OF o SKIP LOCKED),
place AS (
    UPDATE slackwater_tasks_opening o SET places = o.places - alike.n FROM mine AS alike
    WHERE (o.line_id, o.handler_id, o.alone) = (alike.line_id, alike.handler_id, alike.alone) AND o.places > 0
        AND {openings.HOLDS}
    RETURNING o.line_id, o.handler_id, o.alone, o.places + alike.n AS had, {openings.PLACE}),
claimed AS (
    SELECT freed.task_id, place.* FROM freed JOIN place USING (line_id, handler_id, alone)
    WHERE freed.plain AND freed.at <= place.had),
readied AS (
    UPDATE slackwater_tasks_livetask l SET
        state = CASE WHEN l.not_before > clock_timestamp() THEN :state.SCHEDULED
            WHEN claimed.node_id IS NOT NULL THEN :state.QUEUED ELSE :state.READY END,
        fence = CASE WHEN claimed.node_id IS NOT NULL THEN l.fence + 1 ELSE l.fence END,
        node_id = claimed.node_id, slot_milli = coalesce(claimed.slot_milli, l.slot_milli),
        queued_at = CASE WHEN claimed.node_id IS NOT NULL THEN clock_timestamp() ELSE l.queued_at END,
        claim_expires_at = CASE WHEN claimed.node_id IS NOT NULL
            THEN clock_timestamp() + %(claim_s)s * interval '1 second' END,
        latest_start = greatest(clock_timestamp(), l.not_before) + l.tolerance_ms * interval '1 millisecond',
        promote_at = CASE WHEN l.promote_at IS NOT NULL THEN greatest(clock_timestamp(), l.not_before)
            + (l.tolerance_ms - least(l.tolerance_ms, %(lead_ms)s)) * interval '1 millisecond' END
    FROM freed LEFT JOIN claimed ON claimed.task_id = freed.task_id WHERE l.task_id = ANY(ARRAY[freed.task_id])
    RETURNING l.task_id, l.tenant_id, l.state, l.fence, freed.at, claimed.node_id, claimed.kind, claimed.queue,
        claimed.slot_milli, claimed.expected_us, claimed.places, claimed.low),
told AS (
    INSERT INTO slackwater_tasks_taskevent (task_id, tenant_id, from_state, to_state, fence, actor, reason)
    SELECT task_id, tenant_id, :state.BLOCKED, CASE WHEN state = :state.QUEUED THEN :state.READY ELSE state END,
        CASE WHEN state = :state.QUEUED THEN fence - 1 ELSE fence END, 'release', 'what it needed has come' FROM readied)
SELECT task_id, fence, node_id, kind, queue, slot_milli, expected_us, places, low FROM readied ORDER BY at
""")  # noqa: S608 - names of ours
UNRELEASED = "SELECT id::text, state FROM slackwater_tasks_task WHERE release_pending ORDER BY id LIMIT %s"
