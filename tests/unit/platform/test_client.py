"""The client without a server: when it asks again, what its errors hold, how it goes on with a stream, what it hides."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import pickle
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest
from django.http.request import HttpHeaders

import slackwater
from scheduler_ext.core.errors import ConfigurationError
from slackwater.client import ApiError, AsyncClient, BadSignature, Client, Unreachable, verify
from slackwater.client.exchange import Retries

TASK = "01990000-0000-7000-8000-000000000001"
KEY = "sw_abc.very-secret"
Reply = httpx.Response | Exception


class Server:
    """Gives its replies one after another, and keeps what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def client(self, **options: Any) -> Client:
        return Client("http://sw.example/api/v1/", KEY, transport=httpx.MockTransport(self), **options)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses a client makes, which take no time here."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("slackwater.client.clients.time.sleep", found.append)
    monkeypatch.setattr("slackwater.client.clients.asyncio.sleep", sleep)
    return found


def problem(status: int, **more: Any) -> httpx.Response:
    return httpx.Response(status, json={"title": "No", "status": status, "detail": "no", **more})


def made() -> httpx.Response:
    return httpx.Response(201, json={"id": TASK, "task_ids": [TASK], "created": True})


def refused(kind: type[Exception], call: Callable[[], Any]) -> Any:
    with pytest.raises(kind) as caught:
        call()
    return caught.value


def test_a_change_is_asked_again_with_the_same_key_and_not_before_it_may(pauses: list[float]) -> None:
    server = Server(
        httpx.ConnectError("away"), problem(429, code="limit_exceeded", retry_after_s=3), problem(503, code="unavailable"),
        httpx.Response(504, text="<html>gateway"), made(),
    )  # fmt: skip
    assert server.client().submit("demo.add", args=[1, 2], priority=3)["id"] == TASK
    assert len({request.headers["Idempotency-Key"] for request in server.asked}) == 1
    assert json.loads(server.asked[-1].content) == {"handler": "demo.add", "args": [1, 2], "priority": 3}
    assert server.asked[0].url == "http://sw.example/api/v1/tasks"
    assert len(pauses) == 4
    assert 3 <= pauses[1] <= 3.3
    assert 0.125 <= pauses[0] <= 0.25
    assert 0.5 <= pauses[2] <= 1
    assert Server(made()).client().submit("x", idempotency_key="mine")["created"]


def test_what_another_try_would_not_mend_is_told_at_once(pauses: list[float]) -> None:
    for reply in (problem(429, retry_after_s=3_600), problem(422, code="invalid_input"), problem(500, code="internal")):
        refused(ApiError, lambda reply=reply: Server(reply).client().get(TASK))  # type: ignore[misc]
    assert pauses == []
    server = Server(*[httpx.ReadTimeout("slow") for _ in range(5)])
    error = refused(Unreachable, lambda: server.client().get(TASK))
    assert (len(server.asked), len(pauses)) == (5, 4)
    assert isinstance(error.__cause__, httpx.ReadTimeout)
    assert Retries(most=0).pause(1, Unreachable()) is None


def test_an_error_holds_the_whole_problem_and_is_the_platforms_own_kind() -> None:
    patch = [{"op": "move", "from": "/agrs", "path": "/args"}]
    faults = [{"code": "invalid_input", "field": "agrs", "detail": "no such field", "suggestion": patch}]
    body = {"code": "dependency_cycle", "field": "tasks[3]", "errors": faults, "suggestion": patch, "cycle": ["a", "b"]}
    error = refused(slackwater.InvalidInput, lambda: Server(problem(422, **body, request_id="r1")).client().get(TASK))
    assert isinstance(error, slackwater.client.DependencyCycle)
    assert (error.status, error.code, error.field, error.request_id) == (422, "dependency_cycle", "tasks[3]", "r1")
    assert (error.errors, error.suggestion, error.problem["cycle"]) == (faults, patch, ["a", "b"])
    assert str(error) == "tasks[3]: no"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.problem, str(again)) == (type(error), error.problem, str(error))
    limit = refused(slackwater.client.LimitExceeded, lambda: Server(problem(429, code="quota_exceeded", retry_after_s=7))
                    .client(retries=0).get(TASK))  # fmt: skip
    assert (limit.retry_after_s, limit.code) == (7, "quota_exceeded")
    new = refused(ApiError, lambda: Server(problem(418, code="of_tomorrow")).client().get(TASK))
    assert (new.code, new.status) == ("of_tomorrow", 418)
    page = refused(ApiError, lambda: Server(httpx.Response(200, text="<html>hello")).client().get(TASK))
    assert "no JSON" in str(page)
    assert refused(ApiError, lambda: Server(httpx.Response(302)).client().get(TASK)).status == 302


