"""The threads that answer the API's requests, with a database connection each."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from django.db import DatabaseError, connection, connections

CHECK_AFTER_IDLE_S = 5.0
CONNECTION_AGE_S = 600.0
Work = Callable[[], Callable[[], None]]
"""What a thread is to do; it returns what is to be said of it once the thread is free again."""


class ThreadPool:
    """The threads that answer requests; each keeps its database connection between them.

    Who came to rest last is the next to work: its connection, and PostgreSQL's process behind it, have at hand what
    they need. The others are for when that is not enough.
    """

    def __init__(self, threads: int) -> None:
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix="api") for _ in range(threads)]
        self._resting = self._threads.copy()
        self._waiting: deque[Work] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._mine = threading.local()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call ``function`` in one of the threads."""
        found = asyncio.get_running_loop().create_future()

        def work() -> Any:
            return None if found.cancelled() else function(*args)  # whoever asked may have left before its turn

        self.start(work, (), partial(_settle, found))
        return await found

    def start(self, function: Callable[..., Any], args: tuple[Any, ...],
              done: Callable[[Any, BaseException | None], None]) -> None:  # fmt: skip
        """Call ``function`` in one of the threads; then ``done``, in the loop, with what it returned or raised.

        A coroutine and a future each would take turns of the loop of their own: the loop would be awake twice as often.
        """
        loop = asyncio.get_running_loop()

        def work() -> Callable[[], None]:
            found: Any = None
            fault: BaseException | None = None
            try:
                found = self._call(function, args)
            except BaseException as error:  # noqa: BLE001 (it is told to whoever asked)
                fault = error
            return partial(_tell, loop, done, found, fault)

        try:
            self._submit(work)
        except RuntimeError as error:  # the server is ending
            loop.call_soon(done, None, error)

    def _submit(self, work: Work) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("the server is ending")
            if not self._resting:
                self._waiting.append(work)
                return
            thread = self._resting.pop()
        thread.submit(self._do, thread, work)

    def _do(self, thread: ThreadPoolExecutor, work: Work) -> None:
        following: Work | None = work
        while following is not None:
            say = following()
            with self._lock:
                following = self._waiting.popleft() if self._waiting else None
                if following is None:
                    self._resting.append(thread)
            say()

    def warm(self) -> None:
        """Open the threads' connections now, so that no client waits for that; returns at once."""

        def open_one() -> None:
            with contextlib.suppress(DatabaseError):  # it may be away; who asks first is told so
                connection.ensure_connection()

        for thread in self._threads:
            thread.submit(self._call, open_one, ())

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._before()
        try:
            return function(*args)
        finally:
            self._after()

    def close(self) -> None:
        """End the threads once they have done what they were given; each closes its connections first."""
        with self._lock:
            self._closed = True
        for thread in self._threads:
            thread.submit(connections.close_all)
        for thread in self._threads:
            thread.shutdown()

    def _before(self) -> None:
        """A connection that lay idle is tried first: the server may have been restarted meanwhile."""
        now = time.monotonic()
        if now - getattr(self._mine, "used", now) > CHECK_AFTER_IDLE_S:
            for wrapper in connections.all(initialized_only=True):
                if wrapper.connection is not None and not wrapper.is_usable():
                    wrapper.close()

    def _after(self) -> None:
        """Give up a connection that failed, was left in a transaction, or is old."""
        now = self._mine.used = time.monotonic()
        for wrapper in connections.all(initialized_only=True):
            if wrapper.connection is None:
                continue
            opened = getattr(self._mine, "opened", None)
            if opened is None or opened[0] is not wrapper.connection:
                opened = self._mine.opened = (wrapper.connection, now)
            if wrapper.errors_occurred or wrapper.in_atomic_block or now - opened[1] > CONNECTION_AGE_S:
                wrapper.close()


def _settle(future: asyncio.Future[Any], found: Any, fault: BaseException | None) -> None:
    if future.done():  # whoever asked has left
        return
    if fault is None:
        future.set_result(found)
    else:
        future.set_exception(fault)


def _tell(loop: asyncio.AbstractEventLoop, done: Callable[[Any, BaseException | None], None], found: Any,
          fault: BaseException | None) -> None:  # fmt: skip
    with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever asked
        loop.call_soon_threadsafe(done, found, fault)
