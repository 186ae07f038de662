"""The commands of docs/how-to/backup.md on the embedded PostgreSQL: what is dumped comes back whole."""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from slackwater.local.servers.postgres import programs
from slackwater.settings.environment import given_database_url
from slackwater_tasks.control import secrets
from slackwater_tasks.runtime.sealed import open_sealed
from slackwater_tasks.submission.service import submit, submit_workflow
from tests.conftest import with_database
from tests.support.api import HANDLER, client_of, furnish

pytestmark = pytest.mark.django_db(transaction=True)

TOOLS_MAJOR = 18
"""Version of the dump tools in the embedded PostgreSQL."""


def counts(url: str) -> dict[str, int]:
    """Rows of every table."""
    with psycopg.connect(url) as conn:
        tables = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {
            name: conn.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # type: ignore[index]
            for (name,) in tables
        }


def test_a_dump_restores_everything(database_url: str, tmp_path: Path) -> None:
    with connection.cursor() as cur:
        cur.execute("SHOW server_version_num")
        major = int(cur.fetchone()[0]) // 10_000
    if major != TOOLS_MAJOR:
        pytest.skip(
            f"the tools at hand are PostgreSQL {TOOLS_MAJOR}'s: a dump is restored to a server of their version"
        )
    furnish()
    tenant = client_of("acme").tenant
    submit_workflow(tenant, {"tasks": [{"name": n, "handler": HANDLER} for n in "abc"]})
    submit(tenant, {"handler": HANDLER, "args": ["kept"]})
    secrets.put(tenant, "KEY", "the value")
    dump, copy = tmp_path / "slackwater.dump", f"restored_{uuid4().hex[:8]}"
    tools = programs()
    subprocess.run([tools / "pg_dump", "--format=custom", f"--file={dump}", database_url], check=True, timeout=100)
    admin = with_database(given_database_url(), "postgres")
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{copy}"')
    try:
        restored = with_database(given_database_url(), copy)
        restore = [str(tools / "pg_restore"), "--exit-on-error", "--single-transaction", "--no-owner"]
        subprocess.run([*restore, f"--dbname={restored}", dump], check=True, timeout=100)
        assert counts(restored) == counts(database_url)
        assert counts(restored)["slackwater_tasks_task"] == 4
        with psycopg.connect(restored) as conn:
            held = conn.execute("SELECT fence, state FROM slackwater_tasks_livetask").fetchall()
            assert len(held) == 4
            (sealed,) = conn.execute("SELECT sealed FROM slackwater_tasks_secret").fetchone() or (b"",)
            assert open_sealed(tenant.pk, "KEY", bytes(sealed)) == "the value", "the key is not in the dump"
    finally:
        with psycopg.connect(admin, autocommit=True) as conn:
            conn.execute(f'DROP DATABASE "{copy}" WITH (FORCE)')
