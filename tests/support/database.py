"""The databases of a test run: one that is migrated once, a copy of it for each worker, emptied by deletes.

Django empties the tables after each test that commits by truncating all of them, half a second a test, and takes
the migrations' rows away with the test's. Here only those tables are written that the test has changed, and the
rows that the migrations made stay: a copy of them lies in the schema `pristine`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

from slackwater.settings.environment import given_database_url

# Above this size a table that was emptied is also made small again.
LARGE = 4 * 1024 * 1024  # bytes

TABLES = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname
"""
CHANGED = {
    False: "SELECT '{0}' WHERE EXISTS (SELECT FROM {0})",
    True: (
        "SELECT '{0}' WHERE EXISTS (SELECT t::text FROM {0} t EXCEPT SELECT p::text FROM pristine.{0} p)"
        " OR EXISTS (SELECT p::text FROM pristine.{0} p EXCEPT SELECT t::text FROM {0} t)"
    ),
}
RESTORE = {
    False: ["DELETE FROM {0}"],
    True: [
        "DELETE FROM {0} t WHERE NOT EXISTS (SELECT FROM pristine.{0} p WHERE p::text = t::text)",
        "INSERT INTO {0} SELECT p.* FROM pristine.{0} p WHERE NOT EXISTS (SELECT FROM {0} t WHERE t::text = p::text)",
    ],
}
SMALLER = "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND pg_table_size(oid) > %s"


class Flush:
    """Empties the tables that a test has written; what it asks of the database is made up at its first use."""

    def __init__(self) -> None:
        self._seeded: dict[str, bool] = {}  # by table: whether migrations leave rows in it
        self._changed = ""

    def __call__(self) -> None:
        """Bring the tables back to what the migrations made of them."""
        with transaction.atomic(), connection.cursor() as cur:
            if not self._changed:
                self._learn(cur)
            cur.execute(self._changed)
            written = [name for (name,) in cur.fetchall()]
            for name in written:
                for statement in RESTORE[self._seeded[name]]:
                    cur.execute(statement.format(name))
        if written:
            with connection.cursor() as cur:
                cur.execute(SMALLER, [written, LARGE])
                for (name,) in cur.fetchall():
                    cur.execute(f"VACUUM (TRUNCATE) {name}")

    def _learn(self, cur: Any) -> None:
        cur.execute("SELECT relname FROM pg_class WHERE relnamespace = 'pristine'::regnamespace AND relkind = 'r'")
        seeded = {name for (name,) in cur.fetchall()}
        cur.execute(TABLES)
        self._seeded = {name: name in seeded for (name,) in cur.fetchall()}
        self._changed = " UNION ALL ".join(CHANGED[seeded].format(name) for name, seeded in self._seeded.items())


_flush = Flush()


def _empty_tables(_: TransactionTestCase) -> None:
    _flush()


def _use(name: str) -> None:
    connection.close()
    settings.DATABASES["default"]["NAME"] = name
    connection.settings_dict["NAME"] = name


def _migrate() -> None:
    """Run the migrations in the database in use and put a copy of their rows aside."""
    call_command("migrate", verbosity=0, interactive=False)
    with connection.cursor() as cur:
        cur.execute("CREATE SCHEMA pristine")
        cur.execute(TABLES)
        for (name,) in cur.fetchall():
            cur.execute(f"CREATE TABLE pristine.{name} AS TABLE public.{name}")
            cur.execute(f"SELECT EXISTS (SELECT FROM {name})")
            if not cur.fetchone()[0]:
                cur.execute(f"DROP TABLE pristine.{name}")
    connection.close()


def _copy_template(server: psycopg.Connection[Any], template: str, name: str) -> None:
    """Make a database as a copy of the template; whoever comes first makes that one."""
    server.execute("SELECT pg_advisory_lock(hashtext(%s))", [template])
    if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [template]).fetchone():
        server.execute(f"DROP DATABASE IF EXISTS {template}_draft")
        server.execute(f"CREATE DATABASE {template}_draft")
        _use(f"{template}_draft")
        _migrate()
        server.execute(f"ALTER DATABASE {template}_draft RENAME TO {template}")
    server.execute(f"DROP DATABASE IF EXISTS {name}")
    server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    server.execute("SELECT pg_advisory_unlock(hashtext(%s))", [template])


@pytest.fixture(scope="session")
def django_db_setup(request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """This worker's database; takes the place of pytest-django's own fixture."""
    worker = re.sub(r"\W", "", getattr(request.config, "workerinput", {}).get("workerid", "alone"))
    template = str(settings.DATABASES["default"]["TEST"]["NAME"])
    original = settings.DATABASES["default"]["NAME"]
    name = f"{template}_{worker}"
    TransactionTestCase._fixture_teardown = _empty_tables  # type: ignore[attr-defined]
    with django_db_blocker.unblock(), psycopg.connect(given_database_url(), autocommit=True) as server:
        _copy_template(server, template, name)
        _use(name)
    yield
    with django_db_blocker.unblock(), psycopg.connect(given_database_url(), autocommit=True) as server:
        connections.close_all()
        _use(original)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def drop_template() -> None:
    """Drop the template of this run, where the server outlives it."""
    with psycopg.connect(given_database_url(), autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {settings.DATABASES['default']['TEST']['NAME']}")
