"""A running attempt and the connection over which it asks the platform."""

from __future__ import annotations

import threading

from scheduler_ext.core.work import Started
from slackwater_tasks.ledger.connection import Database

_own = threading.local()


def own_connection() -> Database:
    """This thread's own connection: no other transaction may hold a claim back."""
    if not hasattr(_own, "db"):
        _own.db = Database("slackwater effects")
    found: Database = _own.db
    return found


class Attempt:
    """One running attempt; what it saves stands, whatever becomes of the handler's own transactions."""

    def __init__(self, task: Started, db: Database | None = None) -> None:
        """``db``: a connection nobody else uses meanwhile; this thread's own by default."""
        self.task = task
        self._db = db

    @property
    def db(self) -> Database:
        return self._db or own_connection()
