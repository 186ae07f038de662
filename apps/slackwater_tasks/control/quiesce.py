"""Holds tasks still before they run again: nothing that concerns them ends meanwhile, and earlier ends are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from django.db import OperationalError, transaction

from scheduler_ext.core.states import TaskState
from scheduler_ext.core.work import Changes
from slackwater_tasks.ledger import transitions

T = TypeVar("T")
TRIES = 4

# While these rows are locked neither the tasks nor what they need can finish: a finish writes them.
LOCK = """
SELECT id, state, release_pending FROM slackwater_tasks_task WHERE id IN (
    SELECT unnest(%(ids)s::uuid[])
    UNION SELECT parent_id FROM slackwater_tasks_dependency WHERE child_id = ANY(%(ids)s::uuid[]))
ORDER BY id FOR UPDATE
"""


def quiesce(cur: Any, ids: Sequence[UUID], changes: Changes) -> dict[UUID, TaskState | None]:
    """Lock the tasks and what they need, and tell dependants of those that have ended, so that their edges are true.

    Returns the states of all that are held, None for those that have not ended; adds what was ended by the telling to
    ``changes``. They are held until the transaction ends.
    """
    cur.execute(LOCK, {"ids": list(ids)})
    rows = cur.fetchall()
    ended = [(str(task_id), TaskState(state)) for task_id, state, untold in rows if untold]
    if ended:
        transitions.release(cur, ended, changes)
    return {task_id: None if state is None else TaskState(state) for task_id, state, _ in rows}


def repeat_on_deadlock(work: Callable[[], T]) -> T:
    """Run ``work`` in a transaction; again after a deadlock with tasks that finish at that moment."""
    for _ in range(TRIES - 1):
        try:
            with transaction.atomic():
                return work()
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                raise
    with transaction.atomic():
        return work()
