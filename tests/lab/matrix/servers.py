"""Servers of a version, empty, for one combination."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import redis

from slackwater.local.process import give_to_server, run, start, stop, unprivileged
from slackwater.local.servers import ServerError, socket_folder
from slackwater.local.servers.folders import free_port
from tests.support.waiting import wait_until


@contextlib.contextmanager
def postgres(program: Path, folder: Path, database: str) -> Iterator[str]:
    """A PostgreSQL with an empty database; yields its URL."""
    sockets, data, run_as = socket_folder(folder), folder / "postgres", unprivileged()
    data.mkdir(parents=True, mode=0o700)
    give_to_server(data, run_as)
    options = ["-D", str(data), "-U", "slackwater", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
    made = run([str(program.with_name("initdb")), *options], run_as=run_as, cwd="/")
    if made.returncode:
        raise ServerError(made.stderr[-800:])
    command = [str(program), "-D", str(data), "-k", str(sockets), "-c", "listen_addresses=", "-c", "fsync=off"]

    def url(name: str) -> str:
        return f"postgresql://slackwater@/{name}?host={quote(str(sockets), safe='')}&port=5432"

    def answers() -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(url("postgres"), connect_timeout=5).close()
            return True
        return False

    with (folder / "postgres.log").open("wb") as log:
        server = start(command, stdout=log, stderr=log, env={"LC_ALL": "C"}, cwd="/", run_as=run_as,
                       death_signal=signal.SIGINT)  # fmt: skip
    try:
        wait_until(answers, timeout=120, message="PostgreSQL answers")
        with psycopg.connect(url("postgres"), autocommit=True) as conn:
            conn.execute(f'CREATE DATABASE "{database}"')
        yield url(database)
    finally:
        stop([server], timeout=60, stop_signal=signal.SIGINT)
        shutil.rmtree(sockets, ignore_errors=True)


@contextlib.contextmanager
def broker(program: Path, folder: Path) -> Iterator[str]:
    """A Redis or Valkey that is empty; yields its URL."""
    port = free_port()
    command = [str(program), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]

    def answers() -> bool:
        with contextlib.suppress(redis.ConnectionError), redis.Redis(port=port) as client:
            return bool(client.ping())
        return False

    with (folder / "redis.log").open("wb") as log:
        server = start(command, stdout=log, stderr=subprocess.STDOUT, env={})
    try:
        wait_until(answers, timeout=60, message="Redis answers")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        stop([server], timeout=20)
