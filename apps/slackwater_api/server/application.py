"""The ASGI front of the API: its requests skip the site's middleware and run in threads that keep their connection.

Django's own ASGI handler makes a thread, and takes a connection from the pool, for each request; for an API that
costs more than the request. Requests under ``/api/v1/`` are answered here by a fixed number of threads instead, and
those that wait for a task are parked in the event loop meanwhile. Everything else goes on to Django's handler.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.middleware.security import SecurityMiddleware
from django.urls import resolve, set_script_prefix

from scheduler_ext.core.errors import SlackwaterError
from slackwater_api.http.auth import key_text, remembered
from slackwater_api.http.compression import compress
from slackwater_api.live.change_feed import Feed
from slackwater_api.live.event_streams import Streams
from slackwater_api.live.long_poll import Waiters
from slackwater_api.live.status_cache import Statuses, asks_status
from slackwater_api.live.tails import Tails
from slackwater_api.server import content_security, fast_refusal, group_commit, submission
from slackwater_api.server.group_commit import GroupCommit
from slackwater_api.server.intake import IN_MEMORY, Body, Intake, address_of, announced, check_head
from slackwater_api.server.response import Answer, Pairs, Reply, refusal, written
from slackwater_api.server.submission import TaskRequest
from slackwater_api.server.thread_pool import ThreadPool
from slackwater_api.v1.waits import asked_wait, may_read
from slackwater_conf import conf
from slackwater_monitoring.rollups.exposition import REFUSED, SUBMIT

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = dict[bytes, bytes]
Application = Callable[[Any, Any, Any], Awaitable[None]]

PREFIX = "/api/v1/"
SUBMITTING = frozenset({submission.PATH, f"{PREFIX}workflows"})
FOLLOWED = ("/logs/events", "/chunks/events")
SITE_BODY = 4_194_304
"""The largest body of a request that is not for the API; Django itself takes no form of more than 2.5 MB."""


class Disconnected(Exception):
    """The client went away before it was answered."""


class ApiHandler(BaseHandler):
    """Django's resolver and views, behind the one middleware that an API needs."""

    def __init__(self) -> None:
        super().__init__()
        # What Django's handler sets up from the settings, for the one middleware that an API needs.
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        inner = convert_exception_to_response(self._get_response)  # type: ignore[attr-defined]
        self._middleware_chain = convert_exception_to_response(SecurityMiddleware(inner))

    def answer(self, scope: Scope, body: Any) -> HttpResponseBase:
        """The rendered response to a request."""
        body.seek(0)
        set_script_prefix(scope.get("root_path", "") or "/")
        request = ASGIRequest(scope, body)
        # The response is not closed: that would end Django's request cycle, which gives up this thread's connection
        # or tries it anew each time. ``ThreadPool`` looks after it, and all content is in memory.
        return self.get_response(request)


class Live:
    """The live state of one event loop: its feed of changes, long polls, cached statuses and streams."""

    def __init__(self, threads: ThreadPool) -> None:
        self.feed = Feed(threads.run)
        self.waiters = Waiters(threads.run, self.feed)
        self.statuses = Statuses(self.feed)
        self.streams = Streams(self.feed)
        self.tails = Tails(threads.run)

    def close(self) -> None:
        """Stop following; the next client starts it again."""
        self.waiters.close()
        self.tails.close()
        self.feed.close()


