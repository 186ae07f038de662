"""The rate over several submitters, exact with and without Redis; its refusals; what was used, and its price."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scheduler_ext.core.errors import LimitExceeded, TooLarge
from scheduler_ext.core.states import Outcome
from slackwater_monitoring import usage
from slackwater_monitoring.models import Usage
from slackwater_resources.models import Tier
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.ledger.hints import keys
from slackwater_tasks.models import Attempt, Task
from slackwater_tasks.submission import refusal_cache, service
from slackwater_tenants.services import create_api_key, create_tenant
from tests.support.api import HANDLER, ApiClient, client_of, forget_lookups, furnish
from tests.support.hand_worker import HandWorker
from tests.support.processes import running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT = 100
AWAY = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _furnished(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_lookups()
    furnish()
    monkeypatch.setattr(refusal_cache, "TIMEOUT_S", 10.0)
    monkeypatch.setattr(refusal_cache._remembered, "_clients", {})


def slow_plan(client: ApiClient, *, burst: int = 2, per_hour: int = 60) -> None:
    plan = client.tenant.plan
    plan.burst, plan.tasks_per_hour = burst, per_hour
    plan.save()
    forget_lookups()


# -- several submitters -----------------------------------------------------------------------------------------------
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_up(port: int) -> bool:
    try:
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        asked.request("GET", "/readyz")
        return asked.getresponse().status == 200
    except OSError:
        return False
    finally:
        asked.close()


@pytest.fixture
def submitters(database_url: str, tmp_path: Path, request: Any) -> Iterator[list[int]]:
    """Four servers as they run in production, on ports of their own."""
    url = AWAY if request.param == "without Redis" else request.getfixturevalue("redis_url")
    env = {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_REDIS_URL": url,
        "SLACKWATER_VAR": str(tmp_path / "var"),
        "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": "platform:apps:.",
    }
    ports = [free_port() for _ in range(4)]
    with contextlib.ExitStack() as servers:
        for port in ports:
            command = [sys.executable, "-m", "granian", "--interface", "asgi", "--port", str(port), "--no-ws"]
            servers.enter_context(running([*command, "slackwater.asgi:application"], env=env, name=f"api{port}"))
        for port in ports:
            wait_until(lambda port=port: is_up(port), timeout=60, message=f"port {port} answers")  # type: ignore[misc]
        yield ports


class Client:
    """One client with a connection of its own."""

    def __init__(self, port: int, key: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.last: dict[str, str] = {}
        self.body: Any = None

    def submit(self, task: Any = None) -> tuple[int, float]:
        """Submit a task: the status, and how many seconds it took."""
        began = time.perf_counter()
        text = json.dumps(task or {"handler": HANDLER})
        self.connection.request("POST", "/api/v1/tasks", text, self.headers)
        response = self.connection.getresponse()
        self.body = json.loads(response.read())
        took = time.perf_counter() - began
        self.last = {name.lower(): value for name, value in response.getheaders()}
        return response.status, took


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
    monkeypatch.setattr("slackwater_api.http.auth.REMEMBER_S", 60.0)
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
    assert 200 < caught.value.retry_after < 300.01


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


# -- usage ------------------------------------------------------------------------------------------------------------
def add_up() -> int:
    with connect() as conn, conn.transaction():
        return usage.add_up(conn)


def settle() -> None:
    """Until all attempts are in: they wait for every transaction before them, also of others on the same server."""
    newest = number("SELECT coalesce(max(id), 0) FROM slackwater_tasks_attempt")

    def all_in() -> bool:
        add_up()
        return number("SELECT coalesce(max(done), 0) FROM slackwater_monitoring_usagemark") >= newest

    wait_until(all_in, timeout=120, message="all attempts are added up")


def number(query: str) -> int:
    """Asked on a connection of its own, which threads do not leave behind."""
    with connect() as conn:
        row = conn.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def test_attempts_are_added_up_by_day_tier_and_category_and_priced() -> None:
    acme, other = client_of("acme"), client_of("other")
    plan = acme.tenant.plan
    plan.price_micros_per_attempt = 5
    plan.price_permille = {**plan.price_permille, "offpeak": 500}
    plan.save()
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
