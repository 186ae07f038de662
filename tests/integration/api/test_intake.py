"""What the front refuses before it reads a body, and what it does with bodies that are long, slow or many."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest

from slackwater_api.server import application, intake
from slackwater_api.server.application import AsgiApplication
from slackwater_conf import conf
from tests.support.api import HANDLER, ApiClient
from tests.support.front import Visit, drive, until

pytestmark = pytest.mark.django_db(transaction=True)

TASKS = "/api/v1/tasks"
BODY = json.dumps({"handler": HANDLER}).encode()


class Raw(Visit):
    """A request with these headers more, or instead; ``stalls``: its body does not go on after its last piece."""

    def __init__(
        self,
        front: AsgiApplication,
        key: str,
        method: str,
        path: str,
        *chunks: bytes,
        more: Sequence[tuple[bytes, bytes]] = (),
        without: bytes = b"",
        stalls: bool = False,
    ) -> None:
        super().__init__(front, key, method, path, *chunks)
        given: Any = self._scope["headers"]
        self._scope["headers"] = [(name, value) for name, value in given if name != without] + list(more)
        if stalls:
            self._messages[-1]["more_body"] = True
        self.read = 0
        self.headers: dict[str, str] = {}

    async def _receive(self) -> dict[str, Any]:
        self.read += 1
        return await super()._receive()

    async def _send(self, message: Any) -> None:
        for name, value in message.get("headers", ()):
            self.headers[name.decode().lower()] = value.decode()
        await super()._send(message)


ANSWERED_BY = [TASKS, "/api/v1/events", "/api/schema/", "/metrics", "/readyz", "/admin/login/"]


@pytest.mark.parametrize("path", ANSWERED_BY)
@pytest.mark.parametrize("host", [b"evil.example", b"localhost.evil.example", b"", b"local host", b"localhost@evil"])
def test_a_foreign_host_is_refused_on_every_path(acme: ApiClient, settings: Any, path: str, host: bytes) -> None:
    settings.ALLOWED_HOSTS = ["localhost", "[::1]"]

    async def story(front: AsgiApplication) -> None:
        for method in ("GET", "POST"):
            visit = Raw(front, acme.text, method, path, BODY, without=b"host", more=[(b"host", host)])
            await visit.run()
            assert (visit.status, visit.json["code"], visit.read) == (400, "bad_request", 0)
            assert visit.headers["content-type"] == "application/problem+json"
        own = await Raw(front, acme.text, "GET", "/healthz", without=b"host", more=[(b"host", b"[::1]:8000")]).run()
        assert own.status == 299

    drive(story)


@pytest.mark.parametrize("path", ANSWERED_BY)
@pytest.mark.parametrize("name", [b"authorization", b"content-type", b"content-length", b"host", b"transfer-encoding"])
def test_a_header_that_decides_is_sent_once(acme: ApiClient, path: str, name: bytes) -> None:
    async def story(front: AsgiApplication) -> None:
        value = {b"authorization": f"Bearer {acme.text}".encode(), b"host": b"localhost"}.get(name, b"1")
        more = [(name, value)] * (2 if name == b"transfer-encoding" else 1)
        visit = Raw(front, acme.text, "POST", path, BODY, more=more)
        await visit.run()
        assert (visit.status, visit.json["code"], visit.read) == (400, "bad_request", 0)

    drive(story)


def test_more_parameters_than_a_form_has_boxes_are_refused(acme: ApiClient, settings: Any) -> None:
    most = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS

    async def story(front: AsgiApplication) -> None:
        visit = await Raw(front, acme.text, "GET", f"{TASKS}?{'a=1&' * most}a=1").run()
        assert (visit.status, visit.json["code"]) == (400, "bad_request")

    drive(story)
    assert acme.get(f"/tasks?{'a=1&' * (most + 1)}").status == 400


@pytest.mark.parametrize("key", ["", "nonsense", "sw_00000000_wrong"])
def test_a_key_is_judged_before_the_body_is_read(acme: ApiClient, key: str) -> None:
    async def story(front: AsgiApplication) -> None:
        for more in ([(b"content-length", b"30000000")], [(b"transfer-encoding", b"chunked")]):
            visit = Raw(front, key, "POST", TASKS, b"x", without=b"content-length", more=more, stalls=True)
            await visit.run()
            assert (visit.status, visit.json["code"], visit.read) == (401, "not_authenticated", 0)
            assert visit.headers["connection"] == "close"

    drive(story)


def test_an_announced_length_over_the_limit_is_refused_unread(acme: ApiClient) -> None:
    async def story(front: AsgiApplication) -> None:
        length = str(conf().api_max_body_bytes + 1).encode()
        more = [(b"content-length", length)]
        visit = await Raw(front, acme.text, "POST", TASKS, b"x", without=b"content-length", more=more).run()
        assert (visit.status, visit.json["code"], visit.read) == (413, "too_large", 0)

    drive(story)


def test_an_endless_body_is_refused_where_it_passes_the_limit(acme: ApiClient, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "API_MAX_BODY_BYTES": 1000}

    async def story(front: AsgiApplication) -> None:
        more = [(b"transfer-encoding", b"chunked")]
        pieces = [b"x" * 300] * 50
        visit = await Raw(front, acme.text, "POST", TASKS, *pieces, without=b"content-length", more=more).run()
        assert (visit.status, visit.json["code"], visit.read) == (413, "too_large", 4)

    drive(story)


@pytest.mark.parametrize("path", [TASKS, "/admin/login/"])
def test_a_body_that_trickles_is_ended(acme: ApiClient, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(intake, "GRACE_S", 0.2)

    async def story(front: AsgiApplication) -> None:
        front.site = reader
        visit = await Raw(front, acme.text, "POST", path, b"{", stalls=True).run()
        assert (visit.status, visit.json["code"]) == (408, "body_too_slow")
        assert not front.intake.held

    drive(story)


async def reader(scope: Any, receive: Any, send: Any) -> None:
    """A site that reads all there is, like Django's handler, and says nothing to a client that left."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def test_the_site_is_given_no_endless_body(acme: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "SITE_BODY", 1000)

    async def story(front: AsgiApplication) -> None:
        front.site = reader
        small = await Raw(front, "", "POST", "/admin/login/", b"x" * 500, b"x" * 500).run()
        assert small.status == 200
        large = await Raw(front, "", "POST", "/admin/login/", *([b"x" * 500] * 9)).run()
        assert (large.status, large.read) == (413, 3)

    drive(story)


