"""What a running task may ask of the platform beyond its own row: :class:`scheduler_ext.task.backend.TaskAid`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

from scheduler_ext.ports import Started
from scheduler_ext.task.effects import EffectStore
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.runtime.artifacts import PgArtifacts
from slackwater_tasks.runtime.checkpoints import PgCheckpoints
from slackwater_tasks.runtime.effects import PgEffects

PORTS = (
    "SELECT r.ports FROM slackwater_tasks_task t JOIN slackwater_resources_tier r ON r.id = t.tier_id WHERE t.id = %s"
)


class PgTaskAid:
    """The platform as one running attempt asks it."""

    def __init__(self, task: Started) -> None:
        """``task`` is the running attempt."""
        self.task = task

    @property
    def effects(self) -> EffectStore:
        """Keys of effects that happen once."""
        return PgEffects(self.task, _claims())

    @property
    def artifacts(self) -> PgArtifacts:
        """Files the task leaves behind."""
        return PgArtifacts(self.task, _claims())

    @property
    def checkpoints(self) -> PgCheckpoints:
        """What the task saved to go on from."""
        return PgCheckpoints(self.task, _claims())

    def submit(self, items: Sequence[Mapping[str, Any]], *, join: bool, key: str) -> list[str]:
        """Store tasks of the same tenant, in the task's workflow where it has one; returns their ids."""
        # Imported here: the services import what the worker's store imports.
        from slackwater_tasks.control.workflows import add_subtasks

        _fresh()
        return [str(task_id) for task_id in add_subtasks(self.task, items, join=join, key=key)]

    def ports(self) -> int:
        """How many ports the task's tier has."""
        row = _claims().conn.execute(PORTS, (self.task.task_id,)).fetchone()
        return int(row[0]) if row else 0

    def secret(self, name: str) -> str:
        """A secret of the task's tenant."""
        from slackwater_tasks.control.secrets import reveal

        _fresh()
        return reveal(self.task.tenant_id, name)

    def trace(self) -> dict[str, str]:
        """W3C headers of the trace the task belongs to; none without one."""
        if not trace_context.is_on():
            return {}
        row = _claims().conn.execute(trace_context.HEADERS, (self.task.task_id,)).fetchone()
        return trace_context.headers(self.task.task_id, self.task.fence, row)


class _Own(threading.local):
    """A connection of each thread's own: no transaction of anybody else's may hold a claim back."""

    db: Database | None = None


_own = _Own()


def _claims() -> Database:
    if _own.db is None:
        _own.db = Database("slackwater effects")
    return _own.db


def _fresh() -> None:
    """A handler's Django connection may have broken since the last task."""
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
