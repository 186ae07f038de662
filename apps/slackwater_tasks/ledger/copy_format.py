"""Rows and arrays as PostgreSQL reads them. What tasks submitted together have in common is formatted once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from slackwater_tasks.ledger.rows import Own

T = TypeVar("T")
COPY_FROM = 8
"""From this many rows on COPY is cheaper than INSERT."""
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
NULL = "\\N"
HOLE = "\x00"
"""The placeholder of a value; no text of PostgreSQL's has this character."""


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
        return uuid_text(value)
    if isinstance(value, (list, tuple)):
        return ("{" + ",".join(map(element, value)) + "}").translate(_ESCAPES)
    raise TypeError(f"no COPY text for {type(value).__name__}")


def uuid_text(value: UUID) -> str:
    """A UUID without dashes, which PostgreSQL reads too: a quarter of the cost of ``str()``."""
    return f"{value.int:032x}"


def element(value: Any) -> str:
    """An element of an array, quoted."""
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def array(values: Iterable[Any]) -> str:
    """An array of ids or numbers as PostgreSQL writes it: several times cheaper than an adapted list."""
    return f"{{{','.join(map(str, values))}}}"


def moments(seconds: Iterable[float]) -> str:
    """An array of times in microseconds, which is what PostgreSQL keeps: at a quarter of the cost of floats."""
    return array([int(each * 1e6 + 0.5) for each in seconds])


def arrays_of(tasks: Sequence[Own]) -> tuple[str, ...]:
    """What tasks have of their own, as the statement that stores several takes it."""
    return (
        array(task.kind for task in tasks),
        array(uuid_text(task.id) for task in tasks),
        array(element(task.args) for task in tasks),
        array(element(task.kwargs) for task in tasks),
    )


def json_text(value: str) -> str:
    """The same for JSON, in which no other character of COPY's can stand unescaped."""
    return value.replace("\\", "\\\\") if "\\" in value else value


def line(row: Sequence[Any]) -> str:
    return "\t".join(map(text, row)) + "\n"


def alike(items: Iterable[T], key: Callable[[T], Any], row: Callable[[T], Sequence[Any]],
          vary: Sequence[tuple[int, Callable[[T], str]]]) -> Iterator[str]:  # fmt: skip
    """Lines of ``items``; those of one ``key`` differ only in the columns of ``vary``: (place, its COPY text)."""
    places = [place for place, _ in vary]
    values = [value for _, value in vary]
    known: dict[Any, list[str]] = {}
    for item in items:
        kind = key(item)
        parts = known.get(kind)
        if parts is None:
            parts = known[kind] = between(row(item), places)
        made = parts[0]
        for number, value in enumerate(values, 1):
            made += value(item) + parts[number]
        yield made


def between(row: Sequence[Any], places: Sequence[int]) -> list[str]:
    """The text before, between and after the columns of ``places``, which are in order."""
    cells = [text(value) for value in row]
    for place in places:
        cells[place] = HOLE
    return ("\t".join(cells) + "\n").split(HOLE)


def insert(cur: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write rows: a few by INSERT, many by COPY."""
    if len(rows) >= COPY_FROM:
        copy_lines(cur, table, columns, map(line, rows))
    elif rows:
        one = f"({', '.join(['%s'] * len(columns))})"
        cur.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([one] * len(rows))}",  # noqa: S608 - ours
            [value for row in rows for value in row],
        )


def copy_lines(cur: Any, table: str, columns: Sequence[str], lines: Iterable[str]) -> None:
    """Write lines of COPY's text format."""
    data = "".join(lines)  # before COPY begins: making them may ask the database something
    if not data:
        return
    # Django hands COPY on without translating what it raises.
    faults = cur.db.wrap_database_errors if isinstance(cur, CursorWrapper) else nullcontext()
    with faults, cur.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        copy.write(data)
