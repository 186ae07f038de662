"""Statements over Django's connection; and connections of the engine's own, apart from Django's.

Celery closes Django's connection around each of its tasks, and the hot path wants prepared statements and autocommit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, connection, connections
from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from slackwater_conf import conf
from slackwater_resources.faults import BROKEN

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
Values = Sequence[bytes | None]
"""A statement's parameters, as PostgreSQL reads them: without a NUL, at which it would stop."""
MOST_NAMES = 64
"""The most statements that are kept prepared for a session under names of ours: each takes it half a megabyte."""
FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)
PREPARE_AFTER = 2
PARAMETER = re.compile(r"%\((\w+)\)s|%%")
HOT_PLANS = (
    "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off"
    " -c enable_hashjoin=off -c enable_mergejoin=off -c enable_sort=off -c jit=off"
)
"""A hot connection plans each statement once, for its life, maybe while the tables are empty. Every one of them goes
from a list of ids, or from a line, to rows by their index: no statistics may talk the planner out of it, and no index
that past work has left large makes it sort what another one gives. Nothing is compiled: before 18 a small table without
an index, once read, counted as dear enough for it, and took 70 ms of it."""


def connect(*, application_name: str = "slackwater", hot: bool = False) -> psycopg.Connection[tuple[Any, ...]]:
    """Open an autocommit connection to the database of the ledger, with Django's options.

    ``hot``: it runs the few statements of deciding and running over and over, and prepares them.
    """
    ours = connections[conf().ledger_alias]
    params = dict(ours.get_connection_params())
    for name in ("cursor_factory", "context", "pool", "server_side_binding", "prepare_threshold"):
        params.pop(name, None)
    params["application_name"] = application_name
    # Planning FINISH anew would cost as much as running it for fifty tasks. Only PgBouncer in transaction mode, whose
    # settings rule server-side cursors out, can neither keep prepared statements nor take options.
    prepares = not ours.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
    if prepares and hot:
        params["options"] = f"{params.get('options', '')} {HOT_PLANS}".strip()
    conn = psycopg.connect(**params, autocommit=True)
    # Of the others only what asks for it: a count that no statement reaches does not make psycopg deaf, as None does.
    conn.prepare_threshold = (PREPARE_AFTER if hot else sys.maxsize) if prepares else None
    return conn


class _Prepared(psycopg.RawCursor[tuple[Any, ...]]):
    """A cursor that prepares its statements at first use: planning them anew would cost more than running them."""

    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = True, binary: bool | None = None
    ) -> Any:
        return super().execute(query, params, prepare=prepare, binary=binary)


@contextmanager
def prepared_cursor(ours: Any = None) -> Iterator[psycopg.RawCursor[tuple[Any, ...]]]:
    """A cursor of Django's connection for statements with numbered parameters, which the server binds.

    It is kept as long as the connection: to make one costs more than to use it. So what it has read is fetched before it
    is asked for again. ``ours``: the connection, where the caller has looked it up.
    """
    ours = ours or connections[DEFAULT_DB_ALIAS]  # looked up once: each access to ``connection`` does it again
    ours.ensure_connection()
    cur = getattr(ours, "_slackwater_cursor", None)
    if cur is None or cur.closed or cur.connection is not ours.connection:
        cur = ours._slackwater_cursor = _cursor(ours)
    with ours.wrap_database_errors:
        yield cur


def _cursor(ours: Any) -> psycopg.RawCursor[tuple[Any, ...]]:
    raw = ours.connection
    kind: type[psycopg.RawCursor[tuple[Any, ...]]] = psycopg.RawCursor
    if not ours.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        kind = _Prepared
        if raw.prepare_threshold is None:
            # Django's None makes psycopg deaf to ``prepare=True``; a count that no statement reaches does not.
            raw.prepare_threshold = sys.maxsize
    return kind(raw)


def fetch_rows(ours: Any, statement: str, values: Values) -> list[tuple[Any, ...]]:
    """The rows that a statement answers which is run over and over.

    It is run by the name under which it was prepared: what psycopg's cursor looks up, copies and makes anew each time costs
    several times what it takes to send a few dozen values that are text already. ``ours``: Django's connection; faults are
    those of its cursors.
    """
    ours.ensure_connection()
    raw = ours.connection
    # A transaction of the caller's may have to be begun first, PgBouncer keeps no names, and a pipeline waits for nothing.
    alone = raw.autocommit and raw.pgconn.pipeline_status == PipelineStatus.OFF
    if alone and not ours.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        with ours.wrap_database_errors:
            return _named(raw).fetch_rows(statement, values)
    with prepared_cursor(ours) as cur:
        return cur.execute(statement, [v.decode() if v is not None else None for v in values]).fetchall()


def fetch_named_rows(cur: Any, statement: str, params: Mapping[str, str | int]) -> list[tuple[Any, ...]]:
    """The same of a statement with named parameters, over a hot connection; over anything else that has ``execute`` too."""
    if isinstance(cur, psycopg.Connection) and cur.prepare_threshold is not None and _is_at_rest(cur.pgconn):
        text, names = _numbered(statement)
        return _named(cur).fetch_rows(text, [str(params[name]).encode() for name in names])
    rows: list[tuple[Any, ...]] = cur.execute(statement, params).fetchall()
    return rows


