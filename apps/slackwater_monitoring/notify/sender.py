"""Sending what is due: claimed with SKIP LOCKED under a lease, sent outside any transaction, then recorded.

It runs in a thread of its own, with a connection and an event loop of its own, so that a receiver that does not answer
delays no other job of upkeep. Any number of processes may send; one that dies leaves its claims to the others.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from scheduler_ext.core.errors import SlackwaterError
from slackwater_monitoring.notify import subscriptions
from slackwater_monitoring.notify.email_digest import send_digest
from slackwater_monitoring.notify.subscriptions import open_secret
from slackwater_monitoring.notify.webhook_client import NotSent, post
from slackwater_monitoring.notify.webhook_signature import signature
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.submission.webhook_address import parse_url, private_allowed

log = logging.getLogger(__name__)

BACK_OFF_S: Final = (5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200)
"""Waits between the attempts at a delivery: some 28 hours in all."""
JITTER: Final = 0.2
SECONDS: Final = 15.0
"""Time for one attempt, from looking up the host to the answer's head."""
LEASE_S: Final = 60.0
AT_ONCE: Final = 64
AT_ONCE_TO_ONE: Final = 8
"""Open requests of one process, in all and to one receiver: who hangs does not hold up the others."""
LOOK_S: Final = 0.5
DISABLE_AFTER_S: Final = 5 * 86_400
"""A receiver that has taken nothing for this long is sent nothing more."""
GONE: Final = 410
MAILED: Final = 250
"""What SMTP says of a message it has taken."""
MAIL_EVENTS: Final = 500
"""Events in one message."""

CLAIM = """
WITH due AS (
    SELECT d.id, s.id AS subscription FROM (
        SELECT id FROM slackwater_monitoring_subscription
        WHERE enabled AND channel = ANY(%(channels)s) AND NOT id = ANY(%(busy)s::uuid[]) ORDER BY random()) s
    CROSS JOIN LATERAL (
        SELECT x.id FROM slackwater_monitoring_delivery x
        WHERE x.subscription_id = s.id AND x.state = 'pending' AND x.next_attempt_at <= statement_timestamp()
        ORDER BY x.next_attempt_at LIMIT %(each)s FOR UPDATE SKIP LOCKED) d
    LIMIT %(most)s)
UPDATE slackwater_monitoring_delivery d SET attempts = d.attempts + 1, tries_left = greatest(0, d.tries_left - 1),
    next_attempt_at = clock_timestamp() + %(lease)s * interval '1 second'
FROM due JOIN slackwater_monitoring_subscription s ON s.id = due.subscription WHERE d.id = due.id
RETURNING d.id::text, d.attempts, d.tries_left, d.payload, s.id::text, s.tenant_id,
    coalesce(nullif(d.url, ''), s.url), s.sealed,
    CASE WHEN s.before_until > clock_timestamp() THEN s.sealed_before ELSE ''::bytea END, s.channel
"""
# Compared by the number of attempts: one whose lease ran out was sent by another meanwhile, and does not record.
RECORD = """
WITH u AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(attempts)s::int[], %(good)s::bool[], %(waits)s::float8[], %(logs)s::jsonb[])
    AS u(id, attempts, good, wait, entry)),
done AS (
    UPDATE slackwater_monitoring_delivery d SET
        state = CASE WHEN u.good THEN 'delivered' WHEN u.wait IS NULL THEN 'failed' ELSE 'pending' END,
        delivered_at = CASE WHEN u.good THEN clock_timestamp() END,
        next_attempt_at = CASE WHEN u.wait IS NULL THEN d.next_attempt_at
            ELSE clock_timestamp() + u.wait * interval '1 second' END,
        log = CASE WHEN jsonb_array_length(d.log) < 40 THEN d.log ELSE d.log - 0 END || u.entry
    FROM u WHERE d.id = u.id AND d.attempts = u.attempts AND d.state = 'pending'
    RETURNING d.subscription_id, u.good)
UPDATE slackwater_monitoring_subscription s SET failing_since = CASE WHEN r.good THEN NULL
    ELSE coalesce(s.failing_since, clock_timestamp()) END
FROM (SELECT subscription_id, bool_or(good) AS good FROM done GROUP BY 1) r
WHERE s.id = r.subscription_id AND (r.good AND s.failing_since IS NOT NULL OR NOT r.good AND s.failing_since IS NULL)
"""
LONG_FAILING = """
SELECT id::text FROM slackwater_monitoring_subscription
WHERE enabled AND channel <> 'task' AND failing_since < clock_timestamp() - %s * interval '1 second'
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery to attempt now."""

    id: str
    attempt: int
    tries_left: int
    payload: str
    subscription_id: str
    tenant_id: int
    url: str
    sealed: bytes
    sealed_before: bytes
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """What became of it."""

    claimed: Claimed
    at: float
    took_s: float
    status: int | None = None
    error: str = ""
    retry_after_s: float | None = None

    @property
    def is_good(self) -> bool:
        """Whether the receiver took it."""
        return self.status is not None and 200 <= self.status < 300

    def wait_s(self, rng: random.Random) -> float | None:
        """Seconds to the next attempt; ``None`` when there is none."""
        if self.is_good or not self.claimed.tries_left:
            return None
        if self.status == GONE and self.claimed.channel == "task":
            return None
        done = subscriptions.TRIES - self.claimed.tries_left
        wait = BACK_OFF_S[min(max(done, 1), len(BACK_OFF_S)) - 1]
        return max(wait * (1 + JITTER * (2 * rng.random() - 1)), self.retry_after_s or 0)

    def entry(self) -> dict[str, Any]:
        """As the delivery's log has it."""
        return {"at": self.at, "status": self.status, "error": self.error, "ms": round(self.took_s * 1000)}


