"""The ledger as a worker uses it, over Django's own connection: what it does belongs to the test's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from django.db import connection, transaction
from psycopg.types.json import JsonbLoader

from scheduler_ext.core.work import Started
from scheduler_ext.ports import TaskBackend
from slackwater_tasks.runtime.task_backend import PgTaskBackend
from slackwater_tasks.runtime.work_store import PgWorkStore

T = TypeVar("T")


class Connection:
    """As much of psycopg's connection as the adapters use, which in a worker is another one than the handler's."""

    journal: list[tuple[Any, Any]] | None = None
    """What was executed since it was last made empty, where that is to outlive a transaction of the handler's."""

    def execute(self, query: Any, params: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
        if self.journal is not None:
            self.journal.append((query, params))
        connection.ensure_connection()
        cursor: psycopg.Cursor[tuple[Any, ...]] = psycopg.Cursor(connection.connection)
        cursor.adapters.register_loader("jsonb", JsonbLoader)  # Django's own connection leaves JSON as text
        return cursor.execute(query, params)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with transaction.atomic():
            yield


class SharedDatabase:
    """Stands for :class:`slackwater_tasks.ledger.connection.Database`; it is never away."""

    def __init__(self) -> None:
        self.conn = Connection()

    def repeatable(
        self, work: Callable[[Any], T], *, tries: int = 1, single: bool = False, pipelined: bool = False
    ) -> T:
        """Run ``work``, in a transaction unless it is a ``single`` statement; one after the other, ``pipelined`` or not."""
        if single:
            return work(self.conn)
        with transaction.atomic():
            return work(self.conn)

    def close(self) -> None:
        """The connection is Django's."""


class SharedStore(PgWorkStore):
    """Starts and records tasks in the test's transaction; so do the effects, files and checkpoints of its handlers."""

    def backend(self, task: Started) -> TaskBackend:
        return PgTaskBackend(task, self.db, add_subtasks=self._add_subtasks)
