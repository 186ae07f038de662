"""Submissions gathered at the front: one at once, the others together, each with the answer a view would give."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.middleware.security import SecurityMiddleware

from slackwater_api.http import auth
from slackwater_api.server import group_commit
from slackwater_api.server import response as plain
from slackwater_api.server.application import AsgiApplication
from slackwater_tasks.ledger.connection import connect
from slackwater_tenants.services import create_api_key
from tests.integration.api.test_early_refusals import OWN, Counted, Submission, told
from tests.support.api import HANDLER, ApiClient, client_of
from tests.support.front import nobody, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("furnished", "redis_client")]
TASK = json.dumps({"handler": HANDLER}).encode()
LOCK = "SELECT 1 FROM slackwater_tenants_tenantcounter WHERE tenant_id = %s FOR UPDATE"
BUSY = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def acme() -> ApiClient:
    """A tenant's client."""
    return client_of("acme")


@contextmanager
def held(tenant_id: int) -> Iterator[psycopg.Connection[Any]]:
    """The tenant's counters are locked by somebody else: nobody can store a task of its own."""
    with connect() as conn, conn.transaction():
        conn.execute(LOCK, (tenant_id,))
        yield conn


def asked(query: str) -> Any:
    """The first column of the first row, asked on a connection of its own."""
    with connect() as conn:
        row = conn.execute(query).fetchone()
    assert row is not None
    return row[0]


def stored() -> tuple[int, int, int]:
    """Live tasks, the transactions that stored them, and what the counters say."""
    return (
        asked("SELECT count(*) FROM slackwater_tasks_livetask"),
        asked("SELECT count(DISTINCT xmin::text) FROM slackwater_tasks_livetask"),
        asked("SELECT coalesce(sum(unfinished), 0)::int FROM slackwater_tenants_currentcounter"),
    )


def gathered(front: AsgiApplication) -> int:
    return sum(map(len, front.group_commit._waiting.values()))


async def first_under_way(front: AsgiApplication, key: str) -> asyncio.Task[Any]:
    """A submission that waits for the counters; its key is known by then."""
    job = asyncio.ensure_future(Submission(front, key).run())
    await until(lambda: asked(WAITING) == 1)
    return job


def test_what_comes_meanwhile_is_one_transaction(acme: ApiClient) -> None:
    async def story(front: AsgiApplication) -> None:
        with held(acme.tenant.pk):
            first = await first_under_way(front, acme.text)
            bodies = [TASK] * 40
            bodies[5] = b'{"handler": "demo.echo", "priority": "high"}'
            bodies[6] = b"{ no JSON"
            bodies[7] = bodies[8] = b'{"handler": "demo.echo", "idempotency_key": "one"}'
            visits = [Submission(front, acme.text, body) for body in bodies]
            jobs = [asyncio.ensure_future(visit.run()) for visit in visits]
            await until(lambda: gathered(front) == 40)
        await asyncio.gather(first, *jobs)
        assert first.result().status == 201
        assert Counter(visit.status for visit in visits) == {201: 37, 422: 1, 400: 1, 200: 1}
        assert (visits[5].json["field"], visits[6].json["code"]) == ("priority", "malformed_body")
        assert visits[7].json["task_ids"] == visits[8].json["task_ids"]
        assert len({visit.headers["X-Request-Id"] for visit in visits}) == 40
        assert front.group_commit._waiting == {}

    told(story)
    tasks, transactions, counted = stored()
    assert (tasks, counted) == (38, 38)
    assert transactions < 12, "what is at fault splits them: not one each"


def test_all_good_ones_are_two_transactions(acme: ApiClient) -> None:
    async def story(front: AsgiApplication) -> None:
        with held(acme.tenant.pk):
            first = await first_under_way(front, acme.text)
            jobs = [asyncio.ensure_future(Submission(front, acme.text).run()) for _ in range(60)]
            await until(lambda: gathered(front) == 60)
        assert {visit.status for visit in await asyncio.gather(first, *jobs)} == {201}

    told(story)
    assert stored() == (61, 2, 61)


def test_one_that_finds_nobody_goes_at_once_and_other_tenants_wait_for_nobody(acme: ApiClient) -> None:
    other = client_of("other")

    async def story(front: AsgiApplication) -> None:
        with held(acme.tenant.pk):
            job = await first_under_way(front, acme.text)
            for _ in range(3):
                assert (await Submission(front, other.text).run()).status == 201
            assert not job.done()
        assert (await job).status == 201

    told(story)
    assert stored() == (4, 4, 4)


def test_what_comes_meanwhile_of_several_tenants_goes_together(
    acme: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "PATIENCE_S", 2.0)
    others = [client_of(f"other{n}") for n in range(3)]

    async def story(front: AsgiApplication) -> None:
        for client in others:
            assert (await Submission(front, client.text).run()).status == 201
        gate = front.group_commit
        gate._flight = flight = object()  # as if one were under way
        visits = [Submission(front, client.text) for client in others for _ in range(2)]
        jobs = [asyncio.ensure_future(visit.run()) for visit in visits]
        await until(lambda: all(job.done() for job in jobs))
        assert gate._flight is not flight, "they wait for it a moment only"
        assert [visit.status for visit in visits] == [201] * 6
        assert all("RateLimit" in visit.headers for visit in visits)
        assert (gate._waiting, gate._next) == ({}, [])

    told(story)
    assert stored() == (9, 4, 9)


