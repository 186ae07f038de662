"""The engine's own connections: what breaks them is a fault that is tried again, never a reason to end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import Unavailable
from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.core.types import Decision, QueueName, WorkKind
from scheduler_ext.core.work import Finished, Format, Started
from scheduler_ext.worker.child.claims import Starting
from slackwater_api.http.problems import normalized
from slackwater_resources.faults import FAULTS
from slackwater_resources.models import Node
from slackwater_resources.registry import PgNodeStore
from slackwater_tasks.ledger.connection import Database, fetch_named_rows
from slackwater_tasks.ledger.round_store import PgRoundStore
from slackwater_tasks.models import Attempt, LiveTask, Task
from slackwater_tasks.runtime.checkpoints import PgCheckpoints
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import submit
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from slackwater_tenants.models import CurrentCounter
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER, furnish
from tests.support.hand_worker import HOLDER, HandWorker
from tests.support.link import Link, first_uncut
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def dismissed(database: Database, other: Database) -> None:
    """Leave a transaction of ``database`` idle until its session was ended for it: its process was stopped so long."""
    conn = database.conn
    conn.execute("SET idle_in_transaction_session_timeout = '50ms'")
    pid = conn.info.backend_pid
    conn.execute("BEGIN")
    wait_until(
        lambda: other.conn.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None,
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


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_a_submission_is_planned_once_for_a_connection(pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    furnish()
    acme = create_tenant("acme", "Acme")
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", pooled)
    connection.close()
    for _ in range(3):
        submit(acme, {"handler": HANDLER})
    with connection.cursor() as cur:
        # Two at most: the first looks for an opening, and those behind it do not.
        cur.execute(
            "SELECT coalesce(sum(generic_plans + custom_plans), 0), count(*) <= 2 FROM pg_prepared_statements"
            " WHERE statement LIKE %s",
            ["%counted%"],
        )
        assert cur.fetchone() == (0 if pooled else 3, True)
    with transaction.atomic():
        submit(acme, {"handler": HANDLER})
        transaction.set_rollback(True)  # which drops what was prepared
    submit(acme, {"handler": HANDLER})
    with connection.cursor() as cur:
        cur.execute("DEALLOCATE ALL")
    submit(acme, {"handler": HANDLER})
    assert Task.objects.unscoped().filter(tenant=acme).count() == 5
    connection.close()


def test_repeatable_work_is_repeated_after_its_session_was_ended() -> None:
    database, other = Database("stopped"), Database("other")
    calls: list[int] = []

    def work(conn: psycopg.Connection[Any]) -> Any:
        calls.append(conn.info.backend_pid)
        if len(calls) == 1:
            conn.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
            pid = calls[0]
            wait_until(
                lambda: other.conn.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None
            )
        return conn.execute("SELECT 7").fetchone()

    try:
        assert database.repeatable(work) == (7,)
        assert len(set(calls)) == 2, "on a new session"
    finally:
        database.close()
        other.close()


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_a_hot_statement_is_prepared_once_under_a_name(pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", pooled)
    statement = "SELECT %(b)s::int - %(a)s::int, %(a)s::int, 7 %% 4"
    database = Database("named", hot=True)

    def names() -> list[str]:
        rows = database.conn.execute("SELECT name FROM pg_prepared_statements WHERE statement LIKE '%::int - %'")
        return [row[0] for row in rows.fetchall()]

    try:
        for n in range(3):
            assert fetch_named_rows(database.conn, statement, {"a": n, "b": "9"}) == [(9 - n, n, 3)]
        assert [name.startswith("slackwater_") for name in names()] == ([] if pooled else [True])
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            fetch_named_rows(database.conn, statement, {"a": 1, "b": "no number"})
        database.conn.execute("DEALLOCATE ALL")
        with database.conn.transaction():
            assert fetch_named_rows(database.conn, statement, {"a": 1, "b": 2}) == [(1, 1, 3)]
        assert fetch_named_rows(database.conn, statement, {"a": 1, "b": 2}) == [(1, 1, 3)]
        with pytest.raises(psycopg.errors.DivisionByZero):
            fetch_named_rows(database.conn, "SELECT 1 / %(a)s::int", {"a": 0})
        assert fetch_named_rows(database.conn, "SELECT 1 / %(a)s::int", {"a": 1}) == [(1,)]
    finally:
        database.close()


@pytest.fixture
def link() -> Iterator[Link]:
    """One link."""
    made = Link()
    yield made
    made.close()


@pytest.mark.parametrize("lost", ["question", "answer"])
def test_a_start_without_an_answer_is_taken_over_and_begins_once(link: Link, lost: str) -> None:
    furnish()
    worker, tenant = HandWorker(), create_tenant("acme", "Acme")
    ids = [str(submit(tenant, {"handler": HANDLER}).task_ids[0]) for _ in range(3)]
    claims = worker.claim(*map(UUID, ids))
    database = Database("breaking")
    database._conn = link.opened
    store = PgWorkStore(SchedulerConf(), "breaking", database)
    starting = Starting(store, worker.node.pk, claims, WorkKind.PROCESS, set)
    link.lose, link.after = lost, 1  # what it asks is prepared first
    with pytest.raises(store.faults):
        starting()
    try:
        expected = TaskState.RUNNING if lost == "answer" else TaskState.QUEUED
        wait_until(lambda: {row.state for row in LiveTask._plain.all()} == {expected}, message="it was lost so")
        started = starting()
        assert [(s.task_id, s.fence) for s in started] == list(claims)
        assert {(row.state, row.attempts) for row in LiveTask._plain.all()} == {(TaskState.RUNNING, 0)}
        assert starting() == started, "it may be lost again"
        worker.end(started)
        assert starting() == [], "what has ended is not begun"
    finally:
        store.close()


class Cut:
    """An operation of the engine on a link that is cut at its nth message, and again until it goes through."""

    def __init__(self, lost: str, after: int) -> None:
        self.lost, self.after, self.was_cut = lost, after, False
        self.worker = HandWorker(f"hand-{lost}-{after}-{uuid4()}")
        self.tenant = create_tenant(f"t{uuid4().hex[:12]}", "Acme")

    def __call__(self, make: Callable[[Database], Callable[[], Any]]) -> Any:
        link, database = Link(), Database("cut")
        database._conn = link.opened
        try:
            link.lose, link.after = self.lost, self.after
            operation = make(database)
            for _ in range(3):
                with contextlib.suppress(*FAULTS):
                    return operation()
            raise AssertionError("it does not go through on a link that is whole again")
        finally:
            self.was_cut = database._conn is not link.opened
            database.close()
            link.close()

    def begun(self, **fields: Any) -> Started:
        """A task of its own that runs on the node."""
        made = submit(self.tenant, {"handler": HANDLER, **fields}).task_ids[0]
        return self.worker.start(made)[0]


def _recorded(cut: Cut) -> None:
    parent = submit(cut.tenant, {"handler": HANDLER}).task_ids[0]
    child = submit(cut.tenant, {"handler": HANDLER, "depends_on": [str(parent)]}).task_ids[0]
    (started,) = cut.worker.start(parent)
    now = time.time()
    ended = Finished(started.task_id, started.fence, Outcome.SUCCEEDED, now - 0.1, now, "7", None, None, None)
    cut(lambda db: lambda: PgWorkStore(SchedulerConf(), "cut", db).record(cut.worker.node.pk, [ended]))
    task = Task.objects.unscoped().get(pk=parent)
    assert (task.state, task.result, task.attempts_used) == (TaskState.SUCCEEDED, 7, 1)
    assert Attempt.objects.unscoped().filter(task_id=parent).count() == 1
    # Where the answer was lost, nobody could go on from it: upkeep does, every two seconds.
    upkeep = LedgerUpkeep(SchedulerConf(), lambda changes: None)
    upkeep.release()
    upkeep.db.close()
    assert LiveTask.objects.unscoped().get(pk=child).state == TaskState.READY
    assert CurrentCounter.objects.get(tenant=cut.tenant).unfinished == 1


def _handed_back(cut: Cut) -> None:
    started = cut.begun()
    claims = [(started.task_id, started.fence)]
    cut(
        lambda db: (
            lambda: PgWorkStore(SchedulerConf(), "cut", db).hand_back(
                cut.worker.node.pk, claims, running=True, reason="told to"
            )
        )
    )
    row = LiveTask.objects.unscoped().get(pk=started.task_id)
    assert (row.state, row.attempts) == (TaskState.READY, 0)


def _claimed(cut: Cut) -> None:
    task_id = submit(cut.tenant, {"handler": HANDLER}).task_ids[0]
    row = LiveTask.objects.unscoped().get(pk=task_id)
    decision = Decision(
        task_id=str(task_id), line_id=row.line_id, node_id=cut.worker.node.pk, kind=WorkKind.PROCESS,
        queue=QueueName.DELAYABLE, fence=row.fence, expected_us=0, exclusive=True,
    )  # fmt: skip
    cut(lambda db: lambda: PgRoundStore(SchedulerConf(), HOLDER, db).claim(cut.worker.epoch, [decision]))
    after = LiveTask.objects.unscoped().get(pk=task_id)
    assert (after.state, after.fence) == (TaskState.QUEUED, row.fence + 1), "claimed once, heard or not"


def _saved(cut: Cut) -> None:
    started = cut.begun()
    cut(lambda db: lambda: PgCheckpoints(started, db).save_checkpoint(Format.JSON, b"[1]"))
    store = PgCheckpoints(started, Database("look"))
    found = store.load_checkpoint()
    store.db.close()
    assert found is not None
    assert found.content == b"[1]"


def _renewed(cut: Cut) -> None:
    node = cut.worker.node
    Node.objects.filter(pk=node.pk).update(lease_expires_at=timezone.now())
    assert cut(lambda db: lambda: PgNodeStore(SchedulerConf(), db).renew(node.pk, {"busy": 1})) == "active"
    node.refresh_from_db()
    assert node.stats == {"busy": 1}
    assert node.lease_expires_at > timezone.now()


def _led(cut: Cut) -> None:
    lead = cut(lambda db: lambda: PgRoundStore(SchedulerConf(), HOLDER, db).lead(HOLDER))
    assert lead.epoch == cut.worker.epoch, "it leads on in the epoch it had"


@pytest.mark.parametrize("lost", ["question", "answer"])
@pytest.mark.parametrize("operation", [_recorded, _handed_back, _claimed, _saved, _renewed, _led])
def test_what_is_cut_at_any_message_is_done_once(operation: Callable[[Cut], None], lost: str) -> None:
    furnish()

    def was_cut(after: int) -> bool:
        cut = Cut(lost, after)
        operation(cut)
        return cut.was_cut

    after = first_uncut(was_cut, 20)
    assert 0 < after < 19, "each message was lost in its turn, and then none"
