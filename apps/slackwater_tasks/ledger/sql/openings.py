"""Openings: room that the leading dispatcher has decided on ahead, and the claim of it by whoever makes a task ready.

And grants: with which lines a node goes on by itself.

Whoever claims locks an opening last. The dispatcher hardly waits for him: an opening that is being claimed for longer stays
as it is, counted as taken.
"""

from __future__ import annotations

from typing import Final

from scheduler_ext.core.sql import named

# Read before what is in flight: a task that comes between is counted twice for once, and never not at all.
OUTSTANDING = """
SELECT line_id, handler_id, alone, node_id, kind, queue, slot_milli, expected_us, places, given
FROM slackwater_tasks_opening WHERE cell = %s AND epoch = %s AND places > 0
"""
# What is there was counted as taken, so that adding to it is exact, however much of it is claimed meanwhile. Whether the
# leader still leads is for whoever claims to see: to lock the leader's row here would make the commit wait for the disk.
_STAYS = "o.places > 0 AND o.epoch = excluded.epoch AND o.cell = excluded.cell"
_FREE = """free AS (
    SELECT line_id, handler_id, alone, places FROM slackwater_tasks_opening WHERE cell = %(cell)s FOR UPDATE SKIP LOCKED)"""
_IS_FREE = "(free.line_id, free.handler_id, free.alone) = (o.line_id, o.handler_id, o.alone)"
# Who is claiming an opening has it for the few milliseconds of his statement, so he is waited for so long; longer, and
# nothing is widened.
WIDEN = f"""
INSERT INTO slackwater_tasks_opening AS o (line_id, handler_id, alone, cell, epoch, node_id, kind, queue, slot_milli,
    expected_us, places, given)
SELECT u.line, u.handler, u.alone, %(cell)s, %(epoch)s, u.node, u.kind, u.queue, u.milli, u.expected, u.places, u.places
FROM (SELECT set_config('lock_timeout', %(patience)s, true) OFFSET 0) patience,
    unnest(%(lines)s::bigint[], %(handlers)s::bigint[], %(alones)s::bool[], %(nodes)s::bigint[], %(kinds)s::text[],
        %(queues)s::text[], %(millis)s::int[], %(expected)s::int[], %(places)s::int[])
    AS u(line, handler, alone, node, kind, queue, milli, expected, places)
ON CONFLICT (line_id, handler_id, alone) DO UPDATE SET cell = excluded.cell, epoch = excluded.epoch,
    node_id = excluded.node_id, kind = excluded.kind, queue = excluded.queue, slot_milli = excluded.slot_milli,
    expected_us = excluded.expected_us,
    places = excluded.places + CASE WHEN {_STAYS} THEN o.places ELSE 0 END,
    given = excluded.places + CASE WHEN {_STAYS} THEN o.places ELSE 0 END
WHERE o.cell <> excluded.cell OR o.epoch < excluded.epoch OR o.epoch = excluded.epoch AND (o.places <= 0
    OR (o.node_id, o.kind, o.slot_milli) = (excluded.node_id, excluded.kind, excluded.slot_milli))
RETURNING o.line_id, o.handler_id, o.alone, o.places
"""  # noqa: S608 - statements of ours
WITHDRAW = f"""
WITH {_FREE}
UPDATE slackwater_tasks_opening o SET places = 0, given = 0 FROM free WHERE {_IS_FREE} AND o.places > 0
RETURNING o.line_id, o.handler_id, o.alone, free.places
"""  # noqa: S608 - statements of ours
# What nobody has used for a while, and all that an earlier leader left.
CLOSE = f"""
WITH {_FREE}
DELETE FROM slackwater_tasks_opening o USING free WHERE {_IS_FREE} AND (o.epoch <> %(epoch)s OR NOT EXISTS (
    SELECT 1 FROM unnest(%(lines)s::bigint[], %(handlers)s::bigint[], %(alones)s::bool[]) AS u(line, handler, alone)
    WHERE (u.line, u.handler, u.alone) = (o.line_id, o.handler_id, o.alone)))
RETURNING o.line_id, o.handler_id, o.alone, free.places
"""  # noqa: S608 - statements of ours
# Whether the leader still leads is for whoever goes on to see, as with openings.
GRANT = """
INSERT INTO slackwater_tasks_grant AS o (node_id, line_id, cell, epoch, handler_id, slot_milli)
SELECT u.node, u.line, %(cell)s, %(epoch)s, u.handler, u.milli
FROM unnest(%(nodes)s::bigint[], %(lines)s::bigint[], %(handlers)s::bigint[], %(millis)s::int[]) AS u(node, line, handler, milli)
ON CONFLICT (node_id, line_id) DO UPDATE SET cell = excluded.cell, epoch = excluded.epoch,
    handler_id = excluded.handler_id, slot_milli = excluded.slot_milli
WHERE o.cell <> excluded.cell OR o.epoch <= excluded.epoch
"""
# All of a cell but these. Who is going on by one this moment holds what he held before: nobody waits for him.
REVOKE = """
DELETE FROM slackwater_tasks_grant o WHERE o.cell = %(cell)s AND NOT EXISTS (
    SELECT 1 FROM unnest(%(nodes)s::bigint[], %(lines)s::bigint[]) AS u(node, line)
    WHERE (u.node, u.line) = (o.node_id, o.line_id))
"""


