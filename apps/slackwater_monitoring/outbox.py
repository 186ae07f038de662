"""Rows that are sent to receivers outside: claimed under a lease, sent outside any transaction, then recorded.

Webhooks, notices of alerts and traces each have a table of such rows and a thread that sends them. Any number of
processes may send; the claims of one that dies pass to the others when their lease is over.
"""

from __future__ import annotations

import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.db import InterfaceError, OperationalError, connection
from psycopg.types.json import Jsonb

from slackwater_resources.faults import FAULTS
from slackwater_tasks.ledger.connection import Database

log = logging.getLogger(__name__)

LEASE_S: Final = 60.0
"""Seconds for which a claimed row belongs to the process that claimed it."""
JITTER: Final = 0.2
STOP_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 10.0
"""Pause after an error that nobody expected."""
DATABASE_AWAY: Final[tuple[type[Exception], ...]] = (*FAULTS, OperationalError, InterfaceError)
"""What psycopg or Django raises while the database is away."""


def back_off_s(waits_s: Sequence[float], failures: int, rng: random.Random) -> float:
    """Seconds until the next attempt after so many failures (at least one), with some jitter."""
    wait = waits_s[min(max(failures, 1), len(waits_s)) - 1]
    return wait * (1 + JITTER * (2 * rng.random() - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What became of a claimed row."""

    id: Any
    token: int
    """The token that the claim returned. A row claimed again since no longer belongs to this process."""
    arrived: bool
    wait_s: float | None = None
    """Seconds until the next attempt; ``None``: there is none."""
    note: Any = None
    """JSON for the table's own log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedOutbox:
    """The two statements over a table of rows to send."""

    claim_sql: str
    """Takes rows that are due, with ``FOR UPDATE SKIP LOCKED``, and moves them ``%(lease)s`` seconds on."""
    record_sql: str
    """Writes what became of rows, which it reads from :func:`outcomes`."""

    def claim(self, conn: Any, **params: Any) -> list[tuple[Any, ...]]:
        """Claim rows that are due; they are this process's until the lease is over."""
        with conn.cursor() as cursor:
            cursor.execute(self.claim_sql, {**params, "lease": LEASE_S})
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def record(self, conn: Any, sent: Iterable[Sent]) -> None:
        """Write what became of claimed rows: arrived, again later, or given up."""
        rows = list(sent)
        with conn.cursor() as cursor:
            cursor.execute(
                self.record_sql,
                {
                    "ids": [one.id for one in rows],
                    "tokens": [one.token for one in rows],
                    "arrived": [one.arrived for one in rows],
                    "waits": [one.wait_s for one in rows],
                    "notes": [Jsonb(one.note) for one in rows],
                },
            )


def outcomes(id_type: str) -> str:
    """The SQL of what :meth:`LeasedOutbox.record` is given, as rows ``u(id, token, arrived, wait, note)``."""
    return (
        f"unnest(%(ids)s::{id_type}[], %(tokens)s::int[], %(arrived)s::bool[], %(waits)s::float8[], %(notes)s::jsonb[])"
        " AS u(id, token, arrived, wait, note)"
    )


class SendingThread(ABC):
    """Looks for what is due and sends it, in a thread and over a connection of its own, until it is stopped.

    So a receiver that does not answer delays no job of upkeep.
    """

    name: ClassVar[str]
    first_look_s: float = 0.0
    """Seconds until the first look."""

    def __init__(self, *, poll_s: float) -> None:
        """``poll_s``: seconds between two looks while there is nothing to send."""
        self.poll_s = poll_s
        self.db = Database(f"slackwater {self.name}")
        self._stopping = threading.Event()
        self._asked = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def step(self) -> float:
        """Send what is due; returns the seconds until the next look."""

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look now: this process has just made something due."""
        self._asked.set()

    def stop(self) -> None:
        """Stop. Another process sends the claimed rows when their lease is over."""
        self._stopping.set()
        self.wake()
        if self._thread is None:
            self.close()
        else:
            self._thread.join(timeout=STOP_TIMEOUT_S)

    def close(self) -> None:
        """Close what the thread has opened."""
        self.db.close()

    def _run(self) -> None:
        pause_s = self.first_look_s
        while True:
            self._asked.wait(pause_s)
            if self._stopping.is_set():
                break
            self._asked.clear()
            try:
                pause_s = self.step()
                continue
            except DATABASE_AWAY as error:
                log.warning("%s: waiting for the database: %s", self.name, str(error).strip().splitlines()[:1])
                pause_s = self.poll_s
            except Exception:
                log.exception("%s: the next look is in %g s", self.name, RETRY_S)
                pause_s = RETRY_S
            self.db.close()
            connection.close()
        self.close()
        connection.close()
