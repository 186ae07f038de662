"""Waiting for tasks to end without holding a thread or a connection.

The feed of changes and one query a second serve all who wait in this process: the feed wakes them at once, and the
query finds what an absent Redis did not tell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from uuid import UUID

from scheduler_ext.core.states import FINAL
from slackwater_api.live.change_feed import Batch, Feed, RunInThread
from slackwater_tasks.read.workflows import ended_ids

log = logging.getLogger(__name__)

POLL_S = 1.0
LINGER_S = 30.0
"""Looking goes on this long after the last waiter left."""
MAX_WAIT_S = 60.0
FINAL_NUMBERS = frozenset(int(state) for state in FINAL)


class Waiters:
    """The long polls of one event loop: clients that wait for tasks to end."""

    def __init__(self, run: RunInThread, feed: Feed) -> None:
        """``run(function, *args)`` calls a function in a thread that may use the database."""
        self._run = run
        self._feed = feed
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._job: asyncio.Task[None] | None = None
        self._idle_since = 0.0

    def __len__(self) -> int:
        return sum(len(events) for events in self._waiting.values())

    async def until_final(self, task_id: UUID, seconds: float) -> None:
        """Return when the task or workflow has ended, or after ``seconds``. It may have before."""
        event = asyncio.Event()
        name = str(task_id)
        self._waiting.setdefault(name, set()).add(event)
        try:
            async with asyncio.timeout(seconds):
                if self._job is None or self._job.done():
                    self._job = asyncio.create_task(self._look())
                await self._feed.join(self._receive)
                # Looked at once changes are heard: what ended before is seen here, what ends later is told.
                if not await self._final_among([task_id]):
                    await event.wait()
        except TimeoutError:
            return
        finally:
            self._leave(name, event)

    async def _final_among(self, task_ids: list[UUID]) -> list[UUID]:
        try:
            found: list[UUID] = await self._run(ended_ids, task_ids)
        except Exception as error:  # noqa: BLE001 (a database that is away must not end the watch)
            log.warning("the ledger could not be asked who has finished: %s", error)
            return []
        return found

    def _leave(self, name: str, event: asyncio.Event) -> None:
        events = self._waiting.get(name)
        if events is not None:
            events.discard(event)
            if not events:
                del self._waiting[name]

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            for event in self._waiting.get(name, ()):
                event.set()

    def _receive(self, batch: Batch | None) -> None:
        if batch is not None and self._waiting:
            self._wake(ended_in(batch))

    async def _look(self) -> None:
        """Ask the ledger each second about all awaited tasks; end when none has been awaited for a while."""
        loop = asyncio.get_running_loop()
        self._idle_since = loop.time()
        while True:
            await asyncio.sleep(POLL_S)
            if self._waiting:
                self._idle_since = loop.time()
                self._wake(str(found) for found in await self._final_among([UUID(name) for name in self._waiting]))
            elif loop.time() - self._idle_since > LINGER_S:
                self.close()
                return

    def close(self) -> None:
        """Stop looking; the next waiter starts it again."""
        self._feed.leave(self._receive)
        if self._job is not None and self._job is not asyncio.current_task():
            self._job.cancel()
        self._job = None


def ended_in(batch: Batch) -> list[str]:
    """The ids of tasks that a batch of changes says are final."""
    return [task_id for task_id, state, *_ in batch.changes if state in FINAL_NUMBERS]
