"""Procrastinate: tasks are rows in PostgreSQL, plain functions in threads of one worker."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import procrastinate

from tests.lab.benchmarks.measure import main
from tests.lab.benchmarks.peers.common import CONFIG, Rival, channel

CHUNK = 1000
app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=CONFIG.database_url),
    import_paths=["procrastinate_peer"],
)


@app.task(name="work")
def work(number: int, ms: float) -> None:
    """The measured function."""
    channel().work(number, ms)


class Procrastinate(Rival):
    """One worker with two at once, submitted by the thousand unless the variant is ``single``."""

    packages = ("procrastinate", "psycopg")
    durable = True
    count = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"

    def setup(self) -> None:
        self.empty_servers()
        app.open()
        app.schema_manager.apply_schema()

    def reset(self) -> None:
        self.pg.execute("TRUNCATE procrastinate_jobs, procrastinate_events CASCADE")

    def workers(self) -> Mapping[str, list[str]]:
        options = ["worker", "--concurrency", str(CONFIG.concurrency)]
        return {"worker": [sys.executable, "-m", "procrastinate", "--app=procrastinate_peer.app", *options]}

    def submit(self, number: int) -> None:
        work.defer(number=number, ms=CONFIG.ms)

    def submit_bulk(self, first: int, end: int) -> None:
        if CONFIG.variant == "single":
            super().submit_bulk(first, end)
            return
        for start in range(first, end, CHUNK):
            work.batch_defer(*({"number": n, "ms": CONFIG.ms} for n in range(start, min(end, start + CHUNK))))

    def teardown(self) -> None:
        app.close()
        super().teardown()


if __name__ == "__main__":
    main(Procrastinate())