def test_a_body_that_ends_too_early_is_malformed(acme: ApiClient) -> None:
    async def story(front: AsgiApplication) -> None:
        visit = Raw(front, acme.text, "POST", TASKS, b"{", stalls=True)
        visit.left.set()
        await visit.run()
        assert (visit.status, visit.json["code"]) == (400, "malformed_body")

    drive(story)


def test_large_bodies_are_counted_and_bounded(acme: ApiClient, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "API_MAX_BODY_BYTES": 200_000}
    chunk = b"x" * 150_000

    async def story(front: AsgiApplication) -> None:
        visits = [Raw(front, acme.text, "POST", TASKS, chunk, stalls=True) for _ in range(2)]
        waiting = [asyncio.create_task(visit.run()) for visit in visits]
        await until(lambda: front.intake.held["127.0.0.1"] == 300_000)
        third = await Raw(front, acme.text, "POST", TASKS, chunk, stalls=True).run()
        assert (third.status, third.json["code"]) == (503, "unavailable")
        elsewhere = Raw(front, acme.text, "POST", TASKS, chunk)
        elsewhere._scope["client"] = ("10.1.2.3", 1)
        assert (await elsewhere.run()).status == 400  # it was read: it is no JSON
        assert (await Raw(front, acme.text, "POST", TASKS, BODY).run()).status == 201
        for visit in visits:
            visit.left.set()
        await asyncio.gather(*waiting)
        assert not front.intake.held

    drive(story)


def test_answers_to_get_are_compressed_and_have_a_tag_of_their_own(acme: ApiClient) -> None:
    task_id = acme.task(args=["x" * 3_000])
    path = f"{TASKS}/{task_id}"

    async def story(front: AsgiApplication) -> None:
        plain = await Raw(front, acme.text, "GET", path).run()
        small = await Raw(front, acme.text, "GET", path, more=[(b"accept-encoding", b"br, gzip;q=0.5")]).run()
        none = await Raw(front, acme.text, "GET", path, more=[(b"accept-encoding", b"gzip;q=0")]).run()
        assert none.body == plain.body == gzip.decompress(small.body)
        assert len(small.body) < len(plain.body) / 2
        assert small.headers["content-encoding"] == "gzip"
        assert small.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        tag = small.headers["etag"]
        assert tag == plain.headers["etag"][:-1] + '-gzip"'
        again = await Raw(front, acme.text, "GET", path, more=[(b"if-none-match", tag.encode())]).run()
        assert again.status == 304
        short = await Raw(front, acme.text, "GET", "/api/v1/limits", more=[(b"accept-encoding", b"gzip")]).run()
        assert "content-encoding" not in short.headers

    drive(story)
