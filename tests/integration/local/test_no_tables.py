"""Processes of the platform on a database that nobody has migrated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import with_database
from tests.support.processes import ROOT, manage

WORKER = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "slackwater", "worker", "-c", "1", "-n", "empty@test"]


@pytest.fixture
def empty(database_url: str) -> Iterator[str]:
    """A database without a table."""
    name = f"empty_{uuid4().hex[:8]}"
    with psycopg.connect(with_database(database_url, "postgres"), autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"')
        try:
            yield with_database(database_url, name)
        finally:
            conn.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.mark.parametrize(
    "command", [manage("run_dispatcher"), manage("run_upkeep"), WORKER], ids=["dispatcher", "upkeep", "worker"]
)
def test_a_database_without_tables_is_told_in_one_line(empty: str, redis_url: str, command: list[str]) -> None:
    env = {
        **os.environ, "SLACKWATER_DATABASE_URL": empty, "SLACKWATER_REDIS_URL": redis_url,
        "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "platform", ROOT / "apps"))),
    }  # fmt: skip
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "has no tables of Slackwater: run `manage.py migrate`\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert "UndefinedTable" not in done.stderr
