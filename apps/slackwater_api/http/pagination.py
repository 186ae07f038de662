"""Cursor pages: each says where the next begins, so that rows which arrive meanwhile neither shift nor repeat."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter

from scheduler_ext.core.errors import DoesNotFit, InvalidInput

DEFAULT_PAGE = 50
MAX_PAGE = 500
MAX_CURSOR = 8_000
"""It holds the value that the next page begins with: a name, or an address."""
WRITTEN = re.compile("[A-Za-z0-9._-]*")
"""A cursor as it is written."""
PAGING = [
    OpenApiParameter(
        "cursor",
        {"type": "string", "maxLength": MAX_CURSOR, "pattern": "^[A-Za-z0-9._-]*$"},
        description="Where the page begins: next_cursor of the page before.",
    ),
    OpenApiParameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE},
        description="Rows a page.",
    ),
]

LOOK_MS = 1_000
"""How long a search without an index looks where nothing else is asked: its cost is bounded, however many tasks there are."""
WITHIN = OpenApiParameter(
    "within_ms",
    {"type": "integer", "minimum": 10, "maximum": 10_000, "default": LOOK_MS},
    description=(
        "Look for about so long, in the order of submission: where no index finds what is asked for, and the time is used up, "
        "the page ends before it is full, maybe empty, and next_cursor leads on from there: nothing more is there only where it "
        "is null. In another order all is looked through: where that takes longer, the answer is a problem that names sort."
    ),
)


def asked_time(query: Mapping[str, str]) -> float:
    """The seconds asked for by ``within_ms``, or what is usual; ``InvalidInput`` names it."""
    text = query.get("within_ms")
    if text is None:
        return LOOK_MS / 1_000
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 10 <= int(text) <= 10_000):
        raise InvalidInput("must be a whole number from 10 to 10000", field="within_ms")
    return int(text) / 1_000


def asked_page(query: Mapping[str, str]) -> tuple[int, str]:
    """The page asked for, by ``limit`` and ``cursor``; ``InvalidInput`` names the one at fault."""
    text = query.get("limit", str(DEFAULT_PAGE))
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"must be a whole number from 1 to {MAX_PAGE}", field="limit")
    cursor = query.get("cursor", "")
    if len(cursor) > MAX_CURSOR or not WRITTEN.fullmatch(cursor):
        raise InvalidInput("is not a cursor of ours", field="cursor")
    return limit, cursor


def encode(*parts: str) -> str:
    """A cursor that holds ``parts``."""
    return base64.urlsafe_b64encode("\n".join(parts).encode()).rstrip(b"=").decode()


def decode(cursor: str, *kinds: Callable[[str], Any]) -> list[Any]:
    """The parts of a cursor, each read by its kind; ``InvalidInput`` for a cursor that this server did not make."""
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode()
        parts = text.split("\n")
        return [kind(part) for kind, part in zip(kinds, parts, strict=True)]
    except (ValueError, UnicodeError, binascii.Error, OverflowError):
        raise DoesNotFit("is not a cursor of ours", field="cursor") from None
