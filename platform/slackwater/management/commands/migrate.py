"""Django's own, which lets the work go on: it waits two seconds for a lock, and tries again."""

from __future__ import annotations

from time import sleep
from typing import Any, Final

from django.core.management.commands import migrate
from django.db import connections
from django.db.utils import OperationalError

WAIT_S: Final = 2
"""Everybody who wants the table waits behind a migration that waits for it."""
PAUSE_S: Final = 3.0
TRIES: Final = 40
LOCK_NOT_AVAILABLE: Final = "55P03"


class Command(migrate.Command):
    """``manage.py migrate``"""

    help = "Bring the schema up to date (or back), while the platform runs: what does not get its lock is tried again."

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate; what was done already is not done again."""
        for left in reversed(range(TRIES)):
            with connections[options["database"]].cursor() as cur:
                cur.execute(f"SET lock_timeout = '{WAIT_S}s'")
            try:
                super().handle(*args, **options)
                return
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != LOCK_NOT_AVAILABLE or not left:
                    raise
                self.stderr.write(f"a table is in use for longer than {WAIT_S} s; trying again in {PAUSE_S:g} s")
            sleep(PAUSE_S)
