"""The ledger in another database than the project's ``default``: the setting ``LEDGER_ALIAS`` names it.

What the platform does over Django's connection it does over ``default``. So a call into it has the ledger's connection
stand for that one, in its own thread, until it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from django.db import DEFAULT_DB_ALIAS, ProgrammingError, connections

from slackwater_conf import conf

P = ParamSpec("P")
R = TypeVar("R")
NO_TABLES: Final = "the database {!r} has no tables of Slackwater: run `manage.py migrate`"


def is_elsewhere() -> bool:
    """Whether the caller's transaction cannot be the ledger's."""
    return conf().ledger_alias != DEFAULT_DB_ALIAS


@contextmanager
def ledger() -> Iterator[None]:
    """Let the ledger's connection be Django's: what is done inside is not part of the caller's transaction."""
    held: Any = connections
    own = connections[DEFAULT_DB_ALIAS]
    held[DEFAULT_DB_ALIAS] = connections[conf().ledger_alias]
    try:
        yield
    finally:
        held[DEFAULT_DB_ALIAS] = own


def in_ledger(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, run so where the ledger is elsewhere. Without our tables its ``ProgrammingError`` says what to do."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if not is_elsewhere():
                return function(*args, **kwargs)
            with ledger():
                return function(*args, **kwargs)
        except ProgrammingError as error:
            if type(error.__cause__).__name__ != "UndefinedTable" or '"slackwater_' not in str(error):
                raise
            name = str(connections[conf().ledger_alias].settings_dict["NAME"])
            raise ProgrammingError(NO_TABLES.format(name)) from error

    return run


class LedgerRouter:
    """Django's router for a project whose ledger is elsewhere: its tables are there, and who runs it migrates them."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        """The ledger's, for what is the platform's."""
        return conf().ledger_alias if is_elsewhere() and _is_ours(model._meta.app_label) else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
        """Its tables are made by the platform."""
        return False if is_elsewhere() and _is_ours(app_label) else None


def _is_ours(label: str) -> bool:
    return label.startswith("slackwater_")