def test_waiting_asks_until_the_end_and_failure_is_an_error(pauses: list[float]) -> None:
    running = {"id": TASK, "status": "in_progress", "state": "running"}
    done = {**running, "status": "done", "state": "succeeded", "result": 5}
    server = Server(made(), httpx.Response(200, json=running), httpx.Response(200, json=done))
    assert server.client().run("demo.add", args=[2, 3]) == 5
    assert server.asked[1].url.params["wait"] == "25.0"
    failed = {**running, "status": "failed", "state": "failed", "error": "ValueError: no"}
    error = refused(slackwater.TaskFailed, lambda: Server(httpx.Response(200, json=failed)).client().result(TASK))
    assert "ValueError: no" in str(error)
    assert pickle.loads(pickle.dumps(error)).task == failed
    assert isinstance(refused(slackwater.TimedOut, lambda: Server(httpx.Response(200, json=running)).client()
                              .wait(TASK, timeout_s=0)), TimeoutError)  # fmt: skip


def test_a_list_is_read_page_by_page_as_one_goes_through_it() -> None:
    def pages() -> list[Reply]:
        return [
            httpx.Response(200, json={"items": [{"id": f"t{n}"}, {"id": f"t{n + 1}"}], "next_cursor": more})
            for n, more in ((1, "c1"), (3, None))
        ]

    server = Server(*pages())
    rows = server.client().tasks(state=["ready", "queued"], submitted_after=datetime.fromisoformat("2030-01-01T00:00Z"))
    assert server.asked == []
    assert next(rows)["id"] == "t1"
    assert len(server.asked) == 1
    assert [row["id"] for row in rows] == ["t2", "t3", "t4"]
    assert dict(server.asked[1].url.params) == {
        "state": "ready,queued", "submitted_after": "2030-01-01T00:00:00+00:00", "limit": "200", "cursor": "c1",
    }  # fmt: skip

    assert asyncio.run(_awaited(pages())) == ["t1", "t2", "t3", "t4"]


async def _awaited(pages: list[Reply]) -> list[Any]:
    async with AsyncClient("http://sw.example", KEY, transport=httpx.MockTransport(Server(*pages))) as client:
        return [row["id"] async for row in client.tasks()]


def told(*events: str) -> bytes:
    return b"retry: 2000\n\n" + "".join(f"{event}\n\n" for event in events).encode()


