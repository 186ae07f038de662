"""The feed of changes: one connection to Redis serves all long polls and streams of this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis.asyncio

from scheduler_ext.dispatch import change_feed, redis_client
from slackwater_conf import conf
from slackwater_tasks.ledger.hints import keys

log = logging.getLogger(__name__)

LINGER_S = 30.0
"""The feed is followed this long after the last listener left, so that the next need not wait for it."""
RETRY_S = 1.0
CONNECT_S = 0.5
BLOCK_MS = 2_000
MAX_READ = 200
RECENT = 512
"""Batches remembered in the process: those a stream may miss while it is being opened."""

Place = tuple[int, int]
"""Where a batch stands in the feed: Redis' id of it, milliseconds and number."""


Row = tuple[str, int, int | None, str | None, int | None, dict[str, Any] | None]
"""(task id, state, tenant id, workflow id, outcome of an attempt that did not succeed, what else is told of it)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes of state that were published together."""

    place: Place
    changes: list[Row]


Listener = Callable[[Batch | None], None]
"""Called with each batch; with ``None`` when some may have been missed."""


def place_of(text: bytes | str) -> Place:
    """A Redis id as numbers; ``ValueError`` for anything else."""
    milliseconds, _, number = (text.decode() if isinstance(text, bytes) else text).partition("-")
    return int(milliseconds), int(number)


def name_of(place: Place) -> str:
    """The numbers as Redis writes them."""
    return f"{place[0]}-{place[1]}"


def read_row(row: Sequence[Any]) -> Row:
    """A change as it stands in the feed: trailing values that are missing are left out."""
    tenant_id, workflow_id, outcome, notice = (*row[2:6], None, None, None, None)[:4]
    return str(row[0]), int(row[1]), tenant_id, workflow_id, outcome, notice


def read_batch(entry_id: bytes, fields: Any) -> Batch:
    """An entry of the feed; a foreign entry becomes one without changes."""
    try:
        rows = json.loads(fields[change_feed.FIELD.encode()])
        changes = [read_row(row) for row in rows]
    except (ValueError, TypeError, KeyError, IndexError):
        log.warning("an entry of the feed that is no list of changes: %.100r", fields)
        changes = []
    return Batch(place_of(entry_id), changes)


class Feed:
    """The feed as one event loop follows it, while anybody listens."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._job: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._place: Place | None = None
        self._recent: deque[Batch] = deque(maxlen=RECENT)
        self._idle_since: float | None = None

    @property
    def is_connected(self) -> bool:
        """Whether changes are heard now."""
        return self._connected.is_set()

    def listen(self, listener: Listener) -> None:
        """Listen from soon on: when :attr:`is_connected` says so."""
        self._listeners.add(listener)
        self._idle_since = None
        if self._job is None or self._job.done():
            self._job = asyncio.create_task(self._follow())

    async def join(self, listener: Listener) -> None:
        """Listen from now on; returns when changes are heard, or cannot be had now."""
        self.listen(listener)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), CONNECT_S)

    def leave(self, listener: Listener) -> None:
        """Listen no more."""
        self._listeners.discard(listener)
        if not self._listeners:
            self._idle_since = asyncio.get_running_loop().time()

    def since(self, place: Place) -> Iterable[Batch]:
        """The batches after ``place`` that this process still remembers."""
        return [batch for batch in self._recent if batch.place > place]

    def close(self) -> None:
        """Stop following; the next listener starts it again."""
        if self._job is not None:
            self._job.cancel()
            self._job = None
        self._connected.clear()

    async def _follow(self) -> None:
        """Follow until there has been no listener for a while; reconnect each second while Redis is away."""
        while not self._is_idle():
            try:
                await self._read()
            except (redis.RedisError, OSError) as error:
                log.debug("no changes of state from Redis: %s", error)
            finally:
                self._connected.clear()
            if not self._is_idle():
                await asyncio.sleep(RETRY_S)

    def _is_idle(self) -> bool:
        since = self._idle_since
        return since is not None and asyncio.get_running_loop().time() - since > LINGER_S

    async def _read(self) -> None:
        name = keys().changes()
        async with redis_client.connect_async(conf().redis_url, socket_connect_timeout=CONNECT_S) as client:
            await self._begin(client, name)
            self._connected.set()
            while not self._is_idle():
                await client.set(keys().watched(), 1, ex=change_feed.WATCHED_S)
                found: Any = await client.xread({name: name_of(self._place or (0, 0))}, MAX_READ, BLOCK_MS)
                for entry_id, fields in found[0][1] if found else ():
                    self._receive(read_batch(entry_id, fields))

    async def _begin(self, client: Any, name: str) -> None:
        """Begin at the end; after an interruption where it stopped, if the feed still reaches back so far."""
        last: Any = await client.xrevrange(name, count=1)
        if self._place is None:
            self._place = place_of(last[0][0]) if last else (0, 0)
            return
        first: Any = await client.xrange(name, count=1)
        if not first or place_of(first[0][0]) > self._place:
            self._place = place_of(last[0][0]) if last else (0, 0)
            for listener in list(self._listeners):
                listener(None)

    def _receive(self, batch: Batch) -> None:
        self._place = batch.place
        self._recent.append(batch)
        for listener in list(self._listeners):
            listener(batch)
