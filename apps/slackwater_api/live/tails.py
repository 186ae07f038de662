"""Following what tasks print, log and yield: one look at the ledger a few times a second serves all who follow.

A follower that is slow is not read for until it has taken what it has: nothing is dropped, and nothing piles up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from slackwater_api.live.change_feed import RunInThread
from slackwater_api.live.event_streams import HEARTBEAT, HEARTBEAT_S, RECHECK_KEY_S, RETRY, SEND_TIMEOUT_S, event
from slackwater_tasks.field_kinds import utc_text
from slackwater_tasks.read import output
from slackwater_tasks.read.output import Tail

log = logging.getLogger(__name__)

EVERY_S: Final = 0.4
HURRIED_S: Final = 0.02
"""Where there is more than one look reads."""
MOST: Final = 1_000
"""Followers of one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOpening:
    """A follower that a view has allowed, and what it wants to see."""

    tail: Tail
    stream: str = ""
    level: str = ""

    def shows(self, item: dict[str, Any]) -> bool:
        """Whether a line is wanted; a chunk always is."""
        if self.tail.chunks:
            return True
        least = output.LEVELS.index(self.level) if self.level else 0
        return self.stream in ("", item["stream"]) and output.LEVELS.index(item["level"]) >= least


@dataclass(eq=False, slots=True)
class _Follower:
    opening: TailOpening
    tail: Tail
    waiting: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Tails:
    """Those who follow in one event loop."""

    def __init__(self, run: RunInThread) -> None:
        """``run(function, *args)`` calls a function in a thread that may use the database."""
        self._run = run
        self._followers: set[_Follower] = set()
        self._job: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether this process takes no more."""
        return len(self._followers) >= MOST

    async def run(
        self, opening: TailOpening, send: Callable[[bytes], Awaitable[None]], allowed: Callable[[], Awaitable[bool]]
    ) -> None:
        """Send what comes until the task has ended, or its client's key no longer holds."""
        follower = _Follower(opening, opening.tail)
        self._followers.add(follower)
        if self._job is None or self._job.done():
            self._job = asyncio.create_task(self._look())
        try:
            await send(RETRY)
            checked = asyncio.get_running_loop().time()
            while True:
                text, ended = await self._news(follower)
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send(text)
                now = asyncio.get_running_loop().time()
                if now - checked > RECHECK_KEY_S:
                    checked, ended = now, ended or not await allowed()
                if ended:
                    return
        except TimeoutError:
            return
        finally:
            self._followers.discard(follower)

    async def _news(self, follower: _Follower) -> tuple[bytes, bool]:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await follower.news.wait()
        except TimeoutError:
            return HEARTBEAT, False
        follower.news.clear()
        items, follower.waiting, ended = follower.waiting, [], follower.ended
        return written(follower.opening, items, ended=ended), ended

    async def _look(self) -> None:
        while self._followers:
            more, hungry = False, [one for one in self._followers if not one.waiting and not one.ended]
            if hungry:
                try:
                    found = await self._run(output.tails, [one.tail for one in hungry])
                except Exception as error:  # noqa: BLE001 - the ledger may be away: what came then comes later
                    log.warning("what tasks wrote could not be read: %s", error)
                    found = []
                for follower, look in zip(hungry, found, strict=False):
                    follower.tail = follower.tail._replace(place=look.place)
                    follower.waiting, follower.ended = look.items, look.ended
                    if look.items or look.ended:
                        follower.news.set()
                more = any(look.more for look in found)
            await asyncio.sleep(HURRIED_S if more else EVERY_S)

    def close(self) -> None:
        """Stop looking; the next follower starts it again."""
        if self._job is not None:
            self._job.cancel()


def written(opening: TailOpening, items: list[dict[str, Any]], *, ended: bool) -> bytes:
    """Lines or chunks as events; each event's id is its place."""
    kind = "chunk" if opening.tail.chunks else "line"
    parts = [event(kind, {**item, "at": item["at"] and utc_text(item["at"])}, item["place"])
             for item in items if opening.shows(item)]  # fmt: skip
    if ended:
        parts.append(event("end", {"task_id": opening.tail.task_id}))
    return b"".join(parts)
