"""Connections of the engine's own: the dispatcher, upkeep and the workers do not share Django's.

Celery closes Django's connection around each of its tasks, and the hot path wants prepared statements and autocommit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from django.db import connections

from apps.resources.faults import BROKEN

T = TypeVar("T")
PREPARE_AFTER = 2


def connect(
    alias: str = "default", *, application_name: str = "slackwater"
) -> psycopg.Connection[tuple[Any, ...]]:
    """Open an autocommit connection to Django's database of that alias, with its options."""
    wrapper = connections[alias]
    params = dict(wrapper.get_connection_params())
    for name in ("cursor_factory", "context", "pool", "server_side_binding"):
        params.pop(name, None)
    # PgBouncer in transaction mode cannot keep prepared statements; its settings say so with None.
    threshold = params.pop("prepare_threshold", PREPARE_AFTER)
    params["application_name"] = application_name
    conn = psycopg.connect(**params, autocommit=True)
    conn.prepare_threshold = threshold
    return conn


class Database:
    """A connection that is opened when needed, and opened anew after it broke."""

    def __init__(self, name: str, alias: str = "default") -> None:
        """``name`` is shown in ``pg_stat_activity``."""
        self.name = name
        self.alias = alias
        self._conn: psycopg.Connection[tuple[Any, ...]] | None = None

    @property
    def conn(self) -> psycopg.Connection[tuple[Any, ...]]:
        """The open connection."""
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect(self.alias, application_name=self.name)
        return self._conn

    def close(self) -> None:
        """Close it; the next use opens it anew."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def repeatable(
        self,
        work: Callable[[psycopg.Connection[tuple[Any, ...]]], T],
        *,
        tries: int = 4,
        single: bool = False,
    ) -> T:
        """Run ``work`` in one transaction; again after a deadlock, or once more after a broken connection.

        ``single``: it is one statement, which is a transaction by itself and saves two round trips.

        Only for work that may safely be done twice: everything fenced is, for the second time changes nothing.
        """
        for attempt in range(tries):
            try:
                if single:
                    return work(self.conn)
                with self.conn.transaction():
                    return work(self.conn)
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                if attempt == tries - 1:
                    raise
            except BROKEN:
                self.close()
                if attempt:
                    raise
        raise AssertionError("unreachable")
