"""The engine's own connections: what breaks them is a fault that is tried again, never a reason to end."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import DatabaseError, connection

from apps.api.errors import normalized
from apps.resources.faults import FAULTS
from apps.resources.registry import PgNodeStore
from apps.tasks.connection import Database
from apps.tasks.models import LiveTask
from apps.tasks.services import submit
from apps.tasks.work_store import PgWorkStore
from apps.tenants.services import create_tenant
from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import Unavailable
from scheduler_ext.core.states import TaskState
from scheduler_ext.worker.starting import Starting
from tests.support.api import HANDLER, forget_lookups, furnish
from tests.support.hand_worker import HandWorker
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


@pytest.fixture
def read_only() -> Iterator[None]:
    """New sessions find a server that takes no writes, as a standby does."""
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cur:
        cur.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        yield
    finally:
        with connection.cursor() as cur:
            cur.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')


def test_nobody_connects_to_a_server_that_takes_no_writes(read_only: None) -> None:
    database = Database("late")
    with pytest.raises(psycopg.OperationalError, match="read-only") as caught:
        database.conn.execute("SELECT 1")
    assert isinstance(caught.value, FAULTS)


def test_a_server_that_takes_no_writes_any_more_is_said_to_be_away() -> None:
    furnish()
    tenant = create_tenant("late", "Late")
    with connection.cursor() as cur:
        cur.execute("SET default_transaction_read_only = on")
    try:
        with pytest.raises(DatabaseError) as caught:
            submit(tenant, {"handler": HANDLER})
        assert isinstance(normalized(caught.value), Unavailable)
    finally:
        with connection.cursor() as cur:
            cur.execute("SET default_transaction_read_only = off")


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


class Link:
    """A connection of its own to the database, by way of this process, which loses one answer when told to."""

    def __init__(self) -> None:
        self.lose = ""
        """What becomes of the next thing asked: ``question``: it never arrives; ``answer``: it is done, unheard."""
        info = connection.cursor().connection.info
        self._server = socket.socket(socket.AF_UNIX if info.host.startswith("/") else socket.AF_INET)
        unix = f"{info.host}/.s.PGSQL.{info.port}"
        self._server.connect(unix if info.host.startswith("/") else (info.host, info.port))
        listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, args=(listener,), daemon=True)
        self._thread.start()
        self.opened = psycopg.connect(
            host="127.0.0.1", port=listener.getsockname()[1], user=info.user, password=info.password,
            dbname=info.dbname, autocommit=True, sslmode="disable", gssencmode="disable",
        )  # fmt: skip

    def _serve(self, listener: socket.socket) -> None:
        with listener, self._server, listener.accept()[0] as client:
            ends = {client: self._server, self._server: client}
            while True:
                for source in select.select(list(ends), [], [])[0]:
                    data = source.recv(65_536)
                    lost = "question" if source is client else "answer"
                    if not data or self.lose == lost:
                        return
                    ends[source].sendall(data)

    def close(self) -> None:
        """Close both sides."""
        self.opened.close()
        self._thread.join(10)


@pytest.fixture
def link() -> Iterator[Link]:
    """One link."""
    made = Link()
    yield made
    made.close()


@pytest.mark.parametrize("lost", ["question", "answer"])
def test_a_start_without_an_answer_is_taken_over_and_begins_once(link: Link, lost: str) -> None:
    forget_lookups()
    furnish()
    worker, tenant = HandWorker(), create_tenant("acme", "Acme")
    ids = [str(submit(tenant, {"handler": HANDLER}).task_ids[0]) for _ in range(3)]
    claims = worker.claim(*map(UUID, ids))
    database = Database("breaking")
    database._conn = link.opened
    store = PgWorkStore(SchedulerConf(), "breaking", database)
    starting = Starting(store, worker.node.pk, claims)
    link.lose = lost
    with pytest.raises(store.faults):
        starting()
    try:
        expected = TaskState.RUNNING if lost == "answer" else TaskState.QUEUED
        wait_until(
            lambda: {row.state for row in LiveTask._plain.all()} == {expected}, message="it was lost so"
        )
        started = starting()
        assert [(s.task_id, s.fence) for s in started] == list(claims)
        assert {(row.state, row.attempts) for row in LiveTask._plain.all()} == {(TaskState.RUNNING, 0)}
        assert starting() == started, "it may be lost again"
        worker.end(started)
        assert starting() == [], "what has ended is not begun"
    finally:
        store.close()
