"""Whose a task is that comes through Celery's own API: looked up once in a second, and never out of a rolled back one."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import transaction

from scheduler_ext.core.errors import NoTenant, TooLarge
from slackwater.celery import app
from slackwater_tasks.control import owner as owners
from slackwater_tasks.control.owner import owner
from slackwater_tasks.models import Task
from slackwater_tasks.submission.service import submit, submit_many
from slackwater_tenants.models import CurrentCounter, Plan, Tenant, TenantCounter
from slackwater_tenants.scoping import tenant_scope
from tests.support.api import HANDLER, client_of, furnish

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def tenant() -> Tenant:
    furnish()
    return client_of("shop").tenant


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a second pass."""
    passed = [0.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return time.monotonic() + passed[0]

    monkeypatch.setattr(owners, "time", Clock)

    def pass_() -> None:
        passed[0] += owners.KEPT_S

    return pass_


def test_a_change_is_seen_within_a_second(tenant: Tenant, later: Any, django_assert_num_queries: Any) -> None:
    assert owner("a", "shop") == tenant
    with tenant_scope(tenant.pk):
        assert owner("a") == tenant
    with django_assert_num_queries(0):
        found = owner("a", "shop")
        with tenant_scope(tenant.pk):
            assert owner("a") == found == tenant
        assert found.plan == tenant.plan
    Plan.objects.filter(pk=tenant.plan_id).update(max_payload_bytes=3)
    Tenant.objects.filter(pk=tenant.pk).update(slug="store")
    later()
    with pytest.raises(NoTenant, match="'shop'"):
        owner("a", "shop")
    assert owner("a", "store").plan.max_payload_bytes == 3
    with tenant_scope(tenant.pk), pytest.raises(TooLarge):
        submit(owner("a"), {"handler": HANDLER, "args": ["long enough"]})


def test_one_that_comes_is_seen_at_once(tenant: Tenant) -> None:
    with pytest.raises(NoTenant):
        owner("a", "other")
    other = client_of("other").tenant
    assert owner("a", "other") == other


def test_what_a_transaction_made_is_not_remembered(tenant: Tenant) -> None:
    with transaction.atomic():
        Tenant.objects.create(slug="never", name="Never", plan=tenant.plan)
        assert owner("a", "never").slug == "never"
        transaction.set_rollback(True)
    with pytest.raises(NoTenant):
        owner("a", "never")


@pytest.mark.parametrize("count", [1, 2, 300])
def test_nothing_is_stored_for_one_that_was_just_removed(tenant: Tenant, count: int) -> None:
    assert owner("a", "shop") == tenant
    items = [{"handler": HANDLER, "args": [n]} for n in range(count)]
    submit_many(owner("a", "shop"), items)
    before = Task.objects.unscoped().count()  # unscoped: of one tenant
    TenantCounter.objects.filter(tenant=tenant).delete()
    with pytest.raises(NoTenant, match="any more"):
        submit_many(owner("a", "shop"), items)
    assert Task.objects.unscoped().count() == before == count  # unscoped: as above


def test_a_lone_call_asks_the_database_for_nothing_but_to_store_it(
    tenant: Tenant, settings: Any, django_assert_num_queries: Any
) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "TENANT": "shop"}
    task = app.signature(HANDLER, args=(1,))
    task.apply_async()
    with django_assert_num_queries(0):  # the statement that stores it goes by the connection itself
        task.apply_async()
    assert CurrentCounter.objects.get(tenant=tenant).submitted == 2