PARAMETERS: Final = 4
"""Those of the part that claims."""


# Where an opening o holds: nothing is paused, its node and its leader are there, and the tenant has not moved. Each is looked
# up by itself: a join of the six tables took longer to plan than all else of a lone submission.
HOLDS = """(SELECT NOT line.paused AND (
            SELECT NOT tenant.paused AND tenant.cell = o.cell
                FROM slackwater_tenants_tenant tenant WHERE tenant.id = line.tenant_id)
            FROM slackwater_tasks_line line WHERE line.id = o.line_id)
        AND (SELECT NOT handler.paused FROM slackwater_resources_handler handler WHERE handler.id = o.handler_id)
        AND (SELECT node.state = 'active' AND node.lease_expires_at > clock_timestamp()
            FROM slackwater_resources_node node WHERE node.id = o.node_id)
        AND (SELECT leader.epoch = o.epoch AND leader.expires_at > clock_timestamp()
            FROM slackwater_tasks_leader leader WHERE leader.cell = o.cell)"""
PLACE = "o.node_id, o.kind, o.queue, o.slot_milli, o.expected_us, o.places, 2 * o.places < o.given AS low"


def claim_part(first: int) -> str:
    """The part of a statement that claims an opening for its tasks, ``counted`` before: no row, or one.

    Parameters from ``first`` on: how many tasks, their line, handler, and whether they never share a batch. Where there
    are fewer places than tasks less than none are left, and the opening is closed: what comes later waits behind the rest.
    """
    n, line, handler, alone = (f"${number}" for number in range(first, first + PARAMETERS))
    return f"""place AS (
    UPDATE slackwater_tasks_opening o SET places = o.places - {n}::int
    WHERE o.line_id = {line}::bigint AND o.handler_id = {handler}::bigint AND o.alone = {alone}::bool AND o.places > 0
        AND {HOLDS} AND EXISTS (SELECT 1 FROM counted)
    RETURNING {PLACE})"""  # noqa: S608 - names of ours


def claimed(first: int) -> dict[str, str]:
    """The columns of a live row that say whether it is claimed: the first tasks are, as many as there were places.

    ``first``: as :func:`claim_part` takes it; behind its parameters come the seconds that a claim lasts.
    """
    there = f"given.at <= place.places + ${first}::int"
    lasts = f"${first + PARAMETERS}::float8 * interval '1 second'"
    return {
        "state": named(f"CASE WHEN {there} THEN :state.QUEUED ELSE v.state END"),
        "fence": f"CASE WHEN {there} THEN v.fence + 1 ELSE v.fence END",
        "slot_milli": f"CASE WHEN {there} THEN place.slot_milli ELSE v.slot_milli END",
        "node_id": f"CASE WHEN {there} THEN place.node_id END",
        "queued_at": f"CASE WHEN {there} THEN clock_timestamp() END",
        "claim_expires_at": f"CASE WHEN {there} THEN clock_timestamp() + {lasts} END",
    }
