"""Text for people: numbers with their nouns, and no character that controls a terminal or turns the direction of writing."""

from __future__ import annotations

import re
from typing import Final

STEERING: Final = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Control characters (C0, DEL, C1), separators of lines, and marks that change the direction of writing."""
STEERS: Final = re.compile(f"[{STEERING}]")
"""Finds one; names may have none."""
PLAIN: Final = f"[^{STEERING}]*"
"""A text without any."""
TELLING: Final = rf"[^{STEERING}]*[^{STEERING}\s][^{STEERING}]*"
"""Such a text that is more than blanks."""
NOT_LAID_OUT: Final = re.compile(f"(?![\n\t])[{STEERING}]")
IN_JSON: Final = re.compile(f"(?!\n)[{STEERING}]")


def counted(number: int, noun: str, *, plural: str = "") -> str:
    """Return the number with its noun: ``1 task``, ``2,000 tasks``; ``plural`` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def harmless(text: str, *, lines: bool = False) -> str:
    """Return ``text`` with each such character as its escape; ``lines`` keeps line ends and tabs."""
    return (NOT_LAID_OUT if lines else STEERS).sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def harmless_json(text: str) -> str:
    """Return indented JSON in which control characters are escaped as JSON spells them."""
    return IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
