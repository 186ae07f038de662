"""Who ends tasks and who submits them do not wait for each other, and what is unfinished stays exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from uuid import UUID

import pytest
from django.db import connection, transaction
from psycopg import Connection

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import QuotaExceeded, SlackwaterError
from scheduler_ext.core.states import TaskState
from slackwater_tasks.ledger import transitions
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.ledger.sql import finish
from slackwater_tasks.models import LiveTask
from slackwater_tasks.submission.service import submit
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from slackwater_tenants.models import CurrentCounter, EndCounter, Tenant, TenantCounter
from tests.support.api import client_of, furnish
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
ECHO = {"handler": "demo.echo"}
HOLD = "SELECT 1 FROM slackwater_tenants_tenantcounter WHERE tenant_id = %s FOR UPDATE"
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def tenant() -> Iterator[Tenant]:
    furnish()
    yield client_of("ends").tenant
    connection.close()  # its sessions' settings go with it


def end(conn: Connection, *ids: UUID) -> None:
    """Cancel tasks in whatever transaction is open."""
    ended = transitions.end_if_waiting(conn, [str(each) for each in ids], TaskState.CANCELLED, reason="", actor="test")
    assert len(ended) == len(ids)


def given(tenant: Tenant, *categories: str) -> Sequence[UUID]:
    """A waiting task of each category."""
    return [submit(tenant, {**ECHO, "category": category}).task_ids[0] for category in categories]


def live(tenant: Tenant) -> int:
    return LiveTask.objects.unscoped().filter(tenant=tenant).count()  # unscoped: of one tenant


def limit(tenant: Tenant, waiting: int) -> None:
    tenant.plan.max_waiting = waiting
    tenant.plan.save()


def test_a_submission_does_not_wait_for_the_commit_of_an_end(tenant: Tenant) -> None:
    (first,) = given(tenant, "delayable")
    with connect() as recorder, recorder.transaction():
        end(recorder, first)
        with connection.cursor() as cur:
            cur.execute("SET lock_timeout = '1s'")
        submit(tenant, ECHO)
        assert CurrentCounter.objects.get(tenant=tenant).unfinished == 2, "that end is not committed"
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == live(tenant) == 1


def test_an_end_does_not_wait_for_the_commit_of_a_submission(tenant: Tenant) -> None:
    (first,) = given(tenant, "delayable")
    with transaction.atomic():
        submit(tenant, ECHO)
        with connect() as recorder:
            recorder.execute("SET lock_timeout = '1s'")
            end(recorder, first)
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == live(tenant) == 1


def test_recorders_of_several_parts_do_not_wait_for_each_other(tenant: Tenant) -> None:
    ids = list(given(tenant, *["delayable"] * 8))
    open_: dict[int, Connection] = {}
    while len(open_) < finish.PARTS:
        conn = connect()
        if open_.setdefault(conn.info.backend_pid % finish.PARTS, conn) is not conn:
            conn.close()  # it would write to a part that another writes to
    for conn in open_.values():
        conn.execute("BEGIN")
        conn.execute("SET lock_timeout = '1s'")
        end(conn, ids.pop())
    for conn in open_.values():
        conn.execute("COMMIT")
        conn.close()
    assert EndCounter.objects.filter(tenant=tenant).count() == finish.PARTS
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == live(tenant) == len(ids)


def test_admission_takes_in_what_has_ended(tenant: Tenant) -> None:
    limit(tenant, 3)
    ids = given(tenant, "urgent", "urgent", "delayable")
    with pytest.raises(QuotaExceeded, match="3 wait, 1 were submitted"):
        submit(tenant, ECHO)
    with connect() as recorder:
        end(recorder, *ids[:2])
    submit(tenant, ECHO)
    counter, now = TenantCounter.objects.get(tenant=tenant), CurrentCounter.objects.get(tenant=tenant)
    assert (counter.unfinished, counter.urgent_unfinished, counter.ended, counter.urgent_ended) == (2, 0, 2, 2)
    assert (now.unfinished, now.urgent_unfinished, now.submitted) == (2, 0, 4)


def test_a_refused_submission_takes_in_nothing(tenant: Tenant) -> None:
    limit(tenant, 2)
    first, _ = given(tenant, "urgent", "delayable")
    with connect() as recorder:
        end(recorder, first)
    limit(tenant, 1)
    with pytest.raises(QuotaExceeded, match="1 wait"):
        submit(tenant, ECHO)
    assert TenantCounter.objects.get(tenant=tenant).ended == 0
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == live(tenant) == 1


def test_a_submission_that_waited_for_the_counter_does_not_forget_what_was_taken_in(tenant: Tenant) -> None:
    """It began before a task ended, and waits for one that takes that end in."""
    first, _ = given(tenant, "urgent", "delayable")
    with connect() as watch, _held_up(tenant, watch) as waiting:
        end(watch, first)
        submit(tenant, ECHO)
    assert waiting.result(timeout=30) is None
    now = CurrentCounter.objects.get(tenant=tenant)
    assert (now.unfinished, now.urgent_unfinished) == (live(tenant), 0) == (3, 0)


def test_a_submission_that_waited_for_the_counter_never_exceeds_a_limit(tenant: Tenant) -> None:
    """What ended while it waited it does not see: it is refused in vain, and by the limit that it met."""
    limit(tenant, 3)
    first, _ = given(tenant, "urgent", "delayable")
    with connect() as watch, _held_up(tenant, watch) as waiting:
        submit(tenant, ECHO)
        end(watch, first)
    refused = waiting.result(timeout=30)
    assert isinstance(refused, QuotaExceeded)
    assert str(refused) == "the plan allows 3 tasks waiting; 2 wait, 1 were submitted"
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == live(tenant) == 2


@contextmanager
def _held_up(tenant: Tenant, watch: Connection) -> Iterator[Future[SlackwaterError | None]]:
    """A submission by another connection, which waits for the counter until the end of the block."""
    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        with connection.cursor() as cur:
            cur.execute(HOLD, (tenant.pk,))
        waiting = pool.submit(_submit, tenant)
        wait_until(lambda: watch.execute(WAITS).fetchall()[0][0])
        yield waiting


def _submit(tenant: Tenant) -> SlackwaterError | None:
    try:
        submit(tenant, ECHO)
    except SlackwaterError as error:
        return error
    finally:
        connection.close()
    return None


def test_upkeep_takes_in_what_ended_where_nothing_is_submitted(tenant: Tenant) -> None:
    """The version before, to which one may step back, reads the counters alone."""
    ids = given(tenant, "urgent", "delayable", "urgent")
    upkeep = LedgerUpkeep(SchedulerConf(), lambda changes: None)
    with connect() as recorder:
        end(recorder, *ids[:2])
    with connect() as submitter, submitter.transaction():
        submitter.execute(HOLD, (tenant.pk,))
        assert upkeep.take_in() == 0, "whose counter is held takes it in by itself"
    assert upkeep.take_in() == 1
    counter = TenantCounter.objects.get(tenant=tenant)
    assert (counter.unfinished, counter.urgent_unfinished, counter.ended, counter.urgent_ended) == (1, 1, 2, 1)
    assert CurrentCounter.objects.get(tenant=tenant).unfinished == live(tenant) == 1
    assert upkeep.take_in() == 0
    upkeep.db.close()


def test_a_counter_that_somebody_set_too_low_keeps_no_other_from_being_taken_in(tenant: Tenant) -> None:
    other = client_of("other").tenant
    upkeep = LedgerUpkeep(SchedulerConf(), lambda changes: None)
    with connect() as recorder:
        end(recorder, *given(tenant, "delayable"), *given(other, "delayable"))
    TenantCounter.objects.filter(tenant=tenant).update(unfinished=0)
    assert upkeep.take_in() == 1
    assert TenantCounter.objects.get(tenant=other).ended == 1
    upkeep.db.close()


def test_the_migration_is_taken_back_beside_the_version_before(tenant: Tenant) -> None:
    """That lowers the counter itself, and waits for its turn; nothing of either is lost."""
    ids = given(tenant, *["delayable"] * 5)
    back = import_module("slackwater_tenants.migrations.0014_ends").NO_VIEW
    with connect() as recorder, connect() as watch, ThreadPoolExecutor(1) as pool, connect() as before:
        end(recorder, ids[0])
        before.execute("BEGIN")
        before.execute(
            "UPDATE slackwater_tenants_tenantcounter SET unfinished = unfinished - 3 WHERE tenant_id = %s", (tenant.pk,)
        )
        found = pool.submit(_taken_back, back, tenant)
        wait_until(lambda: watch.execute(WAITS).fetchall()[0][0])
        before.execute("COMMIT")
        assert found.result(timeout=30) == 1


def _taken_back(statements: str, tenant: Tenant) -> int:
    """What the counter says then; and all is as before."""
    try:
        with transaction.atomic(), connection.cursor() as cur:
            cur.execute(statements)
            found = TenantCounter.objects.get(tenant=tenant).unfinished
            transaction.set_rollback(True)
        return found
    finally:
        connection.close()
