"""What waits beside its line: tasks whose rate is used up, whose handler is paused, or that no node can run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.types import LineView, NodeView, Reason
from scheduler_ext.round.placement import Ledger
from slackwater_tasks.ledger import sql, transitions
from slackwater_tasks.ledger.snapshot_rows import Flight, node_view

BATCH = 1000
RESUMED = "its handler was resumed"
GONE_LEASES = 3
"""A node that went away less than this many leases ago still counts: it may just be restarting."""

JUST_GONE = """
SELECT id, name, capacity, slots, handlers, labels FROM slackwater_resources_node
WHERE cell = %s AND NOT (state = 'active' AND lease_expires_at > clock_timestamp())
    AND heartbeat_at > clock_timestamp() - %s * interval '1 second'
"""

PASSES = 5
MAX_HEADS = 4096
"""How many tasks of a line are looked at in one pass."""


def nominate(conn: Any, heads: int, paused: Collection[int], lines: Sequence[int] | None = None) -> list[Any]:
    """The first ``heads`` tasks of each line, or of some; those of ``paused`` handlers are parked, so that they hide none.

    A line that has very many of them is cleared over several rounds.
    """
    query, of = (sql.snapshot.NOMINATE, ()) if lines is None else (sql.snapshot.NOMINATE_OF, (list(lines),))
    rows: list[Any] = conn.execute(query, (*of, heads)).fetchall()
    wide, found = heads, rows
    for _ in range(PASSES if paused else 0):
        hidden = {row[0]: -1 - row[6] for row in found if row[6] in paused}
        if not hidden:
            break
        transitions.park_for(conn, hidden, actor="dispatcher", reason="parked: its handler is paused")
        wide = min(4 * wide, MAX_HEADS)
        found = conn.execute(query, (*of, wide)).fetchall()
    return rows if found is rows else conn.execute(query, (*of, heads)).fetchall()


def resume(conn: Any) -> int:
    """Release the first tasks whose handler has just been resumed; upkeep releases the rest."""
    rows = conn.execute(sql.parking.RESUMED, {"most": BATCH}).fetchall()
    return transitions.unpark_these(conn, [row[0] for row in rows], actor="dispatcher", reason=RESUMED)


def park_hopeless(conn: Any, conf: SchedulerConf, nodes: Sequence[NodeView], lines: Sequence[LineView],
                  task_ids: Sequence[str]) -> int:  # fmt: skip
    """Park the tasks that fit no node of ``nodes``, nor one that has just gone; tell their clients."""
    wanted = set(task_ids)
    gone = conn.execute(JUST_GONE, (conf.cell, conf.node_lease_s * GONE_LEASES)).fetchall()
    ledger = Ledger([*nodes, *(node_view(row, Flight()) for row in gone)])
    found: dict[Reason, list[str]] = {}
    for line in lines:
        for task in line.heads:
            if task.task_id in wanted:
                reason = ledger.shape(line.vector, task.kind, task.handler_id, line.labels).impossible
                if reason is not None:
                    found.setdefault(reason, []).append(task.task_id)
    return sum(transitions.park_impossible(conn, ids, reason.value) for reason, ids in found.items())
