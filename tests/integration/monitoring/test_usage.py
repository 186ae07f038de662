"""What was used, by day, tier and category, and its price."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_ext.core.states import Outcome
from slackwater_monitoring.models import Usage
from slackwater_resources.models import Tier
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import Attempt
from tests.support.api import client_of, forget_lookups
from tests.support.hand_worker import HandWorker
from tests.support.usage import add_up, settle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("furnished")]


def test_attempts_are_added_up_by_day_tier_and_category_and_priced() -> None:
    acme, other = client_of("acme"), client_of("other")
    plan = acme.tenant.plan
    plan.price_micros_per_attempt = 5
    plan.price_permille = {**plan.price_permille, "offpeak": 500}
    plan.save()
    Tier.objects.update(price_micros_per_hour=0)
    Tier.objects.filter(slug="basic").update(price_micros_per_hour=3_600_000)  # a thousand a second
    forget_lookups()
    worker = HandWorker()
    for fields in ({}, {}, {"category": "offpeak"}, {"tier": "premium"}):
        worker.run(UUID(acme.task(**fields)), took_s=2.0)
    worker.run(UUID(acme.task(total_attempts=1)), took_s=2.0, outcome=Outcome.FAILED, error="no")
    worker.run(UUID(other.task()), took_s=9.0)
    settle()
    body = acme.get("/usage").body
    today = str(datetime.now(UTC).date())
    shown = [
        (r["day"], r["tier"], r["category"], r["attempts"], r["succeeded"], r["run_s"], r["price_micros"])
        for r in body["items"]
    ]
    assert shown == [
        (today, "basic", "delayable", 3, 2, 6, 3 * 5 + 6_000),
        (today, "basic", "offpeak", 1, 1, 2, 5 + 1_000),
        (today, "premium", "delayable", 1, 1, 2, 5),
    ]
    assert (body["total"]["attempts"], body["total"]["price_micros"]) == (5, 7_025)
    assert other.get("/usage").body["total"]["run_s"] == 9
    assert acme.get("/usage?since=2020-01-01&until=2020-01-31").body["items"] == []
    prices = acme.get("/limits").body["prices"]
    assert (prices["attempt_micros"], prices["tier_hour_micros"]["basic"]) == (5, 3_600_000)
    Tier.objects.filter(slug="basic").update(price_micros_per_hour=0)


def attempt(task_id: UUID, tenant: Any, fence: int) -> Attempt:
    now = timezone.now()
    return Attempt(
        task_id=task_id, tenant=tenant, number=1, fence=fence, started_at=now - timedelta(seconds=1),
        finished_at=now, outcome=Outcome.SUCCEEDED,
    )  # fmt: skip


def test_what_is_left_of_a_tenant_that_is_gone_is_passed_over_and_holds_up_nobody() -> None:
    acme, gone = client_of("acme"), client_of("gone")
    for client in (gone, acme):
        task_id = UUID(client.task())
        attempt(task_id, client.tenant, 1).save()
    Attempt._plain.filter(tenant=gone.tenant).update(tenant_id=gone.tenant.pk + 1_000)
    settle()
    assert [(row.tenant_id, row.attempts) for row in Usage._plain.all()] == [(acme.tenant.pk, 1)]


def test_an_attempt_that_becomes_visible_late_is_counted_and_none_twice() -> None:
    acme = client_of("acme")
    task_id = UUID(acme.task())
    settle()
    with connect() as slow:
        slow.execute("BEGIN")
        slow.execute(
            "UPDATE slackwater_tasks_task SET priority = 1 WHERE id = %s", (task_id,)
        )  # as each of ours writes first
        slow.execute(
            "INSERT INTO slackwater_tasks_attempt (task_id, tenant_id, number, fence, worker, started_at, finished_at, outcome, "
            "error) VALUES (%s, %s, 1, 1, '', now(), now(), 1, '')",
            (task_id, acme.tenant.pk),
        )
        attempt(task_id, acme.tenant, 2).save()  # a larger number, and there at once
        for _ in range(3):
            add_up()
        assert not Usage._plain.exists()
        slow.execute("COMMIT")
    settle()
    assert Usage._plain.get().attempts == 2
    attempt(task_id, acme.tenant, 3).save()
    settle()
    settle()
    assert Usage._plain.get().attempts == 3


def test_two_that_add_up_at_once_count_once() -> None:
    acme = client_of("acme")
    task_id = UUID(acme.task())
    for fence in range(1, 6):
        attempt(task_id, acme.tenant, fence).save()
    threads = [threading.Thread(target=settle) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle()
    assert Usage._plain.get().attempts == 5


@pytest.mark.parametrize(
    ("query", "field"),
    [("since=yesterday", "since"), ("until=2026-02-30", "until"), ("since=2026-02-02&until=2026-02-01", "until"),
     ("since=2020-01-01&until=2026-01-01", "until"), ("day=2026-01-01", "day"), ("since=20260101", "since")],
)  # fmt: skip
def test_wrong_days_are_named(query: str, field: str) -> None:
    answer = client_of("acme").get(f"/usage?{query}")
    assert (answer.status, answer.body["field"]) == (422, field)
