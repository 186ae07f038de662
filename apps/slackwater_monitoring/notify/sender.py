"""Sending deliveries: webhooks, many at a time on an event loop of the thread's own, and e-mail by the minute."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler_ext.core.errors import SlackwaterError
from slackwater_conf import conf
from slackwater_monitoring.notify import subscriptions
from slackwater_monitoring.notify.email_digest import send_digest
from slackwater_monitoring.notify.subscriptions import open_secret
from slackwater_monitoring.notify.webhook_client import NotSent, post
from slackwater_monitoring.notify.webhook_signature import signed_headers
from slackwater_monitoring.outbox import LeasedOutbox, SendingThread, Sent, back_off_s, outcomes
from slackwater_resources.faults import FAULTS
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.submission.webhook_address import parse_given

log = logging.getLogger(__name__)

BACK_OFF_S: Final = (5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200)
"""Waits between the attempts at a delivery: some 28 hours in all."""
TIMEOUT_S: Final = 15.0
"""Time for one attempt, from looking up the host to the answer's head."""
MAX_OPEN: Final = 64
MAX_OPEN_EACH: Final = 8
"""Open requests of one process, in all and to one receiver: one that hangs does not hold up the others."""
POLL_S: Final = 0.5
REST_S: Final = 2.0
"""The same when nothing was due for a while: what this process makes due wakes its sender."""
REST_AFTER_S: Final = 10.0
"""Longer than the first wait after a failure, so that the new attempt is not late."""
DISABLE_AFTER_S: Final = 5 * 86_400
"""A receiver that has accepted nothing for this long is disabled."""
GONE: Final = 410
MAILED: Final = 250
"""SMTP's code for a message it has accepted."""
MAIL_EVENTS: Final = 500
"""Events in one message."""

DUE = """
SELECT DISTINCT s.channel = 'email' FROM slackwater_monitoring_subscription s WHERE s.enabled AND EXISTS (
    SELECT 1 FROM slackwater_monitoring_delivery x
    WHERE x.subscription_id = s.id AND x.state = 'pending' AND x.next_attempt_at <= statement_timestamp())
"""
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
# A delivery is this process's while its number of attempts is that of the claim.
RECORD = f"""
WITH done AS (
    UPDATE slackwater_monitoring_delivery d SET
        state = CASE WHEN u.arrived THEN 'delivered' WHEN u.wait IS NULL THEN 'failed' ELSE 'pending' END,
        delivered_at = CASE WHEN u.arrived THEN clock_timestamp() END,
        next_attempt_at = CASE WHEN u.wait IS NULL THEN d.next_attempt_at
            ELSE clock_timestamp() + u.wait * interval '1 second' END,
        log = CASE WHEN jsonb_array_length(d.log) < 40 THEN d.log ELSE d.log - 0 END || u.note
    FROM {outcomes("uuid")} WHERE d.id = u.id AND d.attempts = u.token AND d.state = 'pending'
    RETURNING d.subscription_id, u.arrived)
UPDATE slackwater_monitoring_subscription s SET failing_since = CASE WHEN r.arrived THEN NULL
    ELSE coalesce(s.failing_since, clock_timestamp()) END
FROM (SELECT subscription_id, bool_or(arrived) AS arrived FROM done GROUP BY 1) r
WHERE s.id = r.subscription_id
    AND (r.arrived AND s.failing_since IS NOT NULL OR NOT r.arrived AND s.failing_since IS NULL)
"""  # noqa: S608 - statements of ours
DELIVERIES: Final = LeasedOutbox(claim_sql=CLAIM, record_sql=RECORD)
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
    """The outcome."""

    claimed: Claimed
    at: float
    took_s: float
    status: int | None = None
    error: str = ""
    retry_after_s: float | None = None

    @property
    def is_good(self) -> bool:
        """Whether the receiver accepted it."""
        return self.status is not None and 200 <= self.status < 300

    def wait_s(self, rng: random.Random) -> float | None:
        """Seconds to the next attempt; ``None`` when there is none."""
        if self.is_good or not self.claimed.tries_left:
            return None
        if self.status == GONE and self.claimed.channel == "task":
            return None
        wait = back_off_s(BACK_OFF_S, subscriptions.MAX_TRIES - self.claimed.tries_left, rng)
        return max(wait, self.retry_after_s or 0)

    def sent(self, rng: random.Random) -> Sent:
        """The outcome for the outbox."""
        note = {"at": self.at, "status": self.status, "error": self.error, "ms": round(self.took_s * 1000)}
        wait_s = self.wait_s(rng)
        return Sent(id=self.claimed.id, token=self.claimed.attempt, arrived=self.is_good, wait_s=wait_s, note=note)


