"""Webhooks in tests: made, sent to, and verified as a receiver does."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slackwater_monitoring.notify import deliveries, subscriptions
from slackwater_monitoring.notify.sender import DeliverySender
from slackwater_tasks.ledger.connection import connect
from tests.support.api import ApiClient
from tests.support.receiver import Received

ALL = list(subscriptions.EVENTS)


def hook(client: ApiClient, url: str, events: list[str] | None = None, **fields: Any) -> dict[str, Any]:
    """Make a webhook, by default for all events."""
    answer = client.post("/webhooks", {"url": url, "events": events or ALL, **fields})
    assert answer.status == 201, answer.body
    return dict(answer.body)


def spread() -> int:
    """Make deliveries of what is in the outbox."""
    with connect() as conn, conn.transaction():
        return deliveries.spread(conn, 100)


@contextmanager
def sending() -> Iterator[DeliverySender]:
    """A sender, until all that is due has been sent."""
    sender = DeliverySender(poll_s=0.02)
    sender.start()
    try:
        yield sender
    finally:
        sender.stop()


def told(client: ApiClient, webhook_id: str) -> list[dict[str, Any]]:
    """Its deliveries, oldest first."""
    rows = client.get(f"/webhooks/{webhook_id}/deliveries").body["items"]
    return list(reversed(rows))


def verify(received: Received, secret: str) -> bool:
    """What a receiver does, written from the specification and not with our own function."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join(
        [
            received.headers["webhook-id"].encode(),
            received.headers["webhook-timestamp"].encode(),
            received.body,
        ]
    )
    mine = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return mine in received.headers["webhook-signature"].split(" ")
