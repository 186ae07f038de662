"""Processes of the platform on a database that nobody has migrated, and a worker whose settings are wrong."""

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


CALLS = {
    "delay": "task.delay(1)",
    "canvas": "celery.chain(task.s(1), task.s()).delay()",
    "by name": "app.send_task('shop.elsewhere')",
    "result": "app.AsyncResult('01930000-0000-7000-8000-000000000000').state",
}


def run(command: list[str], **said: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ, "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "platform", ROOT / "apps"))), **said,
    }  # fmt: skip
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_says_what_to_do_where_there_are_no_tables(empty: str, redis_url: str, call: str) -> None:
    made = "import celery, django, slackwater; django.setup(); app = celery.Celery('shop', broker='memory://')"
    task = "def mail(number): ...\ntask = app.task(name='shop.mail')(mail); app.finalize()"
    said = {"DATABASE_URL": empty, "REDIS_URL": redis_url, "DURABLE": "shop.*", "TENANT": "shop"}
    done = run([sys.executable, "-c", f"{made}\n{task}\n{call}"], **{f"SLACKWATER_{name}": said[name] for name in said})
    last = done.stderr.splitlines()[-1]
    assert last.startswith("django.db.utils.ProgrammingError: the database 'empty_")
    assert last.endswith("has no tables of Slackwater: run `manage.py migrate`")


@pytest.mark.parametrize(
    "command", [manage("run_dispatcher"), manage("run_upkeep"), WORKER], ids=["dispatcher", "upkeep", "worker"]
)
def test_a_database_without_tables_is_told_in_one_line(empty: str, redis_url: str, command: list[str]) -> None:
    done = run(command, SLACKWATER_DATABASE_URL=empty, SLACKWATER_REDIS_URL=redis_url)
    assert done.returncode == 1
    assert "has no tables of Slackwater: run `manage.py migrate`\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert "UndefinedTable" not in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SLACKWATER_HANDLERS", "nosuch.mod", "SLACKWATER_HANDLERS: there is no module 'nosuch.mod'"),
        ("SLACKWATER_SCHEDULER", '{"order_policy": "nope"}', "order_policy: there is no order policy 'nope'"),
        ("SLACKWATER_API_THREADS", "many", "SLACKWATER_API_THREADS must be a whole number, not 'many'"),
        ("SLACKWATER_LOG_FORMAT", "xml", "SLACKWATER_LOG_FORMAT must be one of console, json, not 'xml'"),
    ],
)
def test_a_worker_on_its_own_names_a_wrong_setting(name: str, value: str, said: str) -> None:
    done = run(WORKER, **{name: value})
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