async def attempt(claimed: Claimed, *, private: bool) -> Attempted:
    """Sign and send one delivery; whatever goes wrong is in the answer."""
    at, began = time.time(), time.monotonic()
    status, error, retry_after = None, "", None
    try:
        target = parse_url(claimed.url, private=private)
        body = claimed.payload.encode()
        answer = await post(target, _headers(claimed, int(at), body), body, private=private, seconds=SECONDS)
        status, retry_after = answer.status, answer.retry_after_s
        if not answer.is_good:
            error = f"it answered {status}"
    except (NotSent, SlackwaterError) as problem:
        error = str(problem)[:300]
    except Exception as problem:
        log.exception("webhook %s could not be sent", claimed.id)
        error = f"not sent: {type(problem).__name__}"
    return Attempted(
        claimed=claimed, at=at, took_s=time.monotonic() - began, status=status, error=error,
        retry_after_s=retry_after,
    )  # fmt: skip


def _headers(claimed: Claimed, timestamp: int, body: bytes) -> dict[str, str]:
    sealed = [bytes(s) for s in (claimed.sealed, claimed.sealed_before) if s]
    keys = [open_secret(claimed.tenant_id, claimed.subscription_id, one) for one in sealed]
    return {
        "Content-Type": "application/json",
        "User-Agent": "Slackwater-Webhooks/1",
        "webhook-id": claimed.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(keys, claimed.id, timestamp, body),
    }


def claim(conn: Any, channels: Sequence[str], *, each: int, most: int, busy: Sequence[str] = ()) -> list[Claimed]:
    """Take deliveries that are due, at most ``each`` of one subscription; they are this process's for a minute."""
    params = {"channels": list(channels), "busy": list(busy), "each": each, "most": most, "lease": LEASE_S}
    return [Claimed(*row) for row in conn.execute(CLAIM, params).fetchall()]


