"""The keys that seal receipts: made when they are needed, replaced every ninety days, published for ever."""

from __future__ import annotations

import base64
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scheduler_ext.core.errors import ConfigurationError
from slackwater_monitoring.models import ReceiptKey
from slackwater_monitoring.receipts.chain import key_id
from slackwater_tasks.runtime.sealed import open_sealed, seal

USED_FOR: Final = timedelta(days=90)
NEWEST = """
SELECT id, sealed FROM slackwater_monitoring_receiptkey WHERE created_at > clock_timestamp() - %s
ORDER BY created_at DESC, id LIMIT 1
"""
KEEP = "INSERT INTO slackwater_monitoring_receiptkey (id, public, sealed) VALUES (%s, %s, %s)"


def _bound(name: str) -> str:
    """What a private key is sealed for: no secret's name begins so."""
    return f"receipts:{name}"


@lru_cache(maxsize=4)
def _private(name: str, sealed: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(base64.b64decode(open_sealed(0, _bound(name), sealed)))


def current(conn: Any) -> tuple[str, Ed25519PrivateKey]:
    """The key that seals now, and its id; a new one where there is none, it is too old, or it cannot be opened."""
    row = conn.execute(NEWEST, (USED_FOR,)).fetchone()
    if row is not None:
        try:
            return row[0], _private(row[0], bytes(row[1]))
        except ConfigurationError:
            pass  # the key that sealed it was dropped; what it signed holds
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    name, text = key_id(public), base64.b64encode(private.private_bytes_raw()).decode()
    conn.execute(KEEP, (name, public, seal(0, _bound(name), text)))
    return name, private


def published() -> list[dict[str, Any]]:
    """All public keys, the newest first."""
    return [
        {"id": row.pk, "algorithm": "Ed25519", "public_key": base64.b64encode(row.public).decode(),
         "created_at": row.created_at}
        for row in ReceiptKey.objects.order_by("-created_at", "pk")
    ]  # fmt: skip
