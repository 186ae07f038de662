"""The API's threads: the one that rested last works next, no more work at once than there are, each with its connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from slackwater_api.server.thread_pool import ThreadPool
from slackwater_tasks.ledger.connection import connect

pytestmark = pytest.mark.django_db(transaction=True)
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)"


@contextmanager
def threads(number: int) -> Iterator[ThreadPool]:
    pool = ThreadPool(number)
    yield pool
    pool.close()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 30))


def session() -> int:
    with connection.cursor() as cur:
        cur.execute("SELECT pg_backend_pid()")
        return int(cur.fetchone()[0])


def test_the_one_that_rested_last_works_next() -> None:
    async def story(pool: ThreadPool) -> None:
        first = {await pool.run(threading.get_ident) for _ in range(20)}
        assert len(first) == 1
        gate = threading.Event()

        def wait() -> int:
            assert gate.wait(20)
            return threading.get_ident()

        jobs = [asyncio.ensure_future(pool.run(wait)) for _ in range(5)]
        await asyncio.sleep(0.05)
        assert not any(job.done() for job in jobs)
        gate.set()
        assert len(set(await asyncio.gather(*jobs))) <= 3, "what is too much for three waits for one of them"
        assert len({await pool.run(threading.get_ident) for _ in range(20)}) == 1

    with threads(3) as pool:
        run(story(pool))


def test_what_fails_is_told_and_the_thread_goes_on() -> None:
    async def story(pool: ThreadPool) -> None:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await pool.run(divmod, 1, 0)
        left = asyncio.ensure_future(pool.run(threading.Event().wait, 0.2))
        await asyncio.sleep(0.05)
        left.cancel()
        assert await pool.run(divmod, 7, 2) == (3, 1)

    with threads(1) as pool:
        run(story(pool))


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    done: list[int] = []

    async def story(pool: ThreadPool) -> None:
        gate = threading.Event()
        first = asyncio.ensure_future(pool.run(gate.wait, 20))
        await asyncio.sleep(0.05)
        others = [asyncio.ensure_future(pool.run(done.append, n)) for n in range(2)]
        await asyncio.sleep(0.05)
        others[0].cancel()
        gate.set()
        await asyncio.gather(first, others[1])

    with threads(1) as pool:
        run(story(pool))
    assert done == [1]


def test_the_end_waits_for_what_was_given_and_takes_no_more() -> None:
    done: list[int] = []
    pool = ThreadPool(2)

    async def story() -> None:
        gate = threading.Event()

        def work(n: int) -> None:
            assert gate.wait(20)
            done.append(n)

        jobs = [asyncio.ensure_future(pool.run(work, n)) for n in range(7)]
        await asyncio.sleep(0.05)
        closing = asyncio.ensure_future(asyncio.to_thread(pool.close))
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*jobs, closing)
        for _ in range(4):
            with pytest.raises(RuntimeError):
                await pool.run(work, 8)

    run(story())
    assert sorted(done) == list(range(7))


def test_they_keep_their_connections_and_close_them_in_the_end() -> None:
    async def story(pool: ThreadPool) -> list[int]:
        gate = threading.Barrier(2)

        def look() -> int:
            gate.wait(20)
            return session()

        found = await asyncio.gather(pool.run(look), pool.run(look))
        assert await pool.run(session) in found
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 1, 0)
        assert await pool.run(session) in found
        return list(found)

    with threads(2) as pool:
        pool.warm()
        sessions = run(story(pool))
        with connect() as conn:
            assert conn.execute(SESSIONS, (sessions,)).fetchone() == (2,)
    with connect() as conn:
        for _ in range(200):
            if conn.execute(SESSIONS, (sessions,)).fetchone() == (0,):
                break
            conn.execute("SELECT pg_sleep(0.05)")
        assert conn.execute(SESSIONS, (sessions,)).fetchone() == (0,)
