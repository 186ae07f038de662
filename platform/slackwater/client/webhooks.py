"""Webhooks, checked by who receives them: Standard Webhooks, without another library."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from scheduler_ext.core.errors import ConfigurationError, SlackwaterError

TOLERANCE_S: Final = 300.0
NAMES: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")


class BadSignature(SlackwaterError):
    """The message is not the platform's, or too old."""

    code = "bad_signature"


def verify(
    headers: Mapping[str, Any] | Iterable[tuple[str | bytes, str | bytes]],
    body: bytes,
    *secrets: str,
    tolerance_s: float = TOLERANCE_S,
    now: float | None = None,
) -> dict[str, Any]:
    """The message of a webhook; ``BadSignature`` unless one of the secrets (``whsec_…``) has signed it lately.

    ``headers``: a mapping of any framework, ``request.META`` or a WSGI environ, or pairs as in an ASGI scope.
    ``body``: the bytes as they came. ``ConfigurationError`` where a secret is none. Keep the ids that you have seen
    (``webhook-id``): a message may come twice.
    """
    keys = [_key(n, secret) for n, secret in enumerate(secrets)]
    if not keys:
        raise ConfigurationError("is needed: the webhook's whsec_…", field="secrets")
    number, moment, signatures = _sent(headers)
    if not re.fullmatch("[0-9]{1,15}", moment):
        raise BadSignature("must be a time in Unix seconds", field="webhook-timestamp")
    age = abs((time.time() if now is None else now) - int(moment))
    if age > tolerance_s:
        raise BadSignature(f"its time is {age:.0f} s away from now")
    for key in keys:
        mine = hmac.new(key, f"{number}.{moment}.".encode() + body, hashlib.sha256).digest()
        wanted = f"v1,{base64.b64encode(mine).decode()}"
        if any(hmac.compare_digest(wanted, one) for one in signatures.split()):
            return _message(body)
    raise BadSignature("no secret given has signed it")


def _key(n: int, secret: Any) -> bytes:
    field = f"secrets[{n}]"
    if not isinstance(secret, str):
        said = f"must be a text that begins with whsec_, each one an argument of its own; {type(secret).__name__} given"
        raise ConfigurationError(said, field=field)
    try:
        key = base64.b64decode(secret.strip().removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if not key:  # anybody can sign with nothing
        raise ConfigurationError("is no secret of a webhook: whsec_ and base64", field=field)
    return key


def _sent(headers: Any) -> list[str]:
    """The headers that are signed with and by, whatever the framework calls them."""
    pairs = headers.items() if hasattr(headers, "items") else headers
    given = {_text(name).lower(): value for name, value in pairs}
    found = []
    for name in NAMES:
        value = _text(given.get(name, given.get(f"http_{name.replace('-', '_')}", "")))
        if not (value and value.isascii()):
            raise BadSignature("the header is missing" if not value else "must be ASCII", field=name)
        found.append(value)
    return found


def _text(given: Any) -> str:
    return given.decode("latin-1") if isinstance(given, bytes) else str(given)


def _message(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise BadSignature("is signed, but is no JSON object as the platform sends it", field="body")
    return message
