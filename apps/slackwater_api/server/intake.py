"""Checks of a request before and while its body is read: its head, the body's length, and the time it takes.

They hold for every path, so that nothing behind reads a request differently: there is one Host, which is this server's,
and no header that names the client or ends the body is sent twice.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, cast

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from scheduler_ext.core.errors import SlackwaterError, TooLarge, Unavailable
from slackwater_api.http.problems import BadRequest, BodyTooSlow, MalformedBody
from slackwater_conf import client_address, conf

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

ONCE: Final = (b"host", b"authorization", b"content-type", b"content-length", b"transfer-encoding")
MAX_PARAMETERS: Final = 1_000
IN_MEMORY: Final = 1_048_576
"""A longer body is kept in a file."""
SMALL: Final = 65_536
"""Bodies up to this size are not counted among those held."""
GRACE_S: Final = 20.0
CHECK_INTERVAL_S: Final = 0.5
RATE: Final = 16_384
"""A body may take the time of grace, and one more second for each so many bytes received."""
HELD: Final = 4
"""All bodies held at a time may have so many times the size of one; those of one address half of that."""


def check_head(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name; ``BadRequest`` for a head that two parts of a system could read differently."""
    given = scope["headers"]
    headers = dict(given)
    if len(headers) < len(given):
        names = [name for name, _ in given]
        for name in ONCE:
            if names.count(name) > 1:
                raise BadRequest(f"The header {name.decode().title()} was sent more than once.")
    if not is_ours(headers.get(b"host", b""), tuple(settings.ALLOWED_HOSTS)):
        raise BadRequest("This server does not answer to that Host; see SLACKWATER_ALLOWED_HOSTS.")
    if scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        raise BadRequest(f"The query has more than {MAX_PARAMETERS} parameters.")
    return headers


@functools.lru_cache(maxsize=1_024)
def is_ours(host: bytes, allowed: tuple[str, ...]) -> bool:
    """Whether a Host header names this server, by Django's own rules."""
    domain, _ = split_domain_port(host.decode("latin-1"))
    return bool(domain) and validate_host(domain, allowed)


def announced(scope: Scope, headers: dict[bytes, bytes]) -> int | None:
    """The length of the body; ``None`` where it is not announced."""
    length = headers.get(b"content-length")
    if length is not None and length.isdigit():
        return int(length[:20])
    plain = length is None and b"transfer-encoding" not in headers and scope["http_version"] < "2"
    return 0 if plain else None


def address_of(scope: Scope, headers: dict[bytes, bytes]) -> str:
    """The client's address."""
    peer = str((scope.get("client") or ("",))[0])
    return client_address(peer, headers.get(b"x-forwarded-for", b"").decode("latin-1"))


class Intake:
    """The bodies that a process holds, counted by address; and those on their way, looked at every so often.

    One look at all of them costs less than a timer for each: a body that comes at once is never looked at.
    """

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        self.coming: dict[Body, asyncio.Task[Any] | None] = {}
        """The task that waits for each body."""
        self._next_look: asyncio.TimerHandle | None = None

    def look_after(self, body: Body) -> None:
        """End the wait for a body when its time is up."""
        self.coming[body] = asyncio.current_task()
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for body, waiting in list(self.coming.items()):
            if waiting is not None and body.until <= time.monotonic():
                body.is_late = True
                waiting.cancel()
        self._next_look = loop.call_later(CHECK_INTERVAL_S, self._look) if self.coming else None

    def hold(self, place: str, size: int) -> None:
        """Count what is held for an address; ``Unavailable`` where that is too much, for it or in all."""
        most = HELD * conf().api_max_body_bytes
        if self.held[place] + size > most // 2 or self.held.total() + size > most:
            raise Unavailable("Too many large bodies are on their way; try again.")
        self.held[place] += size

    def release(self, place: str, size: int) -> None:
        """Count that much less for an address."""
        self.held[place] -= size
        if self.held[place] <= 0:
            del self.held[place]


class Body:
    """One body on its way in: counted, timed, and refused as soon as it is too long."""

    def __init__(self, intake: Intake, receive: Receive, limit: int, address: Callable[[], str]) -> None:
        self._intake, self._receive, self._limit, self._address = intake, receive, limit, address
        self._place, self._size, self._counted = "", 0, 0
        self._began = time.monotonic()
        self.complete = self.is_late = False
        self.refused: SlackwaterError | None = None
        """Why it was not read on."""

    @property
    def until(self) -> float:
        """When its time is over, by the monotonic clock: later for what more of it has come."""
        return self._began + GRACE_S + self._size / RATE

    async def read(self, into: Any, length: int) -> None:
        """Receive all of it, unless its announced length is too large.

        ``MalformedBody`` where it ends before its end: the client left, or a chunk is none.
        """
        if length > self._limit:
            raise TooLarge(f"The body has {length} bytes; the platform allows {self._limit}.", limit=self._limit)
        while not self.complete:
            message = await self._next()
            if message["type"] == "http.disconnect":
                raise MalformedBody("The body ended too early, or one of its chunks is malformed.")
            into.write(message.get("body", b""))

    async def receive(self) -> MutableMapping[str, Any]:
        """``receive`` of an application that reads whatever comes: it sees the client leave where a body is refused."""
        if self.complete:
            return await self._receive()  # what follows is the client's leaving
        try:
            return await self._next()
        except SlackwaterError as error:
            self.refused = error
            return {"type": "http.disconnect"}

    async def _next(self) -> MutableMapping[str, Any]:
        self._intake.look_after(self)
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if not self.is_late:
                raise
            cast("asyncio.Task[Any]", asyncio.current_task()).uncancel()
            raise BodyTooSlow from None
        finally:
            del self._intake.coming[self]
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            raise TooLarge(f"The body has more than {self._limit} bytes.", limit=self._limit)
        self.complete = message["type"] == "http.request" and not message.get("more_body", False)
        if self._size > SMALL and self._size > self._counted:
            self._place = self._place or self._address()
            self._intake.hold(self._place, self._size - self._counted)
            self._counted = self._size
        return message

    def release(self) -> None:
        """Stop counting it among the bodies held."""
        if self._counted:
            self._intake.release(self._place, self._counted)
