"""Work whose statements wait for nothing but what is fetched: two round trips, and no connection left in a fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from slackwater_tasks.ledger.connection import Database, fetch_each

pytestmark = pytest.mark.django_db(transaction=True)
SENT = re.compile(r"(?m)^(?:\S+ \S+\t)?([FB])\t")


@pytest.fixture
def db() -> Iterator[Database]:
    made = Database("pipelined", hot=True)
    made.conn.execute("CREATE TABLE pipelined (n int PRIMARY KEY)")
    yield made
    made.conn.execute("DROP TABLE pipelined")
    made.close()


def rows(db: Database) -> list[int]:
    return [n for (n,) in db.conn.execute("SELECT n FROM pipelined ORDER BY n")]


def two_then_one(conn: Any) -> Any:
    first, second = fetch_each(
        conn, ("INSERT INTO pipelined VALUES (1) RETURNING n", ()), ("SELECT count(*) FROM pipelined", ())
    )
    assert (first, second) == ([(1,)], [(1,)])
    return conn.execute("INSERT INTO pipelined VALUES (2) RETURNING n")


def test_two_round_trips(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "messages"
    with path.open("w") as file:
        db.conn.pgconn.trace(file.fileno())
        late = db.repeatable(two_then_one, pipelined=True)
        db.conn.pgconn.untrace()
    assert late.fetchall() == [(2,)]
    assert rows(db) == [1, 2]
    ways = "".join(SENT.findall(path.read_text()))
    assert len(re.findall("F+B+", ways)) == 2, ways


@pytest.mark.parametrize("fetched", [True, False])
def test_a_fault_is_told_as_it_is_and_nothing_of_the_work_stays(db: Database, *, fetched: bool) -> None:
    def work(conn: Any) -> Any:
        conn.execute("INSERT INTO pipelined VALUES (1)")
        failing = conn.execute("SELECT 1/0 FROM pipelined")
        return failing.fetchall() if fetched else failing

    for _ in range(3):  # a statement that is prepared meanwhile, too
        with pytest.raises(psycopg.errors.DivisionByZero):
            db.repeatable(work, pipelined=True)
        assert db.conn.info.transaction_status is TransactionStatus.IDLE
    assert rows(db) == []


@pytest.mark.parametrize("broken", [True, False])
def test_it_is_done_again_after_a_deadlock_and_on_a_new_connection(db: Database, *, broken: bool) -> None:
    tries: list[int] = []

    def work(conn: Any) -> Any:
        tries.append(conn.info.backend_pid)
        if len(tries) == 1:
            conn.execute("INSERT INTO pipelined VALUES (3)")
            if not broken:
                raise psycopg.errors.DeadlockDetected("as the server would say")
            conn.execute("SELECT pg_terminate_backend(pg_backend_pid())").fetchall()
        return two_then_one(conn)

    assert db.repeatable(work, pipelined=True).fetchall() == [(2,)]
    assert len(tries) == 2
    assert (tries[0] != tries[1]) is broken
    assert rows(db) == [1, 2]
