"""A statement that is run by its name does what one of Django's cursors does, faults and all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import DataError, OperationalError, connection, connections, transaction

from slackwater_tasks.ledger import connection as module
from slackwater_tasks.ledger.connection import fetch_rows

pytestmark = pytest.mark.django_db(transaction=True)
HALF = "SELECT 1 / $1::int, $2::text, NULL, $3::bool FROM generate_series(1, 2) WHERE $4::bool"
GIVEN = (b"1", "höchstens".encode(), b"t", b"t")
NAMES = "SELECT count(*) FROM pg_prepared_statements WHERE statement = %s"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    connection.close()
    yield
    connection.close()


def names() -> int:
    with connection.cursor() as cur:
        cur.execute(NAMES, [HALF])
        return int(cur.fetchone()[0])


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_it_answers_with_the_rows_and_prepares_once(pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", pooled)
    ours = connections["default"]
    for _ in range(3):
        assert fetch_rows(ours, HALF, GIVEN) == [(1, "höchstens", None, True)] * 2
        assert fetch_rows(ours, HALF, (*GIVEN[:3], None)) == []
    assert names() == (0 if pooled else 1)


def test_what_a_pool_hands_on_keeps_its_names() -> None:
    base: Any = connections["default"]
    options = {**base.settings_dict["OPTIONS"], "pool": {"min_size": 1, "max_size": 1}}
    settings = {**base.settings_dict, "CONN_MAX_AGE": 0, "OPTIONS": options}
    pair = [type(base)(settings, "one_pool") for _ in range(2)]
    try:
        for ours in (*pair, *pair):
            assert len(fetch_rows(ours, HALF, GIVEN)) == 2
            with ours.cursor() as cur:
                cur.execute(NAMES, [HALF])
                assert cur.fetchone() == (1,)
            ours.close()
    finally:
        pair[0].close_pool()


def test_not_all_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMES", 3)
    ours = connections["default"]
    for _ in range(2):
        for n in range(5):
            assert fetch_rows(ours, f"SELECT {n} + $1::int", (b"1",)) == [(n + 1,)]
    with connection.cursor() as cur:
        cur.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'slackwater%'")
        assert cur.fetchone() == (3,)


def test_inside_a_transaction_it_is_part_of_that() -> None:
    ours = connections["default"]
    count = "UPDATE counted SET n = n + $1::int RETURNING n"
    with connection.cursor() as cur:
        cur.execute("CREATE TEMP TABLE counted AS SELECT 1 AS n")
    assert fetch_rows(ours, count, (b"1",)) == [(2,)]
    with transaction.atomic():
        assert fetch_rows(ours, count, (b"1",)) == [(3,)]
        transaction.set_rollback(True)
    assert fetch_rows(ours, count, (b"1",)) == [(3,)]


def test_a_fault_is_one_of_djangos_and_spoils_nothing() -> None:
    ours = connections["default"]
    with pytest.raises(DataError) as caught:
        fetch_rows(ours, HALF, (b"0", *GIVEN[1:]))
    assert isinstance(caught.value.__cause__, psycopg.errors.DivisionByZero)
    assert len(fetch_rows(ours, HALF, GIVEN)) == 2
    with pytest.raises(OperationalError):
        fetch_rows(ours, "SELECT $1::int, pg_terminate_backend(pg_backend_pid())", (b"1",))
    with pytest.raises(OperationalError):
        fetch_rows(ours, HALF, GIVEN)  # as Django has it: the connection is closed by whoever has it, not under him
    ours.close()
    assert len(fetch_rows(ours, HALF, GIVEN)) == 2


def test_what_the_session_has_forgotten_is_prepared_again() -> None:
    ours = connections["default"]
    assert len(fetch_rows(ours, HALF, GIVEN)) == 2
    with connection.cursor() as cur:
        cur.execute("DISCARD ALL")
    assert names() == 0
    assert len(fetch_rows(ours, HALF, GIVEN)) == 2
    assert names() == 1


def test_a_statement_that_is_cancelled_leaves_the_connection_of_use() -> None:
    ours = connections["default"]
    with connection.cursor() as cur:
        cur.execute("SET statement_timeout = '50ms'")
    with pytest.raises(OperationalError) as caught:
        fetch_rows(ours, "SELECT pg_sleep($1::float8)", (b"30",))
    assert isinstance(caught.value.__cause__, psycopg.errors.QueryCanceled)
    assert len(fetch_rows(ours, HALF, GIVEN)) == 2
