"""Waiting for tasks to end without holding a thread or a connection.

One subscription and one query a second serve all who wait in this process: the changes of state that the platform
publishes wake them at once, and the query finds what a lost message, or an absent Redis, did not tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any
from uuid import UUID

import redis.asyncio
from django.conf import settings

from apps.tasks.hints import keys
from apps.tasks.reading import finished_ids
from scheduler_ext.core.states import FINAL

log = logging.getLogger(__name__)

LOOK_S = 1.0
LINGER_S = 30.0
"""The subscription stays this long after the last waiter left, so that the next need not wait for it."""
SUBSCRIBE_S = 0.5
LONGEST_WAIT_S = 60.0
FINAL_NUMBERS = frozenset(int(state) for state in FINAL)

RunInThread = Callable[..., Coroutine[Any, Any, Any]]


class Waiters:
    """Those of one event loop who wait for tasks to end."""

    def __init__(self, run: RunInThread) -> None:
        """``run(function, *args)`` calls a function in a thread that may use the database."""
        self._run = run
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._subscribed = asyncio.Event()
        self._jobs: list[asyncio.Task[None]] = []
        self._idle_since = 0.0

    def __len__(self) -> int:
        return sum(len(events) for events in self._waiting.values())

    @property
    def is_listening(self) -> bool:
        """Whether published changes are heard now."""
        return self._subscribed.is_set()

    async def until_final(self, task_id: UUID, seconds: float) -> None:
        """Return when the task is final, or after ``seconds``. It may have been final before."""
        event = asyncio.Event()
        name = str(task_id)
        self._waiting.setdefault(name, set()).add(event)
        try:
            async with asyncio.timeout(seconds):
                self._start()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._subscribed.wait(), SUBSCRIBE_S)
                # Looked at after the subscription stands: what ended before is seen here, what ends later is told.
                if not await self._final_among([task_id]):
                    await event.wait()
        except TimeoutError:
            return
        finally:
            self._leave(name, event)

    async def _final_among(self, task_ids: list[UUID]) -> list[UUID]:
        try:
            found: list[UUID] = await self._run(finished_ids, task_ids)
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

    def _start(self) -> None:
        self._jobs = [job for job in self._jobs if not job.done()]
        if not self._jobs:
            self._jobs = [asyncio.create_task(self._listen()), asyncio.create_task(self._look())]

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            for event in self._waiting.get(name, ()):
                event.set()

    async def _listen(self) -> None:
        """Hear of changes; while Redis is away, try again each second."""
        while True:
            try:
                await self._subscription()
            except (redis.RedisError, OSError) as error:
                log.debug("no changes of state from Redis: %s", error)
            finally:
                self._subscribed.clear()
            await asyncio.sleep(LOOK_S)

    async def _subscription(self) -> None:
        client = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=SUBSCRIBE_S)
        async with client, client.pubsub() as channel:
            await channel.subscribe(keys().changes())
            async for message in channel.listen():
                if message["type"] == "subscribe":
                    self._subscribed.set()
                elif message["type"] == "message" and self._waiting:
                    self._wake(ended_in(message["data"]))

    async def _look(self) -> None:
        """Ask the ledger each second about all who are waited for; end the jobs when nobody has waited for long."""
        loop = asyncio.get_running_loop()
        self._idle_since = loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            if self._waiting:
                self._idle_since = loop.time()
                self._wake(
                    str(found) for found in await self._final_among([UUID(name) for name in self._waiting])
                )
            elif loop.time() - self._idle_since > LINGER_S:
                self.close()
                return

    def close(self) -> None:
        """Stop listening; the next waiter starts it again."""
        current = asyncio.current_task()
        for job in self._jobs:
            if job is not current:
                job.cancel()
        self._jobs = []
        self._subscribed.clear()


def ended_in(data: bytes | str) -> list[str]:
    """The ids of tasks that a published batch of changes says are final; none for what is not such a batch."""
    try:
        changes = json.loads(data)
        return [task_id for task_id, state in changes if state in FINAL_NUMBERS]
    except (ValueError, TypeError):
        log.warning("a message that is no list of changes: %.100r", data)
        return []