class Cut(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that comes in small pieces and then breaks off."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self.content), 7):
            yield self.content[start : start + 7]
        raise httpx.ReadError("cut")

    async def __aiter__(self) -> Any:
        for start in range(0, len(self.content), 7):
            yield self.content[start : start + 7]
        raise httpx.ReadError("cut")


def conversation() -> Server:
    """A stream that is cut, refused for a while, closed, and comes to its end."""
    first, second = 'id: 1.1\nevent: line\ndata: {"text": "ein"}', 'id: 1.2\nevent: line\r\ndata: {"text": "zwei"}'
    return Server(
        httpx.Response(200, stream=Cut(told(": beat", first) + b'id: 1.2\nevent: line\ndata: {"te')),
        httpx.ConnectError("restarting"), problem(503, retry_after_s=4), httpx.Response(200, content=told(second)),
        httpx.Response(200, content=told(": beat")), httpx.Response(200, content=told('event: end\ndata: {}')),
    )  # fmt: skip


def test_a_stream_goes_on_where_it_was_cut_and_ends_with_the_task(pauses: list[float]) -> None:
    server = conversation()
    assert [line["text"] for line in server.client().follow_logs(TASK, level="info")] == ["ein", "zwei"]
    assert [request.headers.get("Last-Event-ID") for request in server.asked] == [
        None,
        "1.1",
        "1.1",
        "1.1",
        "1.2",
        "1.2",
    ]
    assert (server.asked[0].url.params["level"], pauses[2] >= 4, pauses[3:]) == ("info", True, [0.0, 2.0])

    async def awaited() -> list[str]:
        server = conversation()
        async with AsyncClient("http://sw.example", KEY, transport=httpx.MockTransport(server)) as client:
            return [line["text"] async for line in client.follow_logs(TASK, after="1.0")]

    assert asyncio.run(awaited()) == ["ein", "zwei"]
    ended = Server(httpx.Response(200, content=told("id: 9\nevent: open\ndata: {}")), httpx.Response(204))
    assert [event.kind for event in ended.client().events()] == ["open"]
    away = Server(*[httpx.ConnectError("away")] * 1000)
    refused(Unreachable, lambda: list(away.client().events()))
    assert 300 < sum(pauses) < 700
    refused(slackwater.NotFound, lambda: list(Server(problem(404, code="not_found")).client().events(task_id=TASK)))


def test_the_key_is_shown_nowhere_and_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    client = Server(problem(401, code="not_authenticated")).client()
    error = refused(slackwater.client.NotAuthenticated, lambda: client.get(TASK))
    assert KEY not in repr(client) + repr(error) + str(error) + caplog.text
    assert repr(client) == "<Client http://sw.example>"
    refused(TypeError, lambda: pickle.dumps(client))
    for name in ("SLACKWATER_URL", "SLACKWATER_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert "SLACKWATER_URL" in str(refused(ConfigurationError, Client))
    assert "SLACKWATER_KEY" in str(refused(ConfigurationError, lambda: Client("https://sw.example")))
    refused(ConfigurationError, lambda: Client("https://user:secret@sw.example", KEY))
    refused(ConfigurationError, lambda: Client("sw.example", KEY))
    refused(TypeError, lambda: Server().client().submit("x", args=[datetime(2030, 1, 1)]))  # noqa: DTZ001 - that is it


def test_a_webhook_is_checked_by_any_of_its_secrets_and_its_age() -> None:
    secret, other = (f"whsec_{base64.b64encode(word * 8).decode()}" for word in (b"abcd", b"efgh"))
    body = b'{"type": "task.failed", "data": {}}'
    mine = base64.b64encode(hmac.digest(b"abcd" * 8, b"m1.1000." + body, hashlib.sha256)).decode()
    headers = {"Webhook-Id": "m1", "webhook-timestamp": "1000", "webhook-signature": f"v1,AAAA v1,{mine}"}
    assert verify(headers, body, other, secret, now=1100)["type"] == "task.failed"
    for wrong in (
        lambda: verify(headers, body + b" ", secret, now=1100),
        lambda: verify(headers, body, other, now=1100),
        lambda: verify(headers, body, secret, now=1400),
        lambda: verify({}, body, secret),
    ):
        refused(BadSignature, wrong)


SECRET = f"whsec_{base64.b64encode(b'abcd' * 8).decode()}"
BODY = b'{"type": "task.failed", "data": {}}'


def sent(body: bytes = BODY, timestamp: str = "1000", number: str = "m1") -> dict[str, str]:
    """The headers of a message that the platform has signed."""
    mine = hmac.digest(b"abcd" * 8, f"{number}.{timestamp}.".encode() + body, hashlib.sha256)
    signature = f"v1,{base64.b64encode(mine).decode()}"
    return {"webhook-id": number, "webhook-timestamp": timestamp, "webhook-signature": signature}


@pytest.mark.parametrize(
    "headers",
    [
        httpx.Headers(sent()),
        HttpHeaders({f"HTTP_{name.upper().replace('-', '_')}": value for name, value in sent().items()}),
        {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in sent().items()} | {"wsgi.input": object()},
        [(name.encode(), value.encode()) for name, value in sent().items()],
        {name.encode(): value.encode() for name, value in sent().items()},
        list(sent().items()),
    ],
    ids=["mapping", "Django's headers", "META", "ASGI scope", "bytes", "pairs"],
)
def test_a_webhook_is_checked_with_the_headers_of_any_framework(headers: Any) -> None:
    assert verify(headers, BODY, SECRET, now=1100)["type"] == "task.failed"


@pytest.mark.parametrize("secret", ["x", "", "whsec_", "whsec_é", None, [SECRET], SECRET.encode()])
def test_a_secret_that_is_none_is_the_receivers_own_fault(secret: Any) -> None:
    error = refused(ConfigurationError, lambda: verify(sent(), BODY, SECRET, secret, now=1100))
    assert error.field == "secrets[1]"


def test_a_webhook_needs_a_secret() -> None:
    assert refused(ConfigurationError, lambda: verify(sent(), BODY, now=1100)).field == "secrets"


@pytest.mark.parametrize(
    ("headers", "body", "field"),
    [
        (sent(timestamp="abc"), BODY, "webhook-timestamp"),
        (sent(timestamp="9" * 400), BODY, "webhook-timestamp"),
        (sent() | {"webhook-id": ""}, BODY, "webhook-id"),
        (sent() | {"webhook-signature": "v1,\udce9"}, BODY, "webhook-signature"),
        (sent(b"no JSON"), b"no JSON", "body"),
        (sent(b"\xff"), b"\xff", "body"),
        (sent(b"[]"), b"[]", "body"),
        (sent(b"[" * 100_000), b"[" * 100_000, "body"),
    ],
)
def test_what_is_wrong_with_a_webhook_is_named(headers: Any, body: bytes, field: str) -> None:
    assert refused(BadSignature, lambda: verify(headers, body, SECRET, now=1100)).field == field
