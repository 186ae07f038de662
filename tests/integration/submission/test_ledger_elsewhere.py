"""A project whose ledger is in another database: it submits and reads there, outside of its own transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from celery import signature
from django.db import connection, connections, router, transaction

import slackwater
from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.work import Started
from slackwater.celery import app
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import Task
from slackwater_tasks.runtime.task_backend import PgTaskBackend
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER, furnish

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(settings: Any) -> Iterator[Tenant]:
    """A tenant, over a second alias; the database behind both is one, so that each can be asked what the other did."""
    furnish()
    made = create_tenant("acme", "Acme")
    connections["ledger"] = connections["default"].copy(alias="ledger")
    settings.DATABASE_ROUTERS = ["slackwater_conf.database.LedgerRouter"]
    settings.SLACKWATER = {**settings.SLACKWATER, "LEDGER_ALIAS": "ledger", "TENANT": "acme"}
    try:
        yield made
    finally:
        connections["ledger"].close()
        del connections["ledger"]


def test_a_task_is_no_part_of_the_projects_transaction(acme: Tenant) -> None:
    own = connections["default"]
    echo = signature(HANDLER, args=[1], app=app)
    with transaction.atomic():
        by_celery, whole = echo.delay(), (echo | signature(HANDLER, app=app)).delay()
        by_name = slackwater.submit(acme, {"handler": HANDLER})
        assert connection.in_atomic_block, "the caller's"
        assert not connections["ledger"].in_atomic_block
        transaction.set_rollback(True)
    assert connections["default"] is own
    kept = set(map(str, Task.objects.unscoped().values_list("pk", flat=True)))  # the test is no tenant
    assert {by_celery.id, whole.id, str(by_name.task_ids[0])} <= kept
    assert len(kept) == 4
    with tenant_scope(acme.pk), transaction.atomic():
        before = by_celery.state
        by_celery.revoke()
        assert (before, by_celery.state) == ("PENDING", "REVOKED"), "it may be asked for, and waited for, at once"


def test_each_finds_its_own_tables(acme: Tenant) -> None:
    assert router.db_for_read(Task) == router.db_for_write(Tenant) == "ledger"
    assert not router.allow_migrate("default", "slackwater_tasks")
    assert router.allow_migrate("default", "auth")
    with connect() as own:
        assert own.info.dbname == connections["ledger"].settings_dict["NAME"]
    with (
        pytest.raises(InvalidInput, match="another database") as caught,
        PgTaskBackend(Started("t", 1, acme.pk, HANDLER, "", "", [], {}, 1, 1, "")).effect_inside("key"),
    ):
        pass
    assert caught.value.field == "outside"
    with pytest.raises(slackwater.NotFound):
        slackwater.cancel(acme.pk, UUID(int=7))