def _is_at_rest(pgconn: PGconn) -> bool:
    """Whether no transaction is open, in which a name that was forgotten could not be given anew, and no pipeline."""
    return pgconn.transaction_status == TransactionStatus.IDLE and pgconn.pipeline_status == PipelineStatus.OFF


@cache
def _numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """A statement with numbers in place of the names of its parameters, and the names in their order."""
    names: dict[str, int] = {}
    text = PARAMETER.sub(lambda found: f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%", statement)
    return text, tuple(names)


def _named(raw: Any) -> _Named:
    """A session's statements, with the session, which has them: a pool hands it from one of Django's connections to another."""
    found: _Named | None = getattr(raw, "_slackwater_named", None)
    if found is None:
        found = raw._slackwater_named = _Named(raw)
    return found


class _Named:
    """The statements that a connection has prepared under names of ours."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw
        self._names: dict[str, bytes] = {}
        self._numbers = count()
        self._reads = Transformer(raw)

    def fetch_rows(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        with self.raw.lock:
            try:
                result = self._run(statement, values)
            except psycopg.errors.InvalidSqlStatementName:
                # Nothing was done: all names were forgotten, as psycopg has the session do after a transaction rolled back.
                self._names.clear()
                result = self._run(statement, values)
            self._reads.set_pgresult(result)
            return self._reads.load_rows(0, result.ntuples, tuple)

    def _run(self, statement: str, values: Values) -> PGresult:
        name = self._names.get(statement)
        if name is None:
            if len(self._names) >= MOST_NAMES:
                self._forget(next(iter(self._names)))
            name = b"slackwater_%d" % next(self._numbers)
            self.raw.pgconn.send_prepare(name, statement.encode())
            self._answer()
            self._names[statement] = name
        self.raw.pgconn.send_query_prepared(name, values)
        return self._answer()

    def _forget(self, statement: str) -> None:
        self.raw.pgconn.send_query(b"DEALLOCATE " + self._names.pop(statement))
        self._answer()

    def _answer(self) -> PGresult:
        result: PGresult = self.raw.wait(generators.execute(self.raw.pgconn))[0]
        if result.status in FAILED:
            raise psycopg.errors.error_from_result(result)
        return result


class Database:
    """A connection that is opened when needed, and reopened after it broke."""

    def __init__(self, name: str, *, hot: bool = False) -> None:
        """``name`` is shown in ``pg_stat_activity``; ``hot`` as in :func:`connect`."""
        self.name = name
        self.hot = hot
        self._conn: psycopg.Connection[tuple[Any, ...]] | None = None

    @property
    def conn(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect(application_name=self.name, hot=self.hot)
        return self._conn

    def close(self) -> None:
        """Close it; the next use opens it anew."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def repeatable(
        self, work: Callable[[Connection], T], *, tries: int = 4, single: bool = False,
        pipelined: bool = False,
    ) -> T:  # fmt: skip
        """Run ``work`` in one transaction; again after a deadlock, or once more after a broken connection.

        ``single``: it is one statement, which is a transaction by itself and saves two round trips. ``pipelined``: its
        statements wait for nothing but what is fetched. What it does not fetch can be fetched when it is committed, and a
        fault of that comes at the end.

        Only for work that may safely be done twice: everything fenced is, for the second time changes nothing.
        """
        for attempt in range(tries):
            try:
                if single:
                    return work(self.conn)
                if pipelined:
                    return self._pipelined(self.conn, work)
                with self.conn.transaction():
                    return work(self.conn)
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                if attempt == tries - 1:
                    raise
            except BROKEN:
                self.close()
                if attempt:
                    raise
        raise AssertionError("unreachable")

    @staticmethod
    def _pipelined(conn: Connection, work: Callable[[Connection], T]) -> T:
        """As ``conn.transaction()`` does in pipeline mode, which asks the server three times more."""
        try:
            with conn.pipeline():
                conn.execute("BEGIN")
                found = work(conn)
                conn.execute("COMMIT")
        except BaseException:
            if not conn.closed:
                conn.rollback()  # it also forgets statements whose preparing was skipped
            raise
        return found


def fetch_each(cur: Any, *statements: tuple[str, Any]) -> list[list[tuple[Any, ...]]]:
    """What each statement answers; a connection in pipeline mode asks them all at once."""
    if isinstance(cur, psycopg.Connection):
        return [asked.fetchall() for asked in [cur.execute(*each) for each in statements]]
    return [cur.execute(*each).fetchall() for each in statements]


# -- over Django's own connection, which sees what its transaction has written ---------------------------------------
class Borrowed:
    """Django's connection in place of one of the engine's, for what explains and shows."""

    def __init__(self) -> None:
        connection.ensure_connection()
        self.conn = connection.connection


def fetch_all(query: str, params: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def fetch_value(query: str, params: Any = None) -> Any:
    """The first column of a statement's first row; ``None`` when it has no row."""
    found = fetch_all(query, params)
    return found[0][0] if found else None


def fetch_dicts(query: str, params: Any = None) -> list[dict[str, Any]]:
    """All rows of a statement, each by its columns' names."""
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]


def fetch_named(query: str, params: Any = None) -> dict[str, Any] | None:
    """A statement's first row by its columns' names; ``None`` when it has no row."""
    found = fetch_dicts(query, params)
    return found[0] if found else None


def execute(query: str, params: Any = None) -> int:
    """Run a statement; returns how many rows it changed."""
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        return int(cursor.rowcount)
