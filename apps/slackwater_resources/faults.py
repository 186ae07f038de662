"""Errors of a database that is away, or has ended a session: callers try again and never end because of them."""

from __future__ import annotations

import psycopg

ENDED: tuple[type[Exception], ...] = (
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
)
"""Errors that psycopg does not count as operational: the server ended the session of a process that was stopped too long
inside a transaction, or has become a standby. A new connection helps: it is made only to a server that takes writes
(``target_session_attrs``)."""
FAULTS: tuple[type[Exception], ...] = (psycopg.OperationalError, psycopg.InterfaceError, *ENDED)
"""All of them."""
BROKEN: tuple[type[Exception], ...] = (psycopg.OperationalError, *ENDED)
"""Errors after which the connection is closed and repeatable work is repeated."""