async def both(front: AsgiApplication, *clients: ApiClient) -> None:
    """One task of each client, stored together however slow the loop is."""
    gate = front.group_commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "PATIENCE_S", 60.0)
        gate._flight = object()  # as if one were under way
        visits = [Submission(front, client.text) for client in clients]
        jobs = [asyncio.ensure_future(visit.run()) for visit in visits]
        await until(lambda: len(gate._next) == len(clients))
    gate._end_patience()
    gate._overtake()
    await asyncio.gather(*jobs)
    assert [visit.status for visit in visits] == [201] * len(clients)


def test_those_who_were_answered_together_are_waited_for(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "RETURN_S", 60.0)
    other = client_of("other")

    async def story(front: AsgiApplication) -> None:
        await both(front, acme, other)
        for _ in range(3):
            first = asyncio.ensure_future(Submission(front, acme.text).run())
            await until(lambda: len(front.group_commit._next) == 1)
            assert (await Submission(front, other.text).run()).status == (await first).status == 201

    told(story)
    assert stored() == (8, 4, 8)


def test_after_waits_in_vain_fewer_are_made(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "RETURN_S", 0.2)
    other = client_of("other")
    waits: list[int] = []

    async def story(front: AsgiApplication) -> None:
        gate = front.group_commit
        wait_for = gate._wait_for

        def noted(count: int) -> None:
            wait_for(count)
            if count == 2:
                waits.append(gate._awaited)

        monkeypatch.setattr(gate, "_wait_for", noted)
        for _ in range(8):
            await both(front, acme, other)
            await until(lambda: gate._awaited == 0)
            assert (await Submission(front, acme.text).run()).status == 201, "a lone one waits for nobody"

    told(story)
    assert waits == [2, 0, 2, 0, 0, 0, 2, 0]
    assert stored() == (24, 16, 24)


def test_keys_of_one_tenant_go_together_once_they_are_known(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "CACHE_TTL_S", 60.0)
    second = create_api_key(acme.tenant, "second", ("submit",))[1]
    reader = create_api_key(acme.tenant, "reader", ("read",))[1]

    async def story(front: AsgiApplication) -> None:
        for key, status in ((acme.text, 201), (second, 201), (reader, 403)):
            assert (await Submission(front, key).run()).status == status
        with held(acme.tenant.pk):
            first = await first_under_way(front, acme.text)
            keys = [acme.text, second, reader] * 5
            jobs = [asyncio.ensure_future(Submission(front, key).run()) for key in keys]
            await until(lambda: gathered(front) == 15)
            assert front.group_commit._waiting.keys() == {acme.tenant.pk}
        visits = await asyncio.gather(first, *jobs)
        assert [visit.status for visit in visits[1:]] == [201, 201, 403] * 5
        assert visits[3].json["code"] == "not_permitted"

    told(story)
    assert stored() == (13, 4, 13)
    actors = asked("SELECT array_agg(DISTINCT submitted_by) FROM slackwater_tasks_task")
    assert len(actors) == 2, "history names each by its own key"


def test_who_leaves_takes_nobody_along(acme: ApiClient) -> None:
    async def story(front: AsgiApplication) -> None:
        with held(acme.tenant.pk):
            first = await first_under_way(front, acme.text)
            jobs = [asyncio.ensure_future(Submission(front, acme.text).run()) for _ in range(5)]
            await until(lambda: gathered(front) == 5)
            first.cancel()
            jobs[2].cancel()
        found = await asyncio.gather(*jobs, return_exceptions=True)
        assert [getattr(visit, "status", None) for visit in found] == [201, 201, None, 201, 201]

    told(story)
    assert stored() == (6, 2, 6)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (TASK, {}),
        (TASK, {"content_type": "application/json; charset=utf-8"}),
        (TASK, {"x_request_id": "mine"}),
        (TASK, {"idempotency_key": "one"}),
        (TASK, {"idempotency_key": ""}),
        (b'{"handler": "demo.echo", "tier": "none"}', {}),
        (b'{"handler": "demo.echo", "args": ["\\u0000"]}', {}),
        (b"{", {}),
        (b"{} {}", {}),
        (b"{}", {}),
        (TASK, {"authorization": "Bearer nonsense"}),
        (TASK, {"authorization": "Basic abc"}),
    ],
)
def test_the_answer_is_a_views(acme: ApiClient, body: bytes, headers: dict[str, str]) -> None:
    async def story(front: AsgiApplication) -> None:
        counted = Counted(front)
        here = Submission(front, acme.text, body, **headers)
        await here.run()
        assert counted.views == 0
        again = {name: value.replace("one", "two") for name, value in headers.items()}
        there = Submission(front, acme.text, body, **again)
        response = await front.threads.run(_by_view, front, there._scope, body)
        assert (here.status, here.json.keys()) == (response.status_code, json.loads(response.content).keys())
        mine = {name.lower(): value for name, value in here.headers.items()}
        if headers.get("idempotency_key"):
            repeat = Submission(front, acme.text, body, **headers)
            await repeat.run()
            assert (repeat.status, repeat.json) == (here.status, here.json)
        its = {name.lower(): value for name, value in response.items()}
        added = {"content-security-policy", "server-timing", "content-length", "connection"}
        assert mine.keys() - added == its.keys() - added
        shared = mine.keys() & its.keys() - OWN - {"location"}
        assert {name: mine[name] for name in shared} == {name: its[name] for name in shared}
        if here.status >= 400:
            told_here, told_there = here.json, json.loads(response.content)
            assert {**told_here, "request_id": ""} == {**told_there, "request_id": ""}

    told(story)


