"""``manage.py migrate`` beside the work."""

from __future__ import annotations

import io
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.commands import migrate
from django.db import connection, transaction
from django.db.utils import OperationalError

from slackwater.management.commands import migrate as ours
from slackwater.settings.environment import given_database_url
from slackwater_tasks.ledger.connection import connect
from tests.support import database

pytestmark = pytest.mark.django_db(transaction=True)
SCHEMA = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text, a.attnum::text,
    pg_get_expr(x.adbin, x.adrelid), a.attidentity::text, c.reloptions::text
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    LEFT JOIN pg_attrdef x ON x.adrelid = a.attrelid AND x.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
UNION ALL SELECT tablename, indexname, indexdef, '', '', '', '', '' FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '', '', '', ''
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT proname, prosrc, '', '', '', '', '', '' FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), '', '', '', '', ''
    FROM pg_trigger WHERE NOT tgisinternal
"""


def test_what_does_not_get_its_lock_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    with connect() as reader:
        reader.execute("BEGIN")
        reader.execute("LOCK TABLE slackwater_tasks_task IN ACCESS SHARE MODE")

        def handle(self: Any, *args: Any, **options: Any) -> None:
            with transaction.atomic(), connection.cursor() as cur:
                cur.execute("SHOW lock_timeout")
                tried.extend(cur.fetchone())
                cur.execute("LOCK TABLE slackwater_tasks_task IN ACCESS EXCLUSIVE MODE")

        monkeypatch.setattr(migrate.Command, "handle", handle)
        monkeypatch.setattr(ours, "sleep", lambda _: reader.execute("ROLLBACK"))
        said = io.StringIO()
        call_command("migrate", stderr=said)
    assert tried == ["2s", "2s"]
    assert "trying again" in said.getvalue()


def test_a_database_of_another_kind_is_left_to_django(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(migrate.Command, "handle", lambda self, **options: called.append(options["database"]))
    monkeypatch.setattr(ours, "connections", {"other": SimpleNamespace(vendor="sqlite")})
    ours.Command().handle(database="other")
    assert called == ["other"]


def test_another_fault_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(self: Any, *args: Any, **options: Any) -> None:
        raise OperationalError("no such thing")

    monkeypatch.setattr(migrate.Command, "handle", handle)
    with pytest.raises(OperationalError, match="no such thing"):
        call_command("migrate")


@pytest.mark.slow
def test_what_is_rendered_sparingly_makes_the_schema_that_django_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> set[str]:
        with connection.cursor() as cur:
            cur.execute(SCHEMA)
            rows = set(map(str, cur.fetchall()))
            cur.execute(database.TABLES)
            for (table,) in cur.fetchall():
                cur.execute(f"SELECT '{table}', count(*) FROM {table}")
                rows.add(str(cur.fetchone()))
        return rows

    quick, own = found(), str(connection.settings_dict["NAME"])
    monkeypatch.setattr(ours, "concerned", nullcontext)
    with psycopg.connect(given_database_url(), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {own}_whole")
        try:
            database._use(f"{own}_whole")
            call_command("migrate", verbosity=0, interactive=False)
            whole = found()
        finally:
            database._use(own)
            server.execute(f"DROP DATABASE {own}_whole WITH (FORCE)")
    assert len(quick) > 1000
    assert [row for row in {*quick, *whole} if (row in quick) != (row in whole)] == []
