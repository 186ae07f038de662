"""Live streams (server-sent events): changes of state, from the feed to the clients of this process.

A stream costs a dictionary entry and no thread; a change costs one look-up a key and is written as text once, however
many streams carry it. Nothing here asks the database.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from scheduler_ext.core.states import Outcome, TaskState, client_status, is_final
from slackwater_api.http.blotting import blotted
from slackwater_api.live.change_feed import Batch, Feed, Place, Row, is_change, name_of
from slackwater_tasks.field_kinds import from_unix, utc_text

HEARTBEAT_S: Final = 15.0
"""A stream without news says so this often, so that proxies keep it and a client that is gone is noticed."""
RECHECK_KEY_S: Final = 60.0
"""The key of a stream is looked at again this often."""
SEND_TIMEOUT_S: Final = 30.0
MAX_BUFFERED: Final = 1_000
"""Events kept for a client that is slow; with more it is cut off, and comes back for the rest."""
MAX_STREAMS: Final = 5_000
"""Streams of one process."""
HEARTBEAT: Final = b": beat\n\n"
RETRY: Final = b"retry: 2000\n\n"

Key = tuple[int, str]
"""Tenant, and the id of a task or workflow; empty for all of the tenant's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A stream that a view has allowed: its tenant, its subject and its first events."""

    tenant_id: int
    task_id: UUID | None = None
    workflow_id: UUID | None = None
    first: bytes = b""
    place: Place | None = None
    """Where in the feed it goes on; ``None`` when Redis is away."""
    ended: bool = False
    """There is nothing more to come."""
    blots: bool = False
    """What looks like a secret is left out: its key only reads."""

    @property
    def key(self) -> Key:
        """The key under which it receives changes."""
        return self.tenant_id, str(self.task_id or self.workflow_id or "")


def event(kind: str, data: Any, event_id: str = "") -> bytes:
    """One event in the format of server-sent events."""
    line = f"id: {event_id}\n" if event_id else ""
    return f"{line}event: {kind}\ndata: {json.dumps(data, default=str, separators=(',', ':'))}\n\n".encode()


def change(batch: Batch, n: int, row: Row, *, blots: bool = False) -> bytes:
    """A change of state, or a notice of a task, as an event; its id is a position in the feed."""
    task_id, number, _, workflow_id, outcome, notice, when = row
    notice = blotted(notice) if blots else notice
    event_id, at = f"{name_of(batch.place)}.{n}", utc_text(from_unix(batch.at_ms / 1000 if when is None else when))
    if notice is not None and "progress" in notice:
        return event("progress", {"task_id": task_id, "workflow_id": workflow_id, **notice, "at": at}, event_id)
    if not is_change(row):
        return event("workflow" if task_id == workflow_id else "notice", notice, event_id)
    state = TaskState(number)
    data = {
        "task_id": task_id,
        "workflow_id": workflow_id,
        "state": state.name.lower(),
        "status": client_status(state).label,
        "at": at,
    }
    if outcome is not None:
        data["outcome"] = Outcome(outcome).name.lower()
    return event("task", data | (notice or {}), event_id)


def changes_for(key: Key, batches: Iterable[Batch], after: tuple[Place, int] | None = None, *,
                blots: bool = False) -> list[tuple[bytes, bool]]:  # fmt: skip
    """The events of a stream in some batches: (text, whether its task ended)."""
    found = []
    for batch in batches:
        for n, row in enumerate(batch.changes):
            if after is not None and (batch.place, n) <= after:
                continue
            if row[2] == key[0] and key[1] in ("", row[0], row[3]):
                found.append((change(batch, n, row, blots=blots), _ends(key, row)))
    return found


def _ends(key: Key, row: Row) -> bool:
    # A workflow's own end is told as a notice of it.
    return key[1] == row[0] and (is_change(row) or row[0] == row[3]) and is_final(TaskState(row[1]))


@dataclass(eq=False, slots=True)
class Stream:
    """One open stream."""

    key: Key
    after: Place
    """The position up to which its first events reach: the process may receive those changes a little later."""
    blots: bool = False
    waiting: deque[tuple[bytes, bool]] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    cut: bool = False

    def put(self, text: bytes, *, last: bool) -> None:
        """Add an event; a client too slow for its stream is cut off."""
        if len(self.waiting) >= MAX_BUFFERED:
            self.cut = True
        else:
            self.waiting.append((text, last))
        self.news.set()

    async def take(self, seconds: float) -> tuple[bytes, bool]:
        """All that waits, and whether it is the last; a beat when nothing came in ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self.news.wait()
        except TimeoutError:
            return HEARTBEAT, False
        self.news.clear()
        parts = list(self.waiting)
        self.waiting.clear()
        return b"".join(text for text, _ in parts), self.cut or any(last for _, last in parts)


class Streams:
    """The open streams of one event loop."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._open: dict[Key, set[Stream]] = {}
        self._count = 0
        self._listening = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether this process takes no more."""
        return self._count >= MAX_STREAMS

    async def listen(self) -> None:
        """Hear of changes before a stream is opened, so that none falls between its beginning and the rest."""
        self._listening += 1
        await self._feed.join(self._receive)

    def rest(self) -> None:
        """Undo one ``listen``; after the last, the feed is left."""
        self._listening -= 1
        if not self._listening:
            self._feed.leave(self._receive)

    def _receive(self, batch: Batch | None) -> None:
        if batch is None:
            for streams in self._open.values():
                for stream in streams:
                    stream.put(gap(), last=False)
            return
        for n, row in enumerate(batch.changes):
            task_id, _, tenant_id, workflow_id, *_ = row
            if tenant_id is None:
                continue
            texts: dict[bool, bytes] = {}
            for subject in {"", task_id, workflow_id}:  # of what a workflow tells of itself both are its id
                for stream in self._open.get((tenant_id, subject or ""), ()) if subject is not None else ():
                    if batch.place > stream.after:
                        text = texts.get(stream.blots) or change(batch, n, row, blots=stream.blots)
                        stream.put(texts.setdefault(stream.blots, text), last=_ends(stream.key, row))

    async def run(
        self,
        opening: Opening,
        send: Callable[[bytes], Awaitable[None]],
        allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        """Send a stream's events until it ends, its client is too slow, or its key no longer holds."""
        stream = Stream(opening.key, opening.place or (0, 0), opening.blots)
        self._open.setdefault(stream.key, set()).add(stream)
        self._count += 1
        try:
            missed = self._feed.since(opening.place) if opening.place is not None else []
            for text, last in changes_for(opening.key, missed, blots=opening.blots):
                stream.put(text, last=last)
            await send(RETRY + opening.first)
            checked = asyncio.get_running_loop().time()
            ended = opening.ended
            while not ended:
                text, ended = await stream.take(HEARTBEAT_S)
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send(text)
                now = asyncio.get_running_loop().time()
                if now - checked > RECHECK_KEY_S:
                    checked = now
                    ended = ended or not await allowed()
        except TimeoutError:
            return
        finally:
            self._count -= 1
            together = self._open[stream.key]
            together.discard(stream)
            if not together:
                del self._open[stream.key]


def gap(**data: Any) -> bytes:
    """The event that says that changes may be missing: the client reads what it needs once more and continues."""
    return event("gap", {"detail": "Changes may be missing here: read what you need once more.", **data})