def _by_view(front: AsgiApplication, scope: Any, body: bytes) -> Any:
    return front.handler.answer(scope, io.BytesIO(body))


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/api/v1/tasks", json.dumps([{"handler": HANDLER}] * 3).encode(), {}, 201),
        ("/api/v1/tasks", b'{"handler": "demo.echo", "depends_on": ["a"]}', {}, 422),
        ("/api/v1/tasks", b'{"handler": "demo.echo", "args": ["' + b"x" * 70_000 + b'"]}', {}, 201),
        ("/api/v1/tasks", TASK, {"content_type": "text/plain"}, 415),
        ("/api/v1/tasks", b"", {}, 400),
        ("/api/v1/tasks", b"3", {}, 422),
        ("/api/v1/tasks?colour=red", TASK, {}, 422),
        ("/api/v1/workflows", b'{"name": "w", "tasks": [{"handler": "demo.echo", "name": "a"}]}', {}, 201),
    ],
)
def test_what_is_not_usual_goes_to_its_view(
    acme: ApiClient, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    async def story(front: AsgiApplication) -> None:
        counted = Counted(front)
        visit = Submission(front, acme.text, body, **headers)
        visit._scope["path"], _, query = path.partition("?")
        visit._scope["query_string"] = query.encode()
        await visit.run()
        assert (visit.status, counted.views) == (status, 1), visit.body

    told(story)


def test_what_belongs_to_a_trace_goes_to_its_view(acme: ApiClient, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "TRACE_ENDPOINT": "http://127.0.0.1:1"}
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def story(front: AsgiApplication) -> None:
        counted = Counted(front)
        assert (await Submission(front, acme.text).run()).status == 201
        assert counted.views == 0
        assert (await Submission(front, acme.text, traceparent=parent).run()).status == 201
        assert counted.views == 1

    told(story)
    assert asked("SELECT array_agg(trace_id) FROM slackwater_tasks_tasktrace") == ["0af7651916cd43dd8448eb211c80319c"]


def test_what_is_sent_on_to_https_is_not_stored(
    acme: ApiClient, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["*"]
    monkeypatch.setattr(plain, "_security", SecurityMiddleware(plain._none))

    async def story(front: AsgiApplication) -> None:
        visit = Submission(front, acme.text)
        await visit.run()
        assert (visit.status, visit.headers["Location"]) == (301, "https://localhost/api/v1/tasks")

    told(story)
    assert stored() == (0, 0, 0)


def test_only_what_goes_over_tls_asks_for_tls_from_then_on(
    acme: ApiClient, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECURE_HSTS_SECONDS = 60
    monkeypatch.setattr(plain, "_security", SecurityMiddleware(plain._none))

    async def story(front: AsgiApplication) -> None:
        for scheme, asks in (("http", None), ("https", "max-age=60"), ("http", None)):
            visit = Submission(front, acme.text)
            visit._scope["scheme"] = scheme
            await visit.run()
            assert (visit.status, visit.headers.get("Strict-Transport-Security")) == (201, asks)
            assert (visit.headers["X-Content-Type-Options"], visit.headers["Cache-Control"]) == ("nosniff", "no-store")

    told(story)


def test_behind_a_proxy_its_header_tells_of_tls(
    acme: ApiClient, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SECURE_HSTS_SECONDS = 60
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    monkeypatch.setattr(plain, "_security", SecurityMiddleware(plain._none))

    async def story(front: AsgiApplication) -> None:
        for scheme, header in (("https", "max-age=60"), ("http", None), ("https", "max-age=60")):
            visit = await Submission(front, acme.text, x_forwarded_proto=scheme).run()
            assert (visit.status, visit.headers.get("Strict-Transport-Security")) == (201, header)

    told(story)


def test_what_comes_while_the_server_ends_is_not_stored_and_waits_for_nothing(acme: ApiClient) -> None:
    async def story(_: AsgiApplication) -> None:
        ending = AsgiApplication(nobody)
        assert (await Submission(ending, acme.text).run()).status == 201  # its key is known from now on
        await asyncio.to_thread(ending.close)
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(Submission(ending, acme.text).run(), 20)
        assert ending.group_commit._waiting == {}

    told(story)
    assert stored()[0] == 1
