"""What attempts used, added up."""

from __future__ import annotations

from slackwater_monitoring import usage
from slackwater_tasks.ledger.connection import connect
from tests.support.waiting import wait_until


# -- usage ------------------------------------------------------------------------------------------------------------
def add_up() -> int:
    with connect() as conn, conn.transaction():
        return usage.add_up(conn)


def settle() -> None:
    """Until all attempts are in: they wait for every transaction before them, also of others on the same server."""
    newest = number("SELECT coalesce(max(id), 0) FROM slackwater_tasks_attempt")

    def all_in() -> bool:
        add_up()
        return number("SELECT coalesce(max(done), 0) FROM slackwater_monitoring_usagemark") >= newest

    wait_until(all_in, timeout=120, message="all attempts are added up")


def number(query: str) -> int:
    """Asked on a connection of its own, which threads do not leave behind."""
    with connect() as conn:
        row = conn.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def ended() -> None:
    """Until the ends without attempts are in as well."""
    settle()
    newest = number("SELECT coalesce(max(id), 0) FROM slackwater_tasks_taskevent")

    def all_in() -> bool:
        add_up()
        return number("SELECT events_done FROM slackwater_monitoring_usagemark") >= newest

    wait_until(all_in, timeout=120, message="all ends are added up")
