"""What the command prints: tables for people, JSON for programs; nothing in it steers a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TextIO

from scheduler_ext.core.plain_text import harmless, harmless_json

MOMENTS: Final = ("_at", "latest_start", "not_before", "at", "likely", "earliest", "latest")
"""How names of moments end."""
WIDEST: Final = 60
"""Letters of a cell, unless it is the last of its row."""


class Output:
    """Where it goes, and in which form."""

    def __init__(self, stream: TextIO, *, as_json: bool) -> None:
        self.stream, self.as_json = stream, as_json

    def line(self, said: str) -> None:
        """A line for people."""
        print(harmless(said, lines=True), file=self.stream, flush=True)

    def value(self, value: Any, *, indent: int | None = 2) -> None:
        """A value for programs."""
        print(harmless_json(json.dumps(value, ensure_ascii=False, indent=indent)), file=self.stream, flush=True)

    def pairs(self, value: Mapping[str, Any]) -> None:
        """An object: for people a name and a value on each line, what is empty left out."""
        if self.as_json:
            return self.value(value)
        shown = {name: text(name, inner) for name, inner in value.items() if inner not in (None, "", [], {})}
        width = max(map(len, shown), default=0)
        for name, said in shown.items():
            self.line(f"{name.replace('_', ' ').ljust(width)}  {said}")
        return None

    def table(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Several objects: for people a table of some of their fields."""
        if self.as_json:
            return self.value(list(rows))
        cells = [[text(name, row.get(name)) for name in columns] for row in rows]
        if not cells:
            return self.line("nothing")
        lines = [[name.replace("_", " ") for name in columns], *([*map(_cut, row[:-1]), row[-1]] for row in cells)]
        widths = [max(len(row[n]) for row in lines) for n in range(len(columns))]
        for row in lines:
            self.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return None


def text(name: str, value: Any) -> str:
    """A value as people read it, on one line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _moment(value) if name.endswith(MOMENTS) else harmless(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return harmless(", ".join(value))
    return harmless(json.dumps(value, ensure_ascii=False)) if isinstance(value, (dict, list)) else str(value)


def _moment(value: str) -> str:
    try:
        return datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    except ValueError:
        return harmless(value)


def _cut(cell: str) -> str:
    return cell if len(cell) <= WIDEST else cell[: WIDEST - 1] + "…"
