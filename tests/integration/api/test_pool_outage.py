"""The API's pool of database connections while the database is away, and once it is back."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
from psycopg_pool import ConnectionPool

from slackwater.local.servers import EmbeddedPostgres, socket_folder
from slackwater.settings.environment import database_from_url
from tests.support.waiting import wait_until

AWAY_S = 7.0


def test_refused_soon_while_the_database_is_away_and_served_soon_after(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "postgres", socket_folder(tmp_path), durable=False) as postgres:
        options = database_from_url(postgres.url, pooled=False, pool_size=4)["OPTIONS"]["pool"]
        longest = 0.0

        def works() -> bool:
            nonlocal longest
            began = time.monotonic()
            try:
                with pool.connection() as connection:
                    connection.execute("SELECT 1")
                return True
            except psycopg.OperationalError:
                longest = max(longest, time.monotonic() - began)
                return False

        with ConnectionPool(postgres.url, open=True, check=ConnectionPool.check_connection, **options) as pool:
            assert works()
            postgres.stop()
            began = time.monotonic()
            wait_until(lambda: not works() and time.monotonic() - began > AWAY_S, message="it is away")
            postgres.start()
            back = time.monotonic()
            wait_until(works, message="it serves again")
            assert time.monotonic() - back < 5.0, "no long pause before the next attempt to connect"
            assert longest < 10.0, "who asks meanwhile is refused soon"
