"""The feed of changes: one connection to Redis serves all long polls and streams of this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import redis.asyncio

from scheduler_ext.dispatch import change_feed, redis_client
from scheduler_ext.dispatch.refusals import Kind, refusals
from slackwater_conf import conf
from slackwater_tasks.ledger.hints import keys
from slackwater_tasks.read.tasks import states

log = logging.getLogger(__name__)

LINGER_S = 30.0
"""The feed is followed this long after the last listener left, so that the next need not wait for it."""
RETRY_S = 1.0
CONNECT_S = 0.5
BLOCK_MS = 2_000
MAX_READ = 200
RECENT = 512
"""Batches remembered in the process: those a stream may miss while it is being opened."""

FUTURE_S = 86_400.0
"""An entry that is dated further ahead than this is a forgery."""
ASK_EVERY_S = 0.2

RunInThread = Callable[..., Coroutine[Any, Any, Any]]
Place = tuple[int, int]
"""Where a batch stands in the feed: Redis' id of it, milliseconds and number."""


Row = tuple[str, int, int | None, str | None, int | None, dict[str, Any] | None, float | None]
"""(task id, state, tenant id, workflow id, outcome of an attempt that did not succeed, what else is told of it, when)."""


def is_change(row: Row) -> bool:
    """Whether it tells a change of state, perhaps with its reason, and not a notice."""
    return row[5] is None or row[5].keys() == {"reason"}


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes of state that were published together."""

    place: Place
    changes: list[Row]
    at_ms: int
    """When they were published, by the clock of Redis."""
    proven: bool = True
    """It stands at the place it was sealed for. Otherwise it may be a repeat, and the ledger is asked which changes hold."""


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
    tenant_id, workflow_id, outcome, notice, at = (*row[2:7], None, None, None, None, None)[:5]
    return str(row[0]), int(row[1]), tenant_id, workflow_id, outcome, notice, at


def read_batch(reader: change_feed.Reader, entry_id: bytes, fields: Any) -> Batch:
    """An entry of the feed; one that the platform has not written becomes one without changes."""
    place = place_of(entry_id)
    found = reader.read(place[0], fields)
    if found is None:
        refusals.add(Kind.CHANGE, "an entry of the feed of changes without this platform's seal")
        return Batch(place, [], place[0])
    rows, at_ms, proven = found
    return Batch(place, [read_row(row) for row in rows], at_ms, proven or not rows)


def confirmed(batch: Batch) -> Batch:
    """A batch that may be a repeat, with the changes that hold by the ledger. Runs in a thread that may use the database."""
    now = states([row[0] for row in batch.changes])
    rows = [row for row in batch.changes if is_change(row) and now.get(row[0]) == row[1]]
    if len(rows) < len(batch.changes):
        refusals.add(Kind.CHANGE, "changes that are so no more", len(batch.changes) - len(rows))
    return replace(batch, changes=rows, proven=True)


class Feed:
    """The feed as one event loop follows it, while anybody listens."""

    def __init__(self, run: RunInThread) -> None:
        """``run(function, *args)`` calls a function in a thread that may use the database."""
        self._run = run
        self._reader = change_feed.Reader()
        self._asked_at = float("-inf")
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
        """Begin to listen; changes are heard once :attr:`is_connected` is true."""
        self._listeners.add(listener)
        self._idle_since = None
        if self._job is None or self._job.done():
            self._job = asyncio.create_task(self._follow())

    async def join(self, listener: Listener) -> None:
        """Listen from now on; returns when changes are heard, or cannot be had now."""
        self.listen(listener)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                await self._connected.wait()

    def leave(self, listener: Listener) -> None:
        """Stop listening."""
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
            if await client.type(name) not in (b"stream", b"none"):
                await self._forget(client, name)
            await self._begin(client, name)
            self._connected.set()
            while not self._is_idle():
                await client.set(keys().watched(), 1, ex=change_feed.WATCHED_S)
                found: Any = await client.xread({name: name_of(self._place or (0, 0))}, MAX_READ, BLOCK_MS)
                for entry_id, fields in found[0][1] if found else ():
                    batch = read_batch(self._reader, entry_id, fields)
                    self._receive(batch if batch.proven else await self._confirmed(batch))
                if self._place is not None and self._place[0] > (time.time() + FUTURE_S) * 1000:
                    await self._forget(client, name)

    async def _confirmed(self, batch: Batch) -> Batch:
        """The changes of a batch that hold by the ledger; asked rarely, because anybody may repeat an old batch."""
        now = asyncio.get_running_loop().time()
        if now - self._asked_at < ASK_EVERY_S:
            refusals.add(Kind.CHANGE, "a batch that stands where it was not added", len(batch.changes))
            return replace(batch, changes=[])
        self._asked_at = now
        try:
            found: Batch = await self._run(confirmed, batch)
        except Exception as error:  # noqa: BLE001 - without the ledger nothing is told
            log.warning("the ledger could not be asked for changes: %s", error)
            return replace(batch, changes=[])
        return found

    async def _forget(self, client: Any, name: str) -> None:
        """Delete a feed to which nothing can be added: a key of another type, or an entry with a place in the far future."""
        refusals.add(Kind.CHANGE, "the feed of changes was made useless")
        await client.delete(name)
        self._place = (0, 0)
        self._tell(None)

    async def _begin(self, client: Any, name: str) -> None:
        """Begin at the end; after an interruption where it stopped, if the feed still reaches back so far."""
        last: Any = await client.xrevrange(name, count=1)
        if self._place is None:
            self._place = place_of(last[0][0]) if last else (0, 0)
            return
        first: Any = await client.xrange(name, count=1)
        if not first or place_of(first[0][0]) > self._place:
            self._place = place_of(last[0][0]) if last else (0, 0)
            self._tell(None)

    def _receive(self, batch: Batch) -> None:
        self._place = batch.place
        self._recent.append(batch)
        self._tell(batch)

    def _tell(self, batch: Batch | None) -> None:
        for listener in list(self._listeners):
            listener(batch)
