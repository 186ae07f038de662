"""What the peers share: their configuration, the timing channel, and emptying the servers of the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import redis

from tests.lab.benchmarks.channel import Channel
from tests.lab.benchmarks.peer import Config, Peer

CONFIG = Config.from_json(os.environ["BENCH_CONFIG"])
MARK = "slackwater-bench"
_open: list[Channel] = []


def channel() -> Channel:
    """The timing channel, opened where a task first runs."""
    if not _open:
        _open.append(Channel(Path(CONFIG.channel)))
    return _open[0]


class Rival(Peer):
    """A peer that keeps its tasks in PostgreSQL, Redis or both."""

    count: LiteralString = ""
    """The query for how many tasks are recorded as finished; empty: it keeps no record."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self._conn: psycopg.Connection[Any] | None = None

    @property
    def pg(self) -> psycopg.Connection[Any]:
        """A connection for what is not measured."""
        if self._conn is None:
            self._conn = psycopg.connect(CONFIG.database_url, autocommit=True)
        return self._conn

    def empty_servers(self) -> None:
        """Nothing is left of the peer before."""
        self.pg.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        self.flush_redis()

    def flush_redis(self) -> None:
        """Empty Redis, and say whose it is."""
        with redis.Redis.from_url(CONFIG.redis_url) as client:
            client.flushdb()
            client.set(MARK, "1")

    def recorded(self) -> int | None:
        if not self.count:
            return None
        row = self.pg.execute(self.count).fetchone()
        return int(row[0]) if row else None

    def teardown(self) -> None:
        if self._conn is not None:
            self._conn.close()
