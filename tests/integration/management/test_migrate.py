"""``manage.py migrate`` beside the work."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.commands import migrate
from django.db import connection
from django.db.utils import OperationalError

from slackwater.management.commands import migrate as ours
from slackwater_tasks.ledger.connection import connect

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_does_not_get_its_lock_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    with connect() as reader:
        reader.execute("BEGIN")
        reader.execute("LOCK TABLE slackwater_tasks_task IN ACCESS SHARE MODE")

        def handle(self: Any, *args: Any, **options: Any) -> None:
            with connection.cursor() as cur:
                cur.execute("SHOW lock_timeout")
                tried.extend(cur.fetchone())
                cur.execute("ALTER TABLE slackwater_tasks_task SET (fillfactor = 100)")
                cur.execute("ALTER TABLE slackwater_tasks_task RESET (fillfactor), ALTER COLUMN name DROP DEFAULT")

        monkeypatch.setattr(migrate.Command, "handle", handle)
        monkeypatch.setattr(ours, "sleep", lambda _: reader.execute("ROLLBACK"))
        said = io.StringIO()
        call_command("migrate", stderr=said)
    assert tried == ["2s", "2s"]
    assert "trying again" in said.getvalue()


def test_another_fault_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(self: Any, *args: Any, **options: Any) -> None:
        raise OperationalError("no such thing")

    monkeypatch.setattr(migrate.Command, "handle", handle)
    with pytest.raises(OperationalError, match="no such thing"):
        call_command("migrate")
