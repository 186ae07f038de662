"""Secrets and signatures of webhooks. Its address: ``apps/slackwater_tasks/submission/webhook_address.py``.

Signed as Standard Webhooks says (https://www.standardwebhooks.com): ``webhook-id``, ``webhook-timestamp`` and
``webhook-signature`` (``v1,`` and the base64 of an HMAC-SHA256 over ``id.timestamp.body``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Final

SECRET_BYTES: Final = 32
MARK: Final = "whsec_"


def make_secret() -> str:
    """A new secret, as it is shown once."""
    return MARK + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The key that a secret stands for; ``ValueError`` unless it is base64, with ``whsec_`` before it or without."""
    key = base64.b64decode(secret.strip().removeprefix(MARK), validate=True)
    if not key:
        raise ValueError("it is empty")
    return key


def signed_headers(agent: str, keys: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a message; without keys, it has no signature."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": agent,
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
    }
    return headers | ({"webhook-signature": signature(keys, message_id, timestamp, body)} if keys else {})


def signature(keys: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The header that proves the sender: one signature by each secret, so that a receiver may still use the old one."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    made = []
    for key in keys:
        digest = hmac.new(key_of(key), signed, hashlib.sha256).digest()
        made.append(f"v1,{base64.b64encode(digest).decode()}")
    return " ".join(made)
