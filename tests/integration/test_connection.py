"""The engine's own connections: what breaks them is a fault that is tried again, never a reason to end."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from apps.resources.faults import FAULTS
from apps.resources.registry import PgNodeStore
from apps.tasks.connection import Database
from apps.tasks.work_store import PgWorkStore
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def dismissed(database: Database, other: Database) -> None:
    """Leave a transaction of ``database`` idle until its session was ended for it: its process was stopped so long."""
    conn = database.conn
    conn.execute("SET idle_in_transaction_session_timeout = '50ms'")
    pid = conn.info.backend_pid
    conn.execute("BEGIN")
    wait_until(
        lambda: (
            other.conn.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None
        ),
        message="the idle session is ended",
    )


def test_a_session_that_was_ended_while_its_process_was_stopped_is_a_fault() -> None:
    database, other = Database("stopped"), Database("other")
    try:
        dismissed(database, other)
        with pytest.raises(psycopg.Error) as caught:
            database.conn.execute("SELECT 1")
        for faults in (FAULTS, PgWorkStore.faults, PgNodeStore.faults):
            assert isinstance(caught.value, faults), "whoever runs on this would end"
        assert database.conn.execute("SELECT 1").fetchone() == (1,), "the next use opens it anew"
    finally:
        database.close()
        other.close()


def test_repeatable_work_is_repeated_after_its_session_was_ended() -> None:
    database, other = Database("stopped"), Database("other")
    calls: list[int] = []

    def work(conn: psycopg.Connection[Any]) -> Any:
        calls.append(conn.info.backend_pid)
        if len(calls) == 1:
            conn.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
            pid = calls[0]
            wait_until(
                lambda: (
                    other.conn.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()
                    is None
                )
            )
        return conn.execute("SELECT 7").fetchone()

    try:
        assert database.repeatable(work) == (7,)
        assert len(set(calls)) == 2, "on a new session"
    finally:
        database.close()
        other.close()