class AsgiApplication:
    """An ASGI application: the API here, the rest by ``site``."""

    def __init__(self, site: Application) -> None:
        self.site = site
        self.threads = ThreadPool(conf().api_threads)
        self.handler = ApiHandler()
        self.group_commit = GroupCommit(self.threads)
        self.intake = Intake()
        self._live: dict[asyncio.AbstractEventLoop, Live] = {}

    @property
    def live(self) -> Live:
        """The live state of the running loop. Made on first use: granian runs the API without a lifespan."""
        loop = asyncio.get_running_loop()
        if loop not in self._live:
            self._live = {known: live for known, live in self._live.items() if not known.is_closed()}
            self._live[loop] = Live(self.threads)
        return self._live[loop]

    def warm(self) -> None:
        """Load the routes and open the connections before the first request; returns at once."""
        resolve(f"{PREFIX}tasks")
        self.threads.warm()

    def close(self) -> None:
        self.threads.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            await self.site(scope, receive, send)
            return
        try:
            headers = check_head(scope)
        except SlackwaterError as error:
            await _send(refusal(scope, error), send)
            return
        if scope["path"].startswith(PREFIX):
            await self._api(_followed(scope), headers, receive, send)
        else:
            await self._by_site(scope, headers, receive, send)

    async def _by_site(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Let the site answer; a body that is too long or too slow is refused."""
        body = Body(self.intake, receive, SITE_BODY, partial(address_of, scope, headers))
        try:
            await self.site(scope, body.receive, send)
            if body.refused is not None:
                await _send(refusal(scope, body.refused), send)
        finally:
            body.release()

    async def _api(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Answer a request to the API."""
        began = time.perf_counter()
        length = announced(scope, headers)
        incoming = Body(self.intake, receive, conf().api_max_body_bytes, partial(address_of, scope, headers))
        is_large = length is None or length > IN_MEMORY
        body = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) if is_large else io.BytesIO()  # noqa: SIM115
        try:
            if length != 0 and (refused := await self._taken_in(scope, headers, length, incoming, body)) is not None:
                await _send(refused, send)
                return
            if scope["path"].endswith(FOLLOWED) and scope["method"] == "GET":
                await self._follow(scope, headers, receive, send, body)
                return
            if scope["path"].endswith("/events") and scope["method"] == "GET":
                await self._stream(scope, headers, receive, send, body)
                return
            response = await self._answer(scope, headers, receive, body)
        except Disconnected:
            return
        finally:
            body.close()
            incoming.release()
        took = time.perf_counter() - began
        if scope["method"] == "POST" and scope["path"] in SUBMITTING:
            SUBMIT.observe(took)
            if response.status_code >= 400:
                REFUSED.labels(str(response.status_code)).inc()
        timing = b"app;dur=%.2f" % (took * 1000)
        if isinstance(response, StreamingHttpResponse):
            await self._send_pieces(response, timing, send)
        else:
            await _send(response, send, (b"Server-Timing", timing))

    async def _send_pieces(self, response: StreamingHttpResponse, timing: bytes, send: Send) -> None:
        """Send a download as it is read: a piece is read in a thread, when the client has taken the one before."""
        headers = [*_headers(response), (b"Server-Timing", timing)]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        pieces = iter(response)
        while piece := await self.threads.run(next, pieces, b""):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _taken_in(
        self, scope: Scope, headers: Headers, length: int | None, incoming: Body, body: Any
    ) -> Reply | None:
        """Check the key, then read the body; returns the answer where either is refused."""
        authorization = _authorization(headers)
        try:
            if not remembered.seen(authorization):
                await self.threads.run(remembered.principal, key_text(authorization))
            await incoming.read(body, length or 0)
        except Exception as error:  # noqa: BLE001 (the boundary: every error becomes a problem, and is logged)
            return refusal(scope, error)
        return None

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, body: Any) -> Reply:
        """Answer from memory, with others of the tenant, or by a view in a thread."""
        if _asks_status(scope):
            self.live.statuses.follow()
        task = submission.read(scope, headers, body)
        if task is not None and (refused := fast_refusal.answer(task)) is not None:
            return refused
        if task is not None and group_commit.takes(task):
            return await self.group_commit.answer(task)
        scope["slackwater.waited"] = await self._wait(scope, headers, receive)
        scope["slackwater.statuses"] = self.live.statuses
        found: Reply = await self.threads.run(self._by_view, scope, headers, body, task)
        return found

    def _by_view(self, scope: Scope, headers: Headers, body: Any, task: TaskRequest | None) -> Reply:
        """The view's answer, unless a refusal became known while the request waited for its thread."""
        refused = fast_refusal.answer(task) if task is not None else None
        if refused is not None:
            return refused
        return compress(scope["method"], headers.get(b"accept-encoding", b""), self.handler.answer(scope, body))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Begin and end with the server: Django's handler knows no such thing."""
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                self.live.close()
                await asyncio.to_thread(self.close)
                return

    async def _wait(self, scope: Scope, headers: Headers, receive: Receive) -> bool:
        """Wait for a task's end where the client asks to; True when that was done."""
        if scope["method"] != "GET" or b"wait=" not in scope["query_string"]:
            return False
        wait = asked_wait(scope["path"], parse_qs(scope["query_string"].decode("latin-1")))
        if wait is None or not await self.threads.run(wait.is_allowed, _authorization(headers)):
            return False  # the view says what is wrong
        if not await _while_there(receive, self.live.waiters.until_final(wait.subject, wait.seconds)):
            raise Disconnected
        return True

    async def _stream(self, scope: Scope, headers: Headers, receive: Receive, send: Send, body: Any) -> None:
        """Open a live stream where the view allows it, and keep it open until its client leaves."""
        streams = self.live.streams
        try:
            await streams.listen()
            response = await self.threads.run(self.handler.answer, scope, body)
            await self._keep_open(streams, getattr(response, "opening", None), response, headers, receive, send)
        finally:
            streams.rest()

    async def _follow(self, scope: Scope, headers: Headers, receive: Receive, send: Send, body: Any) -> None:
        """The same for what a task writes."""
        response = await self.threads.run(self.handler.answer, scope, body)
        await self._keep_open(self.live.tails, getattr(response, "tail", None), response, headers, receive, send)

    async def _keep_open(
        self, streams: Any, opening: Any, response: HttpResponseBase, headers: Headers, receive: Receive, send: Send
    ) -> None:
        """Go on where the view allows it, until the client leaves or nothing more will come."""
        if opening is None or streams.is_full:
            await _send(response, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": _headers(response)})
        authorization, ticketed = _authorization(headers), getattr(response, "ticketed", None)

        async def write(text: bytes) -> None:
            await send({"type": "http.response.body", "body": text, "more_body": True})

        async def allowed() -> bool:
            return bool(await self.threads.run(may_read, authorization, ticketed))

        if await _while_there(receive, streams.run(opening, write, allowed)):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _followed(scope: Scope) -> Scope:
    """``/logs?follow`` is ``/logs/events``, and so with chunks."""
    if b"follow" not in scope["query_string"] or not scope["path"].endswith(("/logs", "/chunks")):
        return scope
    parts = scope["query_string"].split(b"&")
    asked = {b"follow", b"follow=", b"follow=1", b"follow=true"}
    if not asked.intersection(parts):
        return scope
    rest = b"&".join(part for part in parts if part not in asked)
    path = f"{scope['path']}/events"
    return {**scope, "path": path, "raw_path": path.encode(), "query_string": rest}


def _asks_status(scope: Scope) -> bool:
    path, query = scope["path"], scope["query_string"]
    if not query:
        return bool(path.endswith("/status"))
    return asks_status(path, parse_qs(query.decode("latin-1")))


def _authorization(headers: Headers) -> str:
    return headers.get(b"authorization", b"").decode("latin-1")


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _while_there(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Do some work for a client, and stop when it leaves; True when the work came to its end."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    done, unfinished = await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
    for job in unfinished:
        job.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)
    return working in done and working.exception() is None


_POLICY = (content_security.HEADER.lower().encode(), content_security.NOTHING.encode())


def _headers(response: HttpResponseBase) -> Pairs:
    return [_POLICY, *written(response.items())]


async def _send(response: Reply, send: Send, *more: tuple[bytes, bytes]) -> None:
    if isinstance(response, Answer):
        headers, content = response.headers, response.content
    else:
        headers = _headers(response)
        content = response.content if isinstance(response, HttpResponse) else b"".join(response)
    headers = [*headers, *more, (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": content})
