"""Keys of effects: who may do it, who waits, who is told that nobody knows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.work import Started
from scheduler_ext.task.effects import AttemptReplaced, DidNotHappen, InDoubt, UnderWay, perform
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.models import Effect as Row
from slackwater_tasks.models import LiveTask, Script
from slackwater_tasks.runtime.task_backend import PgTaskBackend
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER, furnish
from tests.support.hand_worker import HandWorker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def worker() -> HandWorker:
    """A node."""
    furnish()
    return HandWorker()


@pytest.fixture
def db() -> Iterator[Database]:
    """A worker's own connection."""
    made = Database("test once")
    yield made
    made.close()


def running(worker: HandWorker, tenant: Tenant) -> Started:
    """A task that runs."""
    return worker.start(submit(tenant, {"handler": HANDLER}).task_ids[0])[0]


def outside(task: Started, db: Database, key: str = "k", verify: Any = None) -> Any:
    """The key for an effect elsewhere."""
    return perform(PgTaskBackend(task, db), key, outside=True, verify=verify)


def inside(task: Started, db: Database, key: str = "k") -> Any:
    """The key for an effect in this database."""
    return perform(PgTaskBackend(task, db), key, outside=False, verify=None)


def write(name: str) -> None:
    """An effect in this database."""
    Script._plain.create(tenant=Tenant.objects.get(), sha256=name, name=name, content=b"x", size=1)


def write_and_fail() -> None:
    """An effect whose doer fails right after."""
    write("lost")
    raise ZeroDivisionError


def test_effect_and_key_are_rolled_back_together(worker: HandWorker, db: Database) -> None:
    task = running(worker, create_tenant("acme", "A"))
    with pytest.raises(ZeroDivisionError), inside(task, db):
        write_and_fail()
    assert (Row._plain.count(), Script._plain.count()) == (0, 0)
    with inside(task, db) as effect:
        write("kept")
        effect.result = "a text"
    with inside(task, db) as effect:
        assert (effect.first, effect.result) == (False, "a text")
    assert Script._plain.count() == 1


def test_who_comes_second_waits_for_the_first(worker: HandWorker, db: Database) -> None:
    tenant = create_tenant("acme", "A")
    first, second = running(worker, tenant), running(worker, tenant)
    seen: list[bool] = []

    def try_too() -> None:
        with inside(second, db) as effect:
            seen.append(effect.first)
        connection.close()

    with inside(first, db) as effect:
        assert effect.first
        thread = threading.Thread(target=try_too)
        thread.start()
        wait_until(lambda: _waiters(db) == 1, message="the second waits for the key")
        assert seen == []
    thread.join(10)
    assert seen == [False]


def _waiters(db: Database) -> int:
    # Asked on another connection: a transaction sees the activity as it was when it first looked.
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() "
        "AND query LIKE %s"
    )
    return int(db.conn.execute(query, ("%INSERT INTO slackwater_tasks_effect%",)).fetchone()[0])  # type: ignore[index]


def test_who_has_waited_too_long_is_told_so(worker: HandWorker, db: Database) -> None:
    tenant = create_tenant("acme", "A")
    first, second = running(worker, tenant), running(worker, tenant)
    caught: list[Exception] = []

    def try_too() -> None:
        with connection.cursor() as cur:
            cur.execute("SET lock_timeout = '200ms'")
        try:
            with inside(second, db):
                pass
        except UnderWay as error:
            caught.append(error)
        finally:
            connection.close()

    with inside(first, db):
        thread = threading.Thread(target=try_too)
        thread.start()
        thread.join(10)
    assert len(caught) == 1


def test_the_same_key_of_two_tenants_is_two_keys(worker: HandWorker, db: Database) -> None:
    for slug in ("acme", "other"):
        with outside(running(worker, create_tenant(slug, slug)), db) as effect:
            assert effect.first


def test_a_claim_left_behind_is_told_or_verified(worker: HandWorker, db: Database) -> None:
    tenant = create_tenant("acme", "A")
    first = running(worker, tenant)
    with pytest.raises(TimeoutError), outside(first, db):
        raise TimeoutError
    second = running(worker, tenant)
    with pytest.raises(UnderWay), outside(second, db, verify=lambda: pytest.fail("it asked while one runs")):
        pass
    worker.end([first])
    with pytest.raises(InDoubt, match=first.task_id), outside(second, db):
        pass
    with outside(second, db, verify=lambda: {"id": 7}) as effect:
        assert (effect.first, effect.result) == (False, {"id": 7})
    with outside(running(worker, tenant), db) as effect:
        assert (effect.first, effect.result) == (False, {"id": 7})


def test_what_verify_denies_is_done_by_who_asked(worker: HandWorker, db: Database) -> None:
    tenant = create_tenant("acme", "A")
    first = running(worker, tenant)
    with pytest.raises(TimeoutError), outside(first, db):
        raise TimeoutError
    with outside(first, db, verify=lambda: None) as effect:  # the same attempt may find out too
        assert effect.first
        effect.result = 1
    assert Row._plain.get().result == 1


def test_certainty_that_nothing_happened_frees_the_key(worker: HandWorker, db: Database) -> None:
    task = running(worker, create_tenant("acme", "A"))
    with pytest.raises(DidNotHappen), outside(task, db):
        raise DidNotHappen
    with outside(task, db) as effect:
        assert effect.first


def test_an_attempt_that_was_replaced_may_begin_nothing(worker: HandWorker, db: Database) -> None:
    task = running(worker, create_tenant("acme", "A"))
    LiveTask._plain.update(fence=task.fence + 1)
    for use in (outside, inside):
        with pytest.raises(AttemptReplaced), use(task, db):
            pytest.fail("it began")
    assert not Row._plain.exists()


@pytest.mark.parametrize("key", ["", "x" * 201, "a\x00b", 3])
def test_what_is_no_key_is_refused(worker: HandWorker, db: Database, key: Any) -> None:
    task = running(worker, create_tenant("acme", "A"))
    with pytest.raises(InvalidInput) as caught, outside(task, db, key):
        pass
    assert caught.value.field == "key"
