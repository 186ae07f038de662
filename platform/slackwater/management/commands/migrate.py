"""Django's own, which lets the work go on: it waits two seconds for a lock, and tries again. A new database takes a
third of the time: after each operation Django makes the classes of nearly all models anew, since nearly all lead to the
tenant; here it makes those that the operation concerns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any, Final

from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations.state import ProjectState, get_related_models_tuples
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
        if connections[options["database"]].vendor != "postgresql":  # another database of a project has nothing of ours
            super().handle(*args, **options)
            return
        for left in reversed(range(TRIES)):
            with connections[options["database"]].cursor() as cur:
                cur.execute(f"SET lock_timeout = '{WAIT_S}s'")
            try:
                with concerned():
                    super().handle(*args, **options)
                return
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != LOCK_NOT_AVAILABLE or not left:
                    raise
                self.stderr.write(f"a table is in use for longer than {WAIT_S} s; trying again in {PAUSE_S:g} s")
            sleep(PAUSE_S)


@contextmanager
def concerned() -> Iterator[None]:
    """A changed model and its neighbours are rendered anew, as Django does for a change that is no relation's.

    The state counts as delayed, so that code (``RunPython``, ``post_migrate``) sees all of it rendered.
    """
    whole = ProjectState._find_reload_model  # type: ignore[attr-defined]

    def neighbours(self: Any, app_label: str, model_name: str, delay: bool = False) -> set[tuple[str, str]]:
        self.is_delayed = True
        found = {(app_label, model_name)}
        try:
            return found | get_related_models_tuples(self.apps.get_model(app_label, model_name))
        except LookupError:  # it is new: nobody leads to it
            return found

    ProjectState._find_reload_model = neighbours  # type: ignore[attr-defined]
    try:
        yield
    finally:
        ProjectState._find_reload_model = whole  # type: ignore[attr-defined]
