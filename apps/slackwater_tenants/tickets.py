"""Tickets: each opens one live stream once, within seconds, for a page that must not hold the key."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import Final

from django.db.models.functions import Now
from django.utils import timezone

from scheduler_ext.core.errors import Conflict, NotAuthenticated
from slackwater_tenants.models import ApiKey, StreamTicket
from slackwater_tenants.services import live_keys

MOST: Final = 1_000
"""Tickets of a key that are not used yet."""


def issue(key: ApiKey, path: str, seconds: int) -> tuple[str, datetime]:
    """A ticket for the stream at ``path``, which opens it with the rights of ``key``; and when it ends."""
    StreamTicket.objects.filter(key=key, expires_at__lte=Now()).delete()
    if StreamTicket.objects.filter(key=key).count() >= MOST:
        raise Conflict(f"this key has {MOST} tickets that are not used yet")
    text, expires_at = secrets.token_urlsafe(32), timezone.now() + timedelta(seconds=seconds)
    StreamTicket.objects.create(digest=_digest(text), key=key, path=path, expires_at=expires_at)
    return text, expires_at


def redeem(text: str, path: str) -> ApiKey:
    """The key of a ticket, which is used up by this; ``NotAuthenticated`` where it opens nothing here."""
    tickets = StreamTicket.objects.filter(digest=_digest(text), path=path, expires_at__gt=Now())
    key_id = tickets.values_list("key_id", flat=True).first()
    # Of two that come at once one finds it gone.
    if key_id is None or not tickets.delete()[0]:
        raise NotAuthenticated("The ticket is used, has expired, or is for another stream: ask for another.")
    return live_key(key_id)


def live_key(key_id: int) -> ApiKey:
    """A key that still holds, with its tenant and plan."""
    key = live_keys().filter(pk=key_id).first()
    if key is None:
        raise NotAuthenticated
    return key


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
