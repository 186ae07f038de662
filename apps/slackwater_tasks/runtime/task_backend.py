"""What a running task may ask of the platform beyond its own row: ``TaskBackend`` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from scheduler_ext.core.work import Started
from scheduler_ext.ports import TaskBackend
from slackwater_conf.database import in_ledger
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.runtime import trace_context, uploads
from slackwater_tasks.runtime.artifacts import PgArtifacts
from slackwater_tasks.runtime.checkpoints import PgCheckpoints
from slackwater_tasks.runtime.effects import PgEffects
from slackwater_tenants.scoping import tenant_scope

PORTS = (
    "SELECT r.ports FROM slackwater_tasks_task t JOIN slackwater_resources_tier r ON r.id = t.tier_id WHERE t.id = %s"
)

AddSubtasks = Callable[..., Sequence[UUID]]
"""Stores tasks for a running one: ``(task, items, *, join, key)``; given by whoever may submit."""


def no_subtasks(*_: Any, **__: Any) -> Sequence[UUID]:
    """Its replacement in processes that run no tasks."""
    raise NotImplementedError("this process runs no tasks")


class PgTaskBackend(PgEffects, PgArtifacts, PgCheckpoints, TaskBackend):
    """The platform as one running attempt sees it; :mod:`scheduler_ext.ports` describes each call."""

    def __init__(self, task: Started, db: Database | None = None, *, add_subtasks: AddSubtasks = no_subtasks) -> None:
        """``add_subtasks`` stores what the task submits."""
        super().__init__(task, db)
        self._add_subtasks = add_subtasks

    @in_ledger
    def submit(self, items: Sequence[Mapping[str, Any]], *, join: bool, key: str) -> list[str]:
        close_if_broken()
        return [str(task_id) for task_id in self._add_subtasks(self.task, items, join=join, key=key)]

    @in_ledger
    def find_upload(self, upload_id: str) -> tuple[int, Callable[[int, int], bytes]]:
        close_if_broken()
        with tenant_scope(self.task.tenant_id):
            row = uploads.find_whole(upload_id)

        @in_ledger
        def read(start: int, end: int) -> bytes:
            close_if_broken()
            return b"".join(uploads.content(row, start, end))

        return row.size, read

    def ports(self) -> int:
        row = self.db.conn.execute(PORTS, (self.task.task_id,)).fetchone()
        return int(row[0]) if row else 0

    @in_ledger
    def secret(self, name: str) -> str:
        from slackwater_tasks.runtime.sealed import reveal  # few tasks need it, and it loads a library

        close_if_broken()
        return reveal(self.task.tenant_id, name)

    def trace(self) -> dict[str, str]:
        if not trace_context.is_on():
            return {}
        row = self.db.conn.execute(trace_context.HEADERS, (self.task.task_id,)).fetchone()
        return trace_context.headers(self.task.task_id, self.task.fence, row)


def close_if_broken() -> None:
    """A handler's Django connection may have broken since the last task."""
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
