"""Live streams (server-sent events) without input or output: what has come, where to go on, when to give up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from slackwater.client.errors import ApiError, refusal
from slackwater.client.exchange import Call, Retries, is_transient, read

T = TypeVar("T")
SILENCE_S: Final = 45.0
"""A stream says every fifteen seconds that it is there; one that has been silent for so long is cut."""
PATIENCE_S: Final = 300.0
"""For so long a server that cannot be reached is tried again, without anything that came."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event; its ``id`` is where a stream goes on after it."""

    id: str
    kind: str
    data: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow(Generic[T]):
    """A stream to follow: its address, what is shown of an event (``None``: nothing), and which event is the last."""

    path: str
    show: Callable[[Event], T | None]
    is_last: Callable[[Event], bool]
    query: Mapping[str, Any]
    after: str | None = None


class Reader(Generic[T]):
    """The state of one stream over any number of connections."""

    def __init__(self, follow: Follow[T], retries: Retries) -> None:
        self._over = False
        self._follow, self._retries = follow, retries
        self._last = follow.after or ""
        self._rest = b""
        self._retry_s = 2.0
        self._tries, self._waited, self._came = 0, 0.0, False

    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._over

    def call(self) -> Call:
        """The request that begins it, or goes on with it."""
        self._rest, self._came = b"", False
        found = read(self._follow.path, self._follow.query)
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": self._last} if self._last else {})}
        return Call(method="GET", path=found.path, query=found.query, headers=headers, held_s=SILENCE_S)

    def begin(self, status: int) -> bool:
        """Whether events follow such an answer; 204 says that there are no more."""
        self._over = status == 204
        return status == 200

    def refused(self, status: int, content: bytes, headers: Mapping[str, str]) -> float:
        """The pause after a refusal; raised where another try would not help."""
        return self.broken(refusal(status, content, headers))

    def feed(self, chunk: bytes) -> Iterator[T]:
        """What the next bytes of the connection tell."""
        self._rest = (self._rest + chunk).replace(b"\r\n", b"\n")
        *blocks, self._rest = self._rest.split(b"\n\n")
        for block in blocks:
            event = self._event(block.decode("utf-8", "replace"))
            if event is None:
                continue
            self._tries, self._waited, self._came = 0, 0.0, True
            self._last = event.id or self._last
            self._over = self._follow.is_last(event)
            shown = self._follow.show(event)
            if shown is not None:
                yield shown
            if self._over:
                return

    def _event(self, block: str) -> Event | None:
        fields: dict[str, list[str]] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        if "retry" in fields and fields["retry"][-1].isdecimal():
            self._retry_s = int(fields["retry"][-1]) / 1000
        if "data" not in fields:
            return None
        text = "\n".join(fields["data"])
        return Event(fields.get("id", [""])[-1], fields.get("event", ["message"])[-1], json.loads(text))

    def closed(self) -> float:
        """The pause after the server ended the connection: none where something came, to ask whether that was all."""
        return 0.0 if self._came else self._retry_s

    def broken(self, error: Exception) -> float:
        """The pause after a connection that failed; the error itself where it has failed for too long."""
        self._tries += 1
        pause = self._retries.pause(1, error) if is_transient(error) else None
        if pause is None or self._waited > PATIENCE_S or not self._retries.most:
            raise error
        if not isinstance(error, ApiError) or error.retry_after_s is None:
            pause = min(self._retries.max_s, pause * 2.0 ** min(self._tries - 1, 10))
        self._waited += pause
        return pause
