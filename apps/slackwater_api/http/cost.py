"""What reading JSON would take of memory, told from its bytes before anything is made of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

TIMES: Final = 4
"""So many times its own size a body may take, over what the process had with it."""
ALLOWED: Final = 4_194_304
"""Beside that, in bytes: what is small may be as dense as it likes."""
STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string of JSON, or the start of one that does not end: a search that never goes back."""
WHOLE: Final = re.compile(rb'(?:[^"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""As much as ends with no string begun."""
WINDOW: Final = 16_384
"""Bytes that are looked at together: to take their strings out takes up to thirty times as much."""
WIDTHS: Final = (
    (4, re.compile(rb"[\xf0-\xff]"), re.compile(rb"\\u[dD][89abAB]")),
    (2, re.compile(rb"[\xc4-\xff]"), re.compile(rb"\\u(?!00)")),
)
"""Bytes that each letter of a text takes if it holds one of these: as they are, or escaped."""

# Bytes that CPython takes for each, rounded up as its allocator does (3.11 to 3.13, 64 bits).
LIST: Final = 112
DICT: Final = 136
MEMBER: Final = 72
SLOT: Final = 12
TEXT: Final = 64
NUMBER: Final = 32
OWN: Final = re.compile(rb"-[0-9.eE+-]++|[0-9.eE+-]{3,}+")
"""A number that is an object of its own; the small ones exist already."""


@dataclass(slots=True)
class Marks:
    """What stands outside of strings, counted."""

    commas: int = 0
    arrays: int = 0
    objects: int = 0
    members: int = 0
    strings: int = 0
    numbers: int = 0

    def count(self, body: bytes, begin: int, end: int) -> None:
        """Add what stands between two places, at which no string begins or ends."""
        self.commas += body.count(b",", begin, end)
        self.arrays += body.count(b"[", begin, end)
        self.objects += body.count(b"{", begin, end)
        self.members += body.count(b":", begin, end)

    @property
    def values(self) -> int:
        """Values at the most: each but the first comes after a comma or an opening bracket."""
        return self.commas + self.arrays + self.objects

    def memory(self) -> int:
        """Bytes that the values take, the letters of their texts left out."""
        containers = self.arrays * LIST + self.objects * DICT + self.members * MEMBER
        return containers + self.commas * SLOT + self.strings * TEXT + self.numbers * NUMBER


def marks_of(body: bytes) -> Marks:
    """The marks of a body, exactly: those inside strings are no marks."""
    found, place = Marks(), 0
    while place < len(body):
        whole = WHOLE.match(body, place, place + WINDOW)
        end = whole.end() if whole else place
        if end > place:
            shown = STRING.sub(b'"', body[place:end])
            found.count(shown, 0, len(shown))
            found.strings += shown.count(b'"')
            found.numbers += OWN.subn(b"", shown)[1]
        else:  # a string that is longer, or has no end
            text = STRING.match(body, place)
            end = text.end() if text else len(body)
            found.strings += 1
        place = end
    return found


def roughly(body: bytes) -> Marks:
    """At least the marks of a body, found at once: those inside strings count too."""
    found = Marks(strings=body.count(b'"') // 2 + 1)
    found.count(body, 0, len(body))
    found.numbers = min(found.commas + found.objects + 1, len(body) // 4)
    return found


def letters(body: bytes) -> int:
    """Bytes that the text and the strings made of it take at the most: a single wide letter makes all of them wide."""
    text = strings = 1
    for width, plain, escaped in WIDTHS:
        if text == 1 and not body.isascii() and plain.search(body):
            text = width
        if strings == 1 and b"\\u" in body and escaped.search(body):
            strings = width
    growing = text > 1  # the text begins narrow, and is copied into a wider one
    return len(body) * (text + max(text, strings) + growing)


def is_dear(body: bytes, marks: Marks) -> bool:
    """Whether reading it would take more than is allowed."""
    return letters(body) + marks.memory() > TIMES * len(body) + ALLOWED
