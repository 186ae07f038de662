"""Rows as lines of PostgreSQL's COPY text format; what tasks handed in together have in common is written out once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

T = TypeVar("T")
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
NULL = "\\N"
HOLE = "\x00"
"""Stands where a value goes; no text of PostgreSQL's has this character."""


def text(value: Any) -> str:
    """One value as COPY reads it: https://www.postgresql.org/docs/current/sql-copy.html, "Text Format"."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (list, tuple)):
        return ("{" + ",".join(map(_element, value)) + "}").translate(_ESCAPES)
    raise TypeError(f"no COPY text for {type(value).__name__}")


def uuid_text(value: UUID) -> str:
    """A UUID without its dashes, which PostgreSQL reads as well: a quarter of the cost of ``str()``."""
    return f"{value.int:032x}"


def _element(value: Any) -> str:
    """An element of an array of strings, quoted."""
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def json_text(value: str) -> str:
    """The same for JSON, in which no other character of COPY's can stand unescaped."""
    return value.replace("\\", "\\\\") if "\\" in value else value


def line(row: Sequence[Any]) -> str:
    """A whole row."""
    return "\t".join(map(text, row)) + "\n"


def alike(items: Sequence[T], key: Callable[[T], Any], row: Callable[[T], Sequence[Any]],
          vary: Sequence[tuple[int, Callable[[T], str]]]) -> Iterator[str]:  # fmt: skip
    """Lines of ``items``; those of one ``key`` differ only in the columns of ``vary``: (place, its COPY text)."""
    places = [place for place, _ in vary]
    values = [value for _, value in vary]
    known: dict[Any, list[str]] = {}
    for item in items:
        kind = key(item)
        parts = known.get(kind)
        if parts is None:
            parts = known[kind] = _between(row(item), places)
        made = parts[0]
        for number, value in enumerate(values, 1):
            made += value(item) + parts[number]
        yield made


def _between(row: Sequence[Any], places: Sequence[int]) -> list[str]:
    """The text before, between and after the columns of ``places``, which are in order."""
    cells = [text(value) for value in row]
    for place in places:
        cells[place] = HOLE
    return ("\t".join(cells) + "\n").split(HOLE)