async def attempt(claimed: Claimed, *, private: bool) -> Attempted:
    """Sign and send one delivery; errors are part of the result."""
    at, began = time.time(), time.monotonic()
    status, error, retry_after = None, "", None
    try:
        target = parse_given(claimed.url)
        body = claimed.payload.encode()
        answer = await post(target, _headers(claimed, int(at), body), body, private=private, seconds=TIMEOUT_S)
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
    return signed_headers("Slackwater-Webhooks/1", keys, claimed.id, timestamp, body)


def _claim(conn: Any, channels: Sequence[str], *, each: int, most: int, busy: Sequence[str] = ()) -> list[Claimed]:
    """Claim deliveries that are due, at most ``each`` of one subscription."""
    rows = DELIVERIES.claim(conn, channels=list(channels), busy=list(busy), each=each, most=most)
    return [Claimed(*row) for row in rows]


class DeliverySender(SendingThread):
    """Sends deliveries as long as it runs."""

    name = "notify"

    def __init__(self, *, poll_s: float = POLL_S) -> None:
        super().__init__(poll_s=poll_s)
        self._rng = random.Random()
        self._open: Counter[str] = Counter()
        self._runner = asyncio.Runner()
        self._requests: set[asyncio.Task[Attempted]] = set()
        self._mails: asyncio.Task[int] | None = None
        self._in_vain = 0

    def step(self) -> float:
        """Begin requests that are due and record those that have ended; the event loop waits in between."""
        due = {row[0] for row in self.db.conn.execute(DUE).fetchall()}
        if due or self._requests or (self._mails is not None and not self._mails.done()):
            self._in_vain = 0
            self._runner.run(self._step(due))
            return 0.0
        self._in_vain += 1
        return REST_S if self._in_vain * self.poll_s > REST_AFTER_S else self.poll_s

    def close(self) -> None:
        """Leave open requests; they are sent again when their lease is over."""
        self._runner.close()
        super().close()

    async def _step(self, due: Collection[bool]) -> None:
        for one in self._claim() if False in due else ():
            self._requests.add(asyncio.create_task(attempt(one, private=conf().webhook_private)))
        if True in due and (self._mails is None or self._mails.done()):
            self._mails = asyncio.create_task(asyncio.to_thread(self.mail))
        if not self._requests:
            await asyncio.sleep(self.poll_s)
            return
        done, self._requests = await asyncio.wait(
            self._requests, timeout=self.poll_s, return_when=asyncio.FIRST_COMPLETED
        )
        if done:
            await self._record([request.result() for request in done])

    def mail(self) -> int:
        """Send the e-mail that is due, one message for each subscription; returns how many events are in them."""
        database = Database("slackwater mail")
        try:
            by_subscription: dict[str, list[Claimed]] = {}
            for one in _claim(database.conn, ["email"], each=MAIL_EVENTS, most=MAIL_EVENTS):
                by_subscription.setdefault(one.subscription_id, []).append(one)
            for claimed in by_subscription.values():
                self._write(database, _mailed(claimed, database))
            return sum(map(len, by_subscription.values()))
        except FAULTS as error:
            log.warning("e-mail waits for the database: %s", str(error).strip().splitlines()[:1])
            return 0
        finally:
            database.close()

    def _claim(self) -> list[Claimed]:
        conn, room = self.db.conn, MAX_OPEN - len(self._requests)
        if room <= 0:
            return []
        busy = [name for name, count in self._open.items() if count >= MAX_OPEN_EACH]
        claimed = _claim(conn, ["webhook", "task"], each=MAX_OPEN_EACH, most=room, busy=busy)
        self._open.update(one.subscription_id for one in claimed)
        return claimed

    def _write(self, database: Database, done: Sequence[Attempted]) -> None:
        sent = [one.sent(self._rng) for one in done]
        database.repeatable(lambda conn: DELIVERIES.record(conn, sent))

    async def _record(self, done: Sequence[Attempted]) -> None:
        for one in done:
            self._open[one.claimed.subscription_id] -= 1
            if self._open[one.claimed.subscription_id] <= 0:
                del self._open[one.claimed.subscription_id]
        while not self._stopping.is_set():
            try:
                self._write(self.db, done)
                break
            except FAULTS as error:
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


def _disable(subscription_id: str, reason: str) -> None:
    from django.db import connection

    try:
        subscriptions.disable(subscription_id, reason)
    finally:
        connection.close()


def disable_long_failing(db: Database) -> int:
    """Disable subscriptions whose receiver has accepted nothing for days."""
    rows = db.conn.execute(LONG_FAILING, (DISABLE_AFTER_S,)).fetchall()
    for row in rows:
        _disable(row[0], f"no delivery has succeeded for {DISABLE_AFTER_S // 86_400} days")
    return len(rows)
