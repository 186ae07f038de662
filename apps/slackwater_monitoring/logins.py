"""Logins to the admin: every one is recorded, and too many failures from an address or for a name are refused.

Attempts are counted in the database, so that all processes count together, and recorded before the password is checked,
so that parallel attempts count like sequential ones.
"""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.db.models import Q
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from slackwater_conf import client_address
from slackwater_monitoring.models import Login

if TYPE_CHECKING:
    from django.contrib.auth.models import User  # the project's own, where it has one

WINDOW: Final = timedelta(minutes=15)
MAX_FOR_BOTH: Final = 5
"""Failures of one name from one address within the window; then that name is refused there, whatever the password."""
MAX_FOR_ADDRESS: Final = 20
MAX_FOR_NAME: Final = 50
"""From all addresses: far more than of both, so that locking an administrator out from elsewhere is not easy."""
KNOWN_FOR: Final = timedelta(days=30)
"""For this long after a success, only the limit of both keeps that name out at that address, not others' failures."""
ROW: Final = "sw_login"


def address_of(request: HttpRequest | None) -> str:
    """The client's address; empty where nobody asks."""
    if request is None:
        return ""
    return client_address(request.META.get("REMOTE_ADDR", ""), request.META.get("HTTP_X_FORWARDED_FOR", ""))


class LimitedBackend(ModelBackend):
    """Django's own users and passwords, with a limit on failed attempts."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The user; ``None`` when name or password are wrong. ``PermissionDenied`` after too many failures."""
        if request is None or username is None:
            return super().authenticate(request, username, password, **kwargs)
        row = _begin(str(username)[:150].replace("\x00", ""), address_of(request))
        if row.outcome == Login.Outcome.REFUSED:
            raise PermissionDenied
        user = super().authenticate(request, username, password, **kwargs)
        setattr(request, ROW, row)
        return user


def _begin(username: str, address: str) -> Login:
    """Record an attempt: as a failure until it succeeds, as refused after too many failures."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            for key in sorted({zlib.crc32(f"a{address}".encode()), zlib.crc32(f"n{username.lower()}".encode())}):
                cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", (0x106, key - 2**31))
        outcome = Login.Outcome.REFUSED if _too_many(username, address) else Login.Outcome.FAILED
        return Login.objects.create(username=username, address=address, outcome=outcome)


def _too_many(username: str, address: str) -> bool:
    now = timezone.now()
    recent = Login.objects.filter(at__gt=now - WINDOW)
    failed = Q(outcome=Login.Outcome.FAILED)
    by_name, by_address = Q(username__iexact=username), Q(address=address)
    both = recent.filter(by_name, by_address)
    last = both.filter(outcome=Login.Outcome.SUCCEEDED).order_by("-id").values_list("id", flat=True).first() or 0
    if both.filter(failed, id__gt=last).count() >= MAX_FOR_BOTH:
        return True
    succeeded = Q(outcome=Login.Outcome.SUCCEEDED, at__gt=now - KNOWN_FOR)
    if Login.objects.filter(by_name, by_address, succeeded).exists():
        return False
    return (
        recent.filter(by_address, failed).count() >= MAX_FOR_ADDRESS
        or recent.filter(by_name, failed).count() >= MAX_FOR_NAME
    )


@receiver(user_logged_in)
def note_login(sender: object, request: HttpRequest, user: Any, **kwargs: Any) -> None:
    """Record that a login has succeeded."""
    row: Login | None = getattr(request, ROW, None)
    if row is None:
        row = Login(username=user.get_username()[:150], address=address_of(request))
    row.outcome = Login.Outcome.SUCCEEDED
    row.save()


@receiver(user_logged_out)
def note_logout(sender: object, request: HttpRequest, user: Any, **kwargs: Any) -> None:
    """Record a logout."""
    if user is not None:
        Login.objects.create(
            username=user.get_username()[:150], address=address_of(request), outcome=Login.Outcome.LEFT
        )
