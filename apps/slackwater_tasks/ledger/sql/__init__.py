"""The statements of the ledger, by subject. Those that write a state are called by ``transitions`` alone.

What is looked for goes by ``phase`` (QUEUED and RUNNING are IN_FLIGHT there), which the partial indexes have; what is
checked of tasks named by their ids goes by ``state``, which none has: the planner could otherwise prove the predicate
of a partial index, believe from stale statistics that it holds one row, and scan it for every update. ``line_id + 0``
likewise: joined by the bare column, every ready task of each line might be read to find the few that are near their
latest start. ``= ANY(ARRAY[…])`` between a list and a table: only the table's key can serve it. With a bare ``=`` the
planner, who believes a table to be empty because it was when it was looked at, walks through all of it for each batch.
A row of the tasks' table is found as ``claims.task_of`` says. What is due is asked for
with ``statement_timestamp()``: the clock's time may change while a statement runs, so an index cannot be searched by
it, and every waiting row would be read.
"""

from slackwater_tasks.ledger.sql import (
    checkpoints,
    claims,
    dependencies,
    due,
    finish,
    following,
    leadership,
    openings,
    parking,
    preemption,
    rates,
    snapshot,
    store,
)

__all__ = [
    "checkpoints",
    "claims",
    "dependencies",
    "due",
    "finish",
    "following",
    "leadership",
    "openings",
    "parking",
    "preemption",
    "rates",
    "snapshot",
    "store",
]
