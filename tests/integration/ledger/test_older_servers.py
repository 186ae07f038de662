"""The plans of the ledger's statements on older servers: PostgreSQL 16 out of the wheel, 15 where the machine has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from slackwater.local.process import give_to_server, run, tied, unprivileged
from slackwater.local.servers import socket_folder
from slackwater.local.servers.postgres import programs
from tests.support.waiting import wait_until

PROGRAMS = {15: Path("/usr/lib/postgresql/15/bin"), 16: programs().parents[1] / "pginstall" / "bin"}
HERE = Path(__file__).parent
PLANS = ("test_query_plans.py", "test_statement_plans.py")


@contextmanager
def server(version: int, folder: Path) -> Iterator[str]:
    """A server of that version with its defaults, in a folder of its own; its URL."""
    place, sockets, run_as = PROGRAMS[version], socket_folder(folder), unprivileged()
    data = folder / "data"
    data.mkdir(mode=0o700)
    give_to_server(data, run_as)
    options = ["-N", "-U", "slackwater", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
    made = run([str(place / "initdb"), "-D", str(data), *options], run_as=run_as, cwd="/")
    assert made.returncode == 0, made.stderr
    url = f"postgresql://slackwater@/postgres?host={sockets}"
    command = [
        str(place / "postgres"),
        "-D",
        str(data),
        "-k",
        str(sockets),
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(tied(command, run_as=run_as), stdout=log, stderr=log, cwd="/")
    try:
        wait_until(lambda: _answers(url), timeout=120)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", PROGRAMS)
def test_plans_are_the_same(version: int, tmp_path: Path, redis_url: str) -> None:
    if not PROGRAMS[version].exists():
        pytest.skip(f"there is no PostgreSQL {version} on this machine")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "SLACKWATER_TEST"))}
    with server(version, tmp_path) as url:
        tried = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *(str(HERE / name) for name in PLANS)],
            env=kept | {"SLACKWATER_DATABASE_URL": url, "SLACKWATER_REDIS_URL": redis_url},
            cwd=HERE.parents[2], capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert tried.returncode == 0, tried.stdout[-5000:]
    assert " skipped" not in tried.stdout