class Sender:
    """Claims, sends and records, as long as it runs."""

    def __init__(self, *, look_s: float = LOOK_S) -> None:
        self.db = Database("slackwater notify")
        self.look_s = look_s
        self._rng = random.Random()
        self._open: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self.run()), name="notify", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; what is open is sent again by another when its lease is over."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    async def run(self) -> None:
        """Until told to stop."""
        jobs: set[asyncio.Task[Attempted]] = set()
        mails: asyncio.Task[int] | None = None
        while not self._stopping.is_set():
            try:
                jobs |= {asyncio.create_task(attempt(one, private=private_allowed())) for one in self._claim(len(jobs))}
                if mails is None or mails.done():
                    mails = asyncio.create_task(asyncio.to_thread(self.mail))
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                log.warning("notifications wait for the database: %s", str(error).strip().splitlines()[:1])
                self.db.close()
            done: set[asyncio.Task[Attempted]] = set()
            if jobs:
                done, jobs = await asyncio.wait(jobs, timeout=self.look_s, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(self.look_s)
            if done:
                await self._record([job.result() for job in done])
        for job in jobs:
            job.cancel()
        self.db.close()

    def mail(self) -> int:
        """Send the e-mail that is due, one message for each subscription; returns how many events are in them."""
        database = Database("slackwater mail")
        try:
            by_subscription: dict[str, list[Claimed]] = {}
            for one in claim(database.conn, ["email"], each=MAIL_EVENTS, most=MAIL_EVENTS):
                by_subscription.setdefault(one.subscription_id, []).append(one)
            for claimed in by_subscription.values():
                done = _mailed(claimed, database)
                database.repeatable(lambda conn, done=done: record(conn, done, self._rng))  # type: ignore[misc]
            return sum(map(len, by_subscription.values()))
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            log.warning("e-mail waits for the database: %s", str(error).strip().splitlines()[:1])
            return 0
        finally:
            database.close()

    def _claim(self, open_now: int) -> list[Claimed]:
        conn = self.db.conn
        if open_now >= AT_ONCE:
            return []
        busy = [name for name, count in self._open.items() if count >= AT_ONCE_TO_ONE]
        channels = ["webhook", "task"]
        claimed = claim(conn, channels, each=AT_ONCE_TO_ONE, most=AT_ONCE - open_now, busy=busy)
        self._open.update(one.subscription_id for one in claimed)
        return claimed

    async def _record(self, done: Sequence[Attempted]) -> None:
        for one in done:
            self._open[one.claimed.subscription_id] -= 1
            if self._open[one.claimed.subscription_id] <= 0:
                del self._open[one.claimed.subscription_id]
        while not self._stopping.is_set():
            try:
                self.db.repeatable(lambda conn: record(conn, done, self._rng))
                break
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                log.warning("deliveries are not recorded yet: %s", str(error).strip().splitlines()[:1])
                await asyncio.sleep(1.0)
        for one in done:
            # A task's own address that is gone says nothing of the others'.
            if one.status == GONE and one.claimed.channel != "task":
                await asyncio.to_thread(_disable, one.claimed.subscription_id, "its receiver answered 410: gone")


def _mailed(claimed: Sequence[Claimed], database: Database) -> list[Attempted]:
    at, began, error = time.time(), time.monotonic(), ""
    try:
        send_digest(database.conn, claimed[0].tenant_id, [json.loads(one.payload) for one in claimed])
    except (OSError, NotSent) as problem:  # what SMTP raises is an OSError
        error = str(problem)[:300] or type(problem).__name__
    took, status = time.monotonic() - began, MAILED if not error else None
    return [Attempted(claimed=one, at=at, took_s=took, status=status, error=error) for one in claimed]


def record(conn: Any, done: Sequence[Attempted], rng: random.Random) -> None:
    """Write what became of attempts: delivered, again later, or given up."""
    conn.execute(
        RECORD,
        {
            "ids": [one.claimed.id for one in done],
            "attempts": [one.claimed.attempt for one in done],
            "good": [one.is_good for one in done],
            "waits": [one.wait_s(rng) for one in done],
            "logs": [Jsonb(one.entry()) for one in done],
        },
    )


def _disable(subscription_id: str, reason: str) -> None:
    from django.db import connection

    try:
        subscriptions.disable(subscription_id, reason)
    finally:
        connection.close()


def disable_long_failing(db: Database) -> int:
    """Disable subscriptions whose receiver has taken nothing for days."""
    rows = db.conn.execute(LONG_FAILING, (DISABLE_AFTER_S,)).fetchall()
    for row in rows:
        _disable(row[0], f"no delivery has succeeded for {DISABLE_AFTER_S // 86_400} days")
    return len(rows)
