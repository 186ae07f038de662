"""The rate over several submitters, exact with and without Redis; its refusals; what was used, and its price."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import redis
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scheduler_ext.core.errors import LimitExceeded, TooLarge
from slackwater_tasks.ledger.hints import keys
from slackwater_tasks.models import Task
from slackwater_tasks.submission import refusal_cache, service
from slackwater_tenants.services import create_api_key, create_tenant
from tests.support.api import HANDLER, ApiClient, client_of, forget_lookups, furnish
from tests.support.submitters import AWAY, Client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT = 100


@pytest.fixture(autouse=True)
def _furnished(monkeypatch: pytest.MonkeyPatch) -> None:
    furnish()
    monkeypatch.setattr(refusal_cache, "TIMEOUT_S", 10.0)
    monkeypatch.setattr(refusal_cache._remembered, "_clients", {})


def slow_plan(client: ApiClient, *, burst: int = 2, per_hour: int = 60) -> None:
    plan = client.tenant.plan
    plan.burst, plan.tasks_per_hour = burst, per_hour
    plan.save()
    forget_lookups()


@pytest.mark.parametrize("submitters", ["with Redis", "without Redis"], indirect=True)
def test_exactly_the_limit_is_accepted_over_four_processes(submitters: list[int]) -> None:
    tenant = create_tenant("acme", "Acme")
    tenant.plan.burst, tenant.plan.tasks_per_hour = LIMIT, 1
    tenant.plan.save()
    key = create_api_key(tenant, "test", ("submit",))[1]
    clients = [Client(port, key) for port in submitters for _ in range(50)]
    together, statuses = threading.Barrier(len(clients)), Counter[int]()
    lock = threading.Lock()

    def one(client: Client) -> None:
        together.wait()
        status, _ = client.submit()
        with lock:
            statuses[status] += 1

    threads = [threading.Thread(target=one, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == {201: LIMIT, 429: LIMIT}
    assert Task._plain.count() == LIMIT
    # A flood after it: told at once, by each of the four.
    took = []
    for n in range(200):
        status, seconds = clients[n % len(clients)].submit()
        assert status == 429
        took.append(seconds)
    told = clients[199].last
    assert (clients[199].body["code"], clients[199].body["detail"]) == ("limit_exceeded", "Limit exceeded")
    assert 3_000 < int(told["retry-after"]) <= 3_600
    assert told["ratelimit"] == f'"submissions";r=0;t={told["retry-after"]}'
    assert told["ratelimit-policy"] == f'"submissions";q={LIMIT};w={LIMIT * 3600}'
    took.sort()
    assert took[100] < 0.5, "nobody waits for anything to be told"
    for client in clients:
        client.connection.close()


# -- refusals that are remembered -------------------------------------------------------------------------------------
def test_a_known_refusal_asks_neither_database_nor_redis(
    redis_client: redis.Redis, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slackwater_api.http.auth.CACHE_TTL_S", 60.0)
    acme = client_of("acme")
    slow_plan(acme)
    for expected in (201, 201, 429):
        assert acme.post("/tasks", {"handler": HANDLER}).status == expected
    assert len(redis_client.keys("*refused*")) == 1
    settings.SLACKWATER = {**settings.SLACKWATER, "REDIS_URL": AWAY}
    with CaptureQueriesContext(connection) as queries:
        answer = acme.post("/tasks", {"not even": "valid"})
    assert (answer.status, answer.code) == (429, "limit_exceeded")
    assert len(queries) == 0
    assert 0 < int(answer.headers["Retry-After"]) <= 60
    with pytest.raises(LimitExceeded) as caught:
        refusal_cache.check(acme.tenant, 2)
    assert caught.value.retry_after is not None
    assert 60 < caught.value.retry_after <= 120  # two need a minute more than one


def test_another_submitters_refusal_is_heard_through_redis(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = client_of("acme")
    slow_plan(acme)
    now = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now - 50.0)
        refusal_cache.remember(acme.tenant, LimitExceeded(retry_after=20.0), 1)  # over by now
    assert redis_client.delete(*redis_client.keys("*refused*"))
    refusal_cache.check(acme.tenant, 1)
    redis_client.set(keys().refusal(acme.tenant.pk), refusal_cache._mark(acme.tenant.plan), px=300_000)
    with pytest.raises(LimitExceeded) as caught:
        refusal_cache.check(acme.tenant, 1)
    assert caught.value.retry_after is not None
    assert 40 < caught.value.retry_after < 60.01, "whoever writes to Redis could write any time"
    heard = refusal_cache._remembered.refusals[acme.tenant.pk]
    refusal_cache._keep(acme.tenant.pk, replace(heard, until=now - 1))
    refusal_cache.check(acme.tenant, 1)  # it was heard once: now the ledger is to say so again


def test_a_refusal_ends_with_its_time_and_with_the_plan(redis_client: redis.Redis) -> None:
    acme = client_of("acme")
    slow_plan(acme, burst=1, per_hour=1_200)
    answers = [acme.post("/tasks", {"handler": HANDLER}).status for _ in range(3)]
    assert answers == [201, 429, 429]
    wait_until(lambda: acme.post("/tasks", {"handler": HANDLER}).status == 201)
    slow_plan(acme, burst=3, per_hour=60)
    for _ in range(5):
        acme.post("/tasks", {"handler": HANDLER})
    acme.tenant.plan.burst = 50
    acme.tenant.plan.save()
    wait_until(lambda: acme.post("/tasks", {"handler": HANDLER}).status == 201)


def test_emptying_redis_changes_nothing(redis_client: redis.Redis) -> None:
    acme = client_of("acme")
    slow_plan(acme)
    assert [acme.post("/tasks", {"handler": HANDLER}).status for _ in range(3)] == [201, 201, 429]
    redis_client.flushall()
    assert acme.post("/tasks", {"handler": HANDLER}).status == 429
    forget_lookups()  # another process, that has heard nothing
    assert acme.post("/tasks", {"handler": HANDLER}).status == 429
    assert Task._plain.count() == 2


def test_what_a_callers_transaction_takes_back_was_never_a_refusal() -> None:
    acme = client_of("acme")
    slow_plan(acme)
    with transaction.atomic():
        for _ in range(2):
            service.submit(acme.tenant, {"handler": HANDLER})
        with pytest.raises(LimitExceeded):
            service.submit(acme.tenant, {"handler": HANDLER})
        transaction.set_rollback(True)
    assert service.submit(acme.tenant, {"handler": HANDLER}).created


def test_a_repeat_gets_its_first_answer_though_the_limit_is_reached() -> None:
    acme = client_of("acme")
    slow_plan(acme)
    body = {"handler": HANDLER, "idempotency_key": "one"}
    first = acme.post("/tasks", body)
    assert [acme.post("/tasks", {"handler": HANDLER}).status for _ in range(2)] == [201, 429]
    again = acme.post("/tasks", body)
    assert (again.status, again.body["id"]) == (200, first.body["id"])
    header = acme.post("/tasks", {"handler": HANDLER}, **{"Idempotency-Key": "two"})
    assert header.status == 429


def test_more_at_once_than_the_burst_is_said_to_be_too_large_however_full_it_is() -> None:
    acme = client_of("acme")
    slow_plan(acme)
    for _ in range(3):
        acme.post("/tasks", {"handler": HANDLER})
    with pytest.raises(TooLarge):
        service.submit_many(acme.tenant, [{"handler": HANDLER}] * 3)


def test_limits_tell_where_one_stands() -> None:
    acme = client_of("acme")
    slow_plan(acme)
    assert acme.get("/limits").body["rate"]["available_now"] == 2
    for _ in range(2):
        acme.post("/tasks", {"handler": HANDLER})
    rate = acme.get("/limits").body["rate"]
    assert (rate["per_hour"], rate["burst"], rate["available_now"]) == (60, 2, 0)
    now = timezone.now()
    assert 50 < (datetime.fromisoformat(rate["next_at"]) - now).total_seconds() <= 60
    assert 110 < (datetime.fromisoformat(rate["full_at"]) - now).total_seconds() <= 120
    assert acme.post("/tasks", {"handler": HANDLER}).status == 429
