"""The threads that answer the API's requests, with a database connection each."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import DatabaseError, connection, connections

CHECK_AFTER_IDLE_S = 5.0
CONNECTION_AGE_S = 600.0
WARM_S = 10.0


class ThreadPool:
    """The threads that answer requests; each keeps its database connection between them."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="api")
        self._mine = threading.local()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call ``function`` in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._call, function, args)

    def start(self, function: Callable[..., Any], args: tuple[Any, ...],
              done: Callable[[Any, BaseException | None], None]) -> None:  # fmt: skip
        """Call ``function`` in one of the threads; then ``done``, in the loop, with what it returned or raised.

        A coroutine and a future each would take turns of the loop of their own: the loop would be awake twice as often.
        """
        loop = asyncio.get_running_loop()

        def work() -> None:
            found: Any = None
            fault: BaseException | None = None
            try:
                found = self._call(function, args)
            except BaseException as error:  # noqa: BLE001 (it is told to whoever asked)
                fault = error
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever asked
                loop.call_soon_threadsafe(done, found, fault)

        try:
            self._pool.submit(work)
        except RuntimeError as error:  # the server is ending
            loop.call_soon(done, None, error)

    def warm(self) -> None:
        """Open the threads' connections now, so that no client waits for that; returns at once."""
        together = threading.Barrier(self._threads)

        def open_one() -> None:
            # Each thread takes one of these, because none goes on before all have come.
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(timeout=WARM_S)
            with contextlib.suppress(DatabaseError):  # it may be away; who asks first is told so
                connection.ensure_connection()

        for _ in range(self._threads):
            self._pool.submit(self._call, open_one, ())

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._before()
        try:
            return function(*args)
        finally:
            self._after()

    def close(self) -> None:
        """End the threads once they have done what they were given; each closes its connections first."""
        together = threading.Barrier(self._threads)

        def last() -> None:
            together.wait()  # for as long as the busiest needs: no other may take its turn and leave its connection open
            connections.close_all()

        for _ in range(self._threads):
            self._pool.submit(last)
        self._pool.shutdown()

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
