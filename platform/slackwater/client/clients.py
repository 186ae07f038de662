"""The two clients: what drives operations over a connection, blocking or awaiting."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx

import slackwater
from scheduler_ext.core.errors import ConfigurationError
from slackwater.client.binding import Listing
from slackwater.client.errors import Unreachable
from slackwater.client.exchange import PREFIX, Answer, Call, Flow, Pause, Retries, read
from slackwater.client.operations import Output, Tasks, Workflows
from slackwater.client.platform_operations import Platform, Programs, Schedules, Webhooks
from slackwater.client.streams import Follow, Reader

T = TypeVar("T")
PAGE: int = 200
"""Rows that are asked for at once."""


class _Client(Tasks, Output, Workflows, Schedules, Programs, Webhooks, Platform):
    """What both have."""

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, retries: int = 4,
    ) -> None:  # fmt: skip
        """``url`` and ``key``: SLACKWATER_URL and SLACKWATER_KEY unless given. ``timeout_s``: for an answer to begin, and
        between its bytes. ``retries``: how often a request is made again that failed for a passing reason."""
        self.url = _address(_given(url, "SLACKWATER_URL", "url"))
        self._key = _given(key, "SLACKWATER_KEY", "key")
        if not self._key.isascii() or not self._key.isprintable():
            raise ConfigurationError("has characters that no key has", field="key")
        self.timeout_s = timeout_s
        self.retries = Retries(most=retries)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def __getstate__(self) -> Any:
        raise TypeError("a client holds a key and connections: make another one where it is needed")

    def _is_sealed(self) -> bool:
        """Whether the connection is by TLS: without it, loading the world's certificates is time lost."""
        return self.url.startswith("https:")

    def _sent(self, call: Call) -> dict[str, Any]:
        """A request as httpx takes it."""
        headers = {"Authorization": f"Bearer {self._key}", "User-Agent": f"slackwater/{slackwater.__version__}"}
        return {
            "method": call.method, "url": self.url + call.path, "params": dict(call.query) or None, "content": call.content,
            "headers": {**headers, **call.headers}, "timeout": httpx.Timeout(self.timeout_s, read=self.timeout_s + call.held_s),
        }  # fmt: skip

    def _page(self, listing: Listing[T], cursor: str | None) -> Flow[Any]:
        return self.ask(read(listing.path, {"limit": PAGE, **listing.query, "cursor": cursor}))


class Client(_Client):
    """Slackwater over REST: ``with Client() as client: client.run("demo.add", args=[2, 3])``."""

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, retries: int = 4,
        transport: httpx.BaseTransport | None = None, verify: Any = True,
    ) -> None:  # fmt: skip
        super().__init__(url, key, timeout_s=timeout_s, retries=retries)
        self._http = _made(httpx.Client, transport=transport, verify=verify if self._is_sealed() else False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def _run(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = flow.send(None)
                    continue
                try:
                    found = self._http.request(**self._sent(step))
                except httpx.RequestError as error:
                    step = flow.throw(_unreachable(error))
                else:
                    step = flow.send(Answer(found.status_code, found.headers, found.content))
        except StopIteration as end:
            result: T = end.value
            return result

    def _items(self, listing: Listing[T]) -> Iterator[T]:
        cursor = None
        while True:
            page = self._run(self._page(listing, cursor))
            yield from page["items"]
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def _follow(self, follow: Follow[T]) -> Iterator[T]:
        reader = Reader(follow, self.retries)
        while not reader.is_over():
            try:
                with self._http.stream(**self._sent(reader.call())) as found:
                    if reader.begin(found.status_code):
                        for chunk in found.iter_bytes():
                            yield from reader.feed(chunk)
                            if reader.is_over():
                                return
                        pause = reader.closed()
                    elif not reader.is_over():
                        pause = reader.refused(found.status_code, found.read(), found.headers)
                    else:
                        return
            except httpx.RequestError as error:
                pause = reader.broken(_unreachable(error))
            time.sleep(pause)


class AsyncClient(_Client):
    """The same for coroutines: ``async with AsyncClient() as client: await client.run("demo.add", args=[2, 3])``."""

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, retries: int = 4,
        transport: httpx.AsyncBaseTransport | None = None, verify: Any = True,
    ) -> None:  # fmt: skip
        super().__init__(url, key, timeout_s=timeout_s, retries=retries)
        self._http = _made(httpx.AsyncClient, transport=transport, verify=verify if self._is_sealed() else False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = flow.send(None)
                    continue
                try:
                    found = await self._http.request(**self._sent(step))
                except httpx.RequestError as error:
                    step = flow.throw(_unreachable(error))
                else:
                    step = flow.send(Answer(found.status_code, found.headers, found.content))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _items(self, listing: Listing[T]) -> AsyncIterator[T]:
        cursor = None
        while True:
            page = await self._run(self._page(listing, cursor))
            for item in page["items"]:
                yield item
            cursor = page.get("next_cursor")
            if not cursor:
                return

    async def _follow(self, follow: Follow[T]) -> AsyncIterator[T]:
        reader = Reader(follow, self.retries)
        while not reader.is_over():
            try:
                async with self._http.stream(**self._sent(reader.call())) as found:
                    if reader.begin(found.status_code):
                        async for chunk in found.aiter_bytes():
                            for shown in reader.feed(chunk):
                                yield shown
                            if reader.is_over():
                                return
                        pause = reader.closed()
                    elif not reader.is_over():
                        pause = reader.refused(found.status_code, await found.aread(), found.headers)
                    else:
                        return
            except httpx.RequestError as error:
                pause = reader.broken(_unreachable(error))
            await asyncio.sleep(pause)


def _given(value: str | None, variable: str, field: str) -> str:
    found = os.environ.get(variable, "") if value is None else value
    if not found.strip():
        raise ConfigurationError(f"is needed; give it, or set {variable}", field=field)
    return found.strip()


def _address(text: str) -> str:
    """The address of a server, with or without the path of the API."""
    wrong = ConfigurationError("must look like https://slackwater.example.org, without a user", field="url")
    try:
        parts = urlsplit(text)
        _ = httpx.URL(text), parts.port  # what neither can read
    except (ValueError, httpx.InvalidURL):
        raise wrong from None
    beside = "@" in parts.netloc or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or beside:
        raise wrong
    return text.rstrip("/").removesuffix(PREFIX)


def _made(kind: Callable[..., T], **options: Any) -> T:
    """The connections; httpx takes proxies and certificates from the environment, and some of those it cannot use."""
    try:
        return kind(**options)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigurationError(f"a proxy or a certificate of the environment cannot be used: {error}") from error


def _unreachable(error: httpx.RequestError) -> Unreachable:
    found = Unreachable(f"no answer: {type(error).__name__}" + (f", {error}" if str(error) else ""))
    found.__cause__ = error
    return found
