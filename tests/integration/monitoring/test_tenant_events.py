"""What a tenant is told of besides its work: each once, and what a task returned goes along where that is asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from slackwater_monitoring.models import Delivery
from slackwater_monitoring.notify import tenant_events
from slackwater_schedules.models import ScheduleFire
from slackwater_tasks.ledger.connection import connect
from slackwater_tenants.models import ApiKey, TenantCounter
from tests.support.api import HANDLER, ApiClient, forget_lookups
from tests.support.hand_worker import HandWorker
from tests.support.webhooks import hook, spread, told

pytestmark = pytest.mark.django_db(transaction=True)


def tell() -> list[dict[str, Any]]:
    """Look once; returns what live streams are told."""
    notices: list[Any] = []
    with connect() as conn, conn.transaction():
        tenant_events.tell_soon(conn, 100, notices)
        tenant_events.tell_later(conn, 100, notices)
    return [row[5] for row in notices]


def test_firings_quotas_and_keys_are_told_once(acme: ApiClient) -> None:
    everything = hook(acme, "https://example.org/a", ["*"])
    quotas = hook(acme, "https://example.org/b", ["quota.*"])
    hook(acme, "https://example.org/c", ["*"], tags=["eu"])
    rule = {"name": "nightly", "kind": "interval", "rule": {"every_s": 60}, "task": {"handler": HANDLER}}
    schedule = acme.post("/schedules", rule).body["id"]
    now = timezone.now()
    fire = {"schedule_id": schedule, "tenant": acme.tenant, "due_at": now, "lateness_ms": 0, "version": 1}
    for n, outcome in enumerate(("failed", "submitted")):
        at = now - timedelta(minutes=n)
        ScheduleFire._plain.create(**fire, fire_at=at, fired_at=now, outcome=outcome, error="its tier is gone")
    for name, days in (("ends", 5), ("lasts", 30)):
        acme.post("/keys", {"name": name, "scopes": ["read"], "expires_at": f"{now + timedelta(days=days):%FT%TZ}"})
    ApiKey.objects.filter(name="ends").update(created_at=now - timedelta(days=90))
    acme.tenant.plan.max_waiting = 100
    acme.tenant.plan.save()
    counter = TenantCounter.objects.filter(tenant=acme.tenant)
    counter.update(unfinished=85)
    found = {each["type"]: each["data"] for each in tell()}
    assert set(found) == {"schedule.failed", "quota.warning", "key.expiring"}
    assert (found["schedule.failed"]["name"], found["schedule.failed"]["reason"]) == ("nightly", "its tier is gone")
    assert found["quota.warning"] == {"quota": "unfinished_tasks", "used": 85, "limit": 100}
    assert found["key.expiring"]["name"] == "ends"
    assert found["key.expiring"]["expires_at"].endswith("Z")
    assert tell() == [], "each once"
    counter.update(unfinished=100)
    assert [each["type"] for each in tell()] == ["quota.exhausted"]
    counter.update(unfinished=10)
    assert tell() == []
    counter.update(unfinished=80)
    assert [each["type"] for each in tell()] == ["quota.warning"], "there was room meanwhile"
    ApiKey.objects.filter(name="ends").update(expires_at=now + timedelta(hours=5))
    assert [each["type"] for each in tell()] == ["key.expiring"]
    names = [row["event"] for row in told(acme, quotas["id"])]
    assert names == ["quota.warning", "quota.exhausted", "quota.warning"]
    assert len(told(acme, everything["id"])) == Delivery._plain.count() - len(names) == 6


def test_a_result_goes_with_its_event_where_asked_for_and_without_secrets(acme: ApiClient) -> None:
    worker = HandWorker()
    asked = hook(acme, "https://example.org/a", ["task.succeeded", "task.started"], include_result=True)
    plain = hook(acme, "https://example.org/b", ["task.succeeded"])
    assert acme.post("/secrets", {"name": "token", "value": "hush-hush"}).status == 201
    forget_lookups()
    for name, result in (("small", '{"x": ["a hush-hush b", 7]}'), ("none", "null"), ("large", f'"{"x" * 70_000}"')):
        worker.run(UUID(acme.task(name=name)), result=result)
    spread()
    rows = [row["payload"] for row in told(acme, asked["id"])]
    found = {row["data"]["name"]: row["data"] for row in rows if row["type"] == "task.succeeded"}
    assert found["small"]["result"] == {"x": ["a *** b", 7]}
    assert (found["none"]["result"], found["none"]["result_withheld"]) == (None, None)
    assert (found["large"]["result"], found["large"]["result_withheld"]) == (None, "it is too large")
    others = [row["payload"] for row in told(acme, plain["id"])] + [r for r in rows if r["type"] == "task.started"]
    assert len(others) == 6
    assert not any("result" in row["data"] for row in others)
