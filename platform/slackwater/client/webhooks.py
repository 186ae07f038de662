"""Webhooks, checked by who receives them: Standard Webhooks, without another library."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from scheduler_ext.core.errors import SlackwaterError

TOLERANCE_S: Final = 300.0


class BadSignature(SlackwaterError):
    """The message is not the platform's, or too old."""

    code = "bad_signature"


def verify(
    headers: Mapping[str, str], body: bytes, *secrets: str, tolerance_s: float = TOLERANCE_S, now: float | None = None
) -> dict[str, Any]:
    """The message of a webhook; ``BadSignature`` unless one of the secrets (``whsec_…``) has signed it lately.

    ``body``: the bytes as they came. Keep the ids that you have seen (``webhook-id``): a message may come twice.
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        number, moment, signatures = (given[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        age = abs((time.time() if now is None else now) - int(moment))
    except (KeyError, ValueError):
        raise BadSignature("the headers webhook-id, webhook-timestamp and webhook-signature are needed") from None
    if age > tolerance_s:
        raise BadSignature(f"its time is {age:.0f} s away from now")
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        mine = hmac.new(key, f"{number}.{moment}.".encode() + body, hashlib.sha256).digest()
        wanted = f"v1,{base64.b64encode(mine).decode()}".encode()
        if any(hmac.compare_digest(wanted, one.encode()) for one in signatures.split()):
            message: dict[str, Any] = json.loads(body)
            return message
    raise BadSignature("no secret given has signed it")
