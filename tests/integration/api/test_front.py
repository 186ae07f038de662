"""The ASGI front: waiting without a thread, bodies in pieces, clients that leave, a database that is away."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connections

from scheduler_ext.core.seals import seals
from scheduler_ext.core.states import TaskState
from scheduler_ext.dispatch.change_feed import AT, FIELD, MARK, Reader
from slackwater_api.live.change_feed import Batch, read_batch
from slackwater_api.live.long_poll import ended_in
from slackwater_api.server.application import AsgiApplication
from slackwater_conf import conf
from slackwater_tasks.ledger.hints import tell_changes
from tests.support.api import HANDLER, ApiClient, client_of
from tests.support.front import Visit, drive, finish, until

pytestmark = pytest.mark.django_db(transaction=True)


async def tell(task_id: str) -> None:
    """Publish the end of a task."""
    await asyncio.to_thread(tell_changes, [(task_id, int(TaskState.SUCCEEDED), 1, None)])


def test_a_body_in_pieces_is_one_body(acme: ApiClient) -> None:
    body = json.dumps({"handler": HANDLER, "args": ["ü" * 100]}).encode()

    async def story(front: AsgiApplication) -> None:
        visit = await Visit(front, acme.text, "POST", "/api/v1/tasks", body[:7], body[7:150], body[150:]).run()
        assert visit.status == 201, visit.body
        shown = await Visit(front, acme.text, "GET", f"/api/v1/tasks/{visit.json['id']}").run()
        assert shown.json["args"] == ["ü" * 100]

    drive(story)


def test_each_thread_has_its_connection_before_anybody_asks(acme: ApiClient) -> None:
    async def story(front: AsgiApplication) -> None:
        front.warm()
        count = conf().api_threads
        together = threading.Barrier(count)

        def look() -> tuple[int, bool]:
            together.wait(10)  # so that each thread has one of these
            return threading.get_ident(), connections["default"].connection is not None

        found = await asyncio.gather(*(front.threads.run(look) for _ in range(count)))
        assert len({thread for thread, _ in found}) == count
        assert all(is_open for _, is_open in found)

    drive(story)


def test_other_paths_go_to_the_site(acme: ApiClient) -> None:
    async def story(front: AsgiApplication) -> None:
        visit = await Visit(front, acme.text, "GET", "/healthz").run()
        assert (visit.status, visit.body) == (299, b"site")

    drive(story)


def test_a_body_over_the_limit_is_refused_and_not_kept(acme: ApiClient, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "API_MAX_BODY_BYTES": 1000}

    async def story(front: AsgiApplication) -> None:
        visit = await Visit(front, acme.text, "POST", "/api/v1/tasks", *([b"x" * 500] * 50)).run()
        assert (visit.status, visit.json["code"]) == (413, "too_large")

    drive(story)


def test_who_waits_is_woken_by_the_published_change(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater_api.live.long_poll.POLL_S", 60.0)
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        visit = Visit(front, acme.text, "GET", f"/api/v1/tasks/{task_id}?wait=20")
        waiting = asyncio.create_task(visit.run())
        await until(lambda: len(front.live.waiters) == 1 and front.live.feed.is_connected)
        await front.threads.run(finish, task_id)
        began = time.monotonic()
        await tell(task_id)
        await waiting
        assert time.monotonic() - began < 15  # the next look at the ledger comes later
        assert (visit.status, visit.json["state"], visit.json["result"]) == (200, "succeeded", 42)
        assert len(front.live.waiters) == 0

    drive(story)


def test_who_waits_is_woken_by_the_ledger_when_no_message_comes(acme: ApiClient, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "REDIS_URL": "redis://127.0.0.1:1/0"}
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        visit = Visit(front, acme.text, "GET", f"/api/v1/tasks/{task_id}?wait=60")
        waiting = asyncio.create_task(visit.run())
        await until(lambda: len(front.live.waiters) == 1)
        await asyncio.to_thread(finish, task_id)
        began = time.monotonic()
        await waiting
        assert time.monotonic() - began < 15
        assert visit.json["state"] == "succeeded"

    drive(story)


def test_a_hundred_who_wait_hold_no_thread(acme: ApiClient) -> None:
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        visits = [Visit(front, acme.text, "GET", f"/api/v1/tasks/{task_id}?wait=60") for _ in range(100)]
        waiting = [asyncio.create_task(visit.run()) for visit in visits]
        await until(lambda: len(front.live.waiters) == 100)
        # All eight threads would be taken if any of them waited.
        other = await Visit(front, acme.text, "GET", "/api/v1/tiers").run()
        assert other.status == 200
        await asyncio.to_thread(finish, task_id)
        await tell(task_id)
        await asyncio.gather(*waiting)
        assert {visit.json["state"] for visit in visits} == {"succeeded"}

    drive(story)


def test_the_wait_ends_with_its_time(acme: ApiClient) -> None:
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        began = time.monotonic()
        visit = await Visit(front, acme.text, "GET", f"/api/v1/tasks/{task_id}?wait=0.3").run()
        assert 0.25 < time.monotonic() - began < 20
        assert (visit.status, visit.json["state"]) == (200, "ready")

    drive(story)


def test_a_client_that_leaves_is_waited_for_no_more(acme: ApiClient) -> None:
    task_id = acme.task()

    async def story(front: AsgiApplication) -> None:
        visit = Visit(front, acme.text, "GET", f"/api/v1/tasks/{task_id}?wait=60")
        waiting = asyncio.create_task(visit.run())
        await until(lambda: len(front.live.waiters) == 1)
        visit.left.set()
        await waiting
        await until(lambda: len(front.live.waiters) == 0)
        assert visit.status == 0

    drive(story)


@pytest.mark.parametrize("what", ["key", "tenant", "number"])
def test_who_may_not_wait_is_told_at_once(acme: ApiClient, what: str) -> None:
    task_id = acme.task()
    other = client_of("other")
    key = {"key": "sw_00000000_wrong", "tenant": other.text, "number": acme.text}[what]
    expected = {"key": 401, "tenant": 404, "number": 422}[what]

    async def story(front: AsgiApplication) -> None:
        began = time.monotonic()
        seconds = "soon" if what == "number" else "30"
        visit = await Visit(front, key, "GET", f"/api/v1/tasks/{task_id}?wait={seconds}").run()
        assert visit.status == expected
        assert time.monotonic() - began < 20

    drive(story)


def test_a_broken_connection_is_a_503_and_then_replaced(acme: ApiClient) -> None:
    async def story(front: AsgiApplication) -> None:
        path = "/api/v1/tiers"
        assert (await Visit(front, acme.text, "GET", path).run()).status == 200
        await front.threads.run(break_connection)
        broken = await Visit(front, acme.text, "GET", path).run()
        again = await Visit(front, acme.text, "GET", path).run()
        assert {broken.status, again.status} <= {200, 503}
        assert (await Visit(front, acme.text, "GET", path).run()).status == 200

    django_settings_threads(1, lambda: drive(story))


def break_connection() -> None:
    """End this thread's session from the server's side."""
    connection = connections["default"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    other.close()


def django_settings_threads(threads: int, action: Callable[[], None]) -> None:
    """Do something while a front has this many threads."""
    from django.test import override_settings

    with override_settings(SLACKWATER={**django_settings.SLACKWATER, "API_THREADS": threads}):
        action()


def test_messages_that_are_no_changes_wake_nobody() -> None:
    text = b'[["a", 6, 1, null], ["b", 5, 1, null], ["c", 9, 1, "w"]]'

    def read(data: bytes, mark: str | bytes | None = None, at: bytes = b"1000") -> Batch:
        mark = seals.mark("change", at, data) if mark is None else mark
        fields = {
            FIELD.encode(): data,
            AT.encode(): at,
            MARK.encode(): mark.encode() if isinstance(mark, str) else mark,
        }
        return read_batch(reader, b"1500-0", fields)

    reader = Reader()
    assert ended_in(read(text)) == ["a", "c"]
    assert not read(text).proven, "a second time"
    assert not read(text, at=b"4000").proven, "it was added elsewhere"
    for mark in (
        b"",
        b"work",
        b"\xff",
        b"0" * 32,
        seals.mark("change", b"1000", b""),
        seals.mark("task", b"1000", text),
    ):
        assert ended_in(read(text, mark)) == []
    for wrong in (b"", b"[" * 100_000, b"\xff"):
        assert ended_in(read(wrong, b"0" * 32)) == []
    assert ended_in(read_batch(reader, b"1-0", {})) == []
