"""Refusals at the door: answered as a view answers them, and never where a view might say something else."""

from __future__ import annotations

import asyncio
import io
import json
import time
from typing import Any, cast

import pytest
import redis
from django.db import connections

from slackwater_api.http.auth import remembered
from slackwater_api.server import submission
from slackwater_api.server.application import AsgiApplication
from slackwater_tasks.submission import refusal_cache
from tests.support.api import HANDLER, ApiClient, client_of, furnish
from tests.support.front import Visit, drive

pytestmark = pytest.mark.django_db(transaction=True)
TASK = json.dumps({"handler": HANDLER}).encode()
OWN = {"x-request-id", "server-timing", "retry-after", "ratelimit", "content-length"}
"""Headers that differ from answer to answer."""


class Submission(Visit):
    """A submission, and the headers of its answer."""

    def __init__(self, front: AsgiApplication, key: str, body: bytes = TASK, **headers: str) -> None:
        super().__init__(front, key, "POST", "/api/v1/tasks", body)
        given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        names = {name for name, _ in given}
        held: Any = self._scope["headers"]
        self._scope["headers"] = [*(header for header in held if header[0] not in names), *given]
        self.headers: dict[str, str] = {}

    async def _send(self, message: Any) -> None:
        for name, value in message.get("headers", ()):
            self.headers[name.decode()] = value.decode()
        await super()._send(message)


@pytest.fixture
def acme(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> ApiClient:
    """A tenant that may submit two tasks in an hour."""
    furnish()
    monkeypatch.setattr("slackwater_api.http.auth.CACHE_TTL_S", 60.0)
    made = client_of("acme")
    plan = made.tenant.plan
    plan.burst, plan.tasks_per_hour = 2, 2
    plan.save()
    return made


def told(story: Any) -> None:
    drive(story)
    connections.close_all()


async def used_up(front: AsgiApplication, acme: ApiClient, first: bytes = TASK) -> Submission:
    """Submit until a view has refused one; returns that."""
    statuses = []
    for body in (first, TASK, TASK):
        visit = Submission(front, acme.text, body)
        await visit.run()
        statuses.append(visit.status)
    assert statuses == [201, 201, 429]
    return visit


class Counted:
    """Counts what reaches a view."""

    def __init__(self, front: AsgiApplication) -> None:
        self.views = 0
        answer = front.handler.answer

        def noted(*args: Any, **more: Any) -> Any:
            self.views += 1
            return answer(*args, **more)

        front.handler.answer = noted  # type: ignore[method-assign]


def test_it_is_the_answer_of_the_view_without_the_view(acme: ApiClient) -> None:
    async def story(front: AsgiApplication) -> None:
        late = await used_up(front, acme)
        counted = Counted(front)
        soon = Submission(front, acme.text, b" \n{ no JSON at all", x_request_id="mine")
        await soon.run()
        assert counted.views == 0
        assert (soon.status, soon.json["code"], soon.json["detail"]) == (
            429,
            "limit_exceeded",
            "Limit exceeded",
        )
        assert soon.json["request_id"] == soon.headers["X-Request-Id"] == "mine"
        assert soon.json.keys() == late.json.keys()
        assert soon.headers.keys() == late.headers.keys()
        shared = {name for name in soon.headers if name.lower() not in OWN}
        assert {name: soon.headers[name] for name in shared} == {name: late.headers[name] for name in shared}
        assert 1700 < int(soon.headers["Retry-After"]) <= 1800
        assert float(soon.headers["Server-Timing"].removeprefix("app;dur=")) >= 0

    told(story)


@pytest.mark.parametrize(
    ("body", "headers", "repeated"),
    [
        (b'{"handler": "demo.echo", "idempotency_key": "one"}', {}, 200),
        (b'{"handler": "demo.echo", "idempotency\\u005fkey": "one"}', {}, 200),
        (TASK, {"idempotency_key": "one"}, 201),
    ],
)  # fmt: skip
def test_a_repeat_gets_its_first_answer(acme: ApiClient, body: bytes, headers: dict[str, str], repeated: int) -> None:
    async def story(front: AsgiApplication) -> None:
        first = Submission(front, acme.text, body, **headers)
        await first.run()
        assert (await Submission(front, acme.text).run()).status == 201
        assert (await Submission(front, acme.text).run()).status == 429
        again = Submission(front, acme.text, body, **headers)
        await again.run()
        assert (first.status, again.status) == (201, repeated)
        assert again.json["id"] == first.json["id"]

    told(story)


def test_what_a_view_answers_otherwise_is_left_to_it(acme: ApiClient) -> None:
    from slackwater_tenants.services import create_api_key

    reader = create_api_key(acme.tenant, "reader", ("read",))[1]

    async def story(front: AsgiApplication) -> None:
        await used_up(front, acme)
        for key, body, headers, status in [
            (acme.text, TASK, {"content_type": "text/plain"}, 415),
            (acme.text, json.dumps([{"handler": HANDLER}] * 3).encode(), {}, 413),
            (reader, TASK, {}, 403),
            (reader, TASK, {}, 403),  # and now that the key is remembered
            ("nonsense", TASK, {}, 401),
        ]:
            visit = Submission(front, key, body, **headers)
            await visit.run()
            assert visit.status == status, visit.body
        listed = await Visit(front, acme.text, "GET", "/api/v1/tasks").run()
        assert (listed.status, len(listed.json["items"])) == (200, 2)

    told(story)


def test_it_ends_with_its_time_and_with_the_plan(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def widen() -> None:
        acme.tenant.plan.burst = 50
        acme.tenant.plan.save()
        connections.close_all()

    async def story(front: AsgiApplication) -> None:
        await used_up(front, acme)
        assert refusal_cache.known(acme.tenant) is not None
        now = time.monotonic()
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: now + 1_801)
            assert refusal_cache.known(acme.tenant) is None
        await asyncio.to_thread(widen)
        assert refusal_cache.known(acme.tenant) is None

        assert (await Submission(front, acme.text).run()).status == 429
        remembered.forget()  # as after a second: the key is read anew
        assert (await Submission(front, acme.text).run()).status == 201

    told(story)


def test_one_that_waits_for_a_thread_is_told_when_another_was_refused(acme: ApiClient) -> None:
    """What is queued when the limit is reached does not go through the view any more."""

    async def story(front: AsgiApplication) -> None:
        await used_up(front, acme)
        refusal_cache.forget()
        counted = Counted(front)
        scope, body = Submission(front, acme.text)._scope, io.BytesIO(TASK)
        headers = dict(cast("list[tuple[bytes, bytes]]", scope["headers"]))
        task = submission.read(scope, headers, body)
        first = await front.threads.run(front._by_view, scope, headers, body, task)
        second = await front.threads.run(front._by_view, scope, headers, body, task)
        assert (first.status_code, second.status_code, counted.views) == (429, 429, 1)

    told(story)
