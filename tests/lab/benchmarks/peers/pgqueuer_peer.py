"""PgQueuer: tasks are rows in PostgreSQL, coroutines in two processes. ``b100``: batches of 100 instead of 10."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Mapping
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from tests.lab.benchmarks.measure import main
from tests.lab.benchmarks.peers.common import CONFIG, Rival, channel

CHUNK = 1000


async def work_through() -> None:
    """What a worker process does."""
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(CONFIG.database_url)))

    @queue.entrypoint("work")
    async def work(job: Job) -> None:
        number, ms = json.loads(job.payload or b"")
        await channel().awork(number, ms)

    if CONFIG.variant == "b100":
        await queue.run(batch_size=100)
    else:
        await queue.run()


class Pgqueuer(Rival):
    """Submitted by the thousand."""

    packages = ("pgqueuer", "asyncpg")
    durable = True
    count = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"

    def setup(self) -> None:
        self.empty_servers()
        self.loop = asyncio.new_event_loop()
        self.connection = self._do(asyncpg.connect(CONFIG.database_url))
        self.queries = Queries(AsyncpgDriver(self.connection))
        self._do(self.queries.install())

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def reset(self) -> None:
        self.pg.execute("TRUNCATE pgqueuer, pgqueuer_log")

    def workers(self) -> Mapping[str, list[str]]:
        return {f"worker-{n + 1}": [sys.executable, __file__, "worker"] for n in range(CONFIG.concurrency)}

    def submit(self, number: int) -> None:
        self._do(self.queries.enqueue("work", self._payload(number)))

    def submit_bulk(self, first: int, end: int) -> None:
        for start in range(first, end, CHUNK):
            numbers = range(start, min(end, start + CHUNK))
            size = len(numbers)
            self._do(self.queries.enqueue(["work"] * size, [self._payload(n) for n in numbers], [0] * size))

    def _payload(self, number: int) -> bytes:
        return json.dumps([number, CONFIG.ms]).encode()

    def teardown(self) -> None:
        self._do(self.connection.close())
        super().teardown()


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        asyncio.run(work_through())
    else:
        main(Pgqueuer())
