"""Five-field cron expressions: parsed once, asked by date.

Fields are minute, hour, day of month, month and day of week, with lists, ranges, steps, names (``jan``, ``mon``),
``L`` for the last day of the month, ``5L`` for the last and ``5#2`` for the second Friday of the month. As in every
cron, a day matches when either its day of month or its day of week does, if both fields are restricted.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from typing import Final

from scheduler_ext.core.errors import InvalidInput

MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = {
    name: number
    for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1)  # noqa: SIM905 (a table)
}
_DAYS: Final = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_PART: Final = re.compile(r"^(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?$")
_NTH: Final = re.compile(r"^(\w+)(?:#([1-5])|(l))$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A parsed expression. Weekdays count from Monday = 0, as :meth:`datetime.date.weekday` does."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    last_day: bool
    months: frozenset[int]
    weekdays: frozenset[int]
    nth_weekdays: frozenset[tuple[int, int]]
    """(weekday, n): the n-th of the month; n = 0 is the last."""
    any_day: bool
    """The day-of-month field starts with a star."""
    any_weekday: bool
    """The day-of-week field starts with a star."""
    every_hour: bool
    """The hour field is a plain star: the clock's changes do not interrupt it."""

    def matches(self, day: date) -> bool:
        """Whether it fires on that day at all."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = self._by_day(day), self._by_weekday(day)
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday

    def _by_day(self, day: date) -> bool:
        return day.day in self.days or (self.last_day and day.day == monthrange(day.year, day.month)[1])

    def _by_weekday(self, day: date) -> bool:
        weekday = day.weekday()
        if weekday in self.weekdays:
            return True
        if not self.nth_weekdays:
            return False
        is_last = day.day + 7 > monthrange(day.year, day.month)[1]
        return (weekday, (day.day - 1) // 7 + 1) in self.nth_weekdays or (is_last and (weekday, 0) in self.nth_weekdays)


def parse_cron(text: str) -> Cron:
    """Parse an expression or a macro such as ``@daily``; ``InvalidInput`` (field ``cron``) says which part is wrong."""
    fields = MACROS.get(text.strip().lower(), text).lower().split()
    if len(fields) != 5:
        raise InvalidInput(
            f"needs five fields (minute, hour, day of month, month, day of week), {text!r} has {len(fields)}",
            field="cron",
        )
    minute, hour, day, month, weekday = fields
    day_parts = day.split(",")
    plain_weekdays, nth_weekdays = _split_nth(weekday)
    return Cron(
        minutes=tuple(sorted(_members(minute, "minute", 0, 59))),
        hours=tuple(sorted(_members(hour, "hour", 0, 23))),
        days=frozenset(_members(",".join(p for p in day_parts if p != "l"), "day of month", 1, 31)),
        last_day="l" in day_parts,
        months=frozenset(_members(month, "month", 1, 12, _MONTHS)),
        weekdays=frozenset((n - 1) % 7 for n in _members(plain_weekdays, "day of week", 0, 7, _DAYS)),
        nth_weekdays=nth_weekdays,
        any_day=day.startswith("*"),
        any_weekday=weekday.startswith("*"),
        every_hour=hour == "*",
    )


def _split_nth(field: str) -> tuple[str, frozenset[tuple[int, int]]]:
    """Take ``5#2`` and ``5L`` out of the day-of-week field."""
    plain: list[str] = []
    nth: set[tuple[int, int]] = set()
    for part in field.split(","):
        match = _NTH.match(part)
        if match is None:
            plain.append(part)
            continue
        number = _number(match[1], "day of week", 0, 7, _DAYS)
        nth.add(((number - 1) % 7, int(match[2] or 0)))
    return ",".join(plain), frozenset(nth)


def _members(field: str, what: str, low: int, high: int, names: dict[str, int] | None = None) -> set[int]:
    """The numbers a field stands for; an empty field stands for none."""
    found: set[int] = set()
    for part in field.split(",") if field else ():
        match = _PART.match(part)
        if match is None:
            raise InvalidInput(f"{what}: cannot read {part!r}", field="cron")
        star, first, last, step_text = match.groups()
        step = int(step_text) if step_text else 1
        if step == 0:
            raise InvalidInput(f"{what}: the step in {part!r} must be at least 1", field="cron")
        if star:
            start, end = low, min(high, 6) if what == "day of week" else high
        else:
            start = _number(first, what, low, high, names)
            # ``5/10`` means from 5 to the end, as in other crons.
            end = _number(last, what, low, high, names) if last else (high if step_text else start)
            if last and names is _DAYS and end == 0 and start > 0:
                end = 7
        if end < start:
            raise InvalidInput(f"{what}: {part!r} runs backwards", field="cron")
        found.update(range(start, end + 1, step))
    return found


def _number(text: str, what: str, low: int, high: int, names: dict[str, int] | None) -> int:
    if names and text in names:
        return names[text]
    if not text.isascii() or not text.isdigit():
        raise InvalidInput(f"{what}: cannot read {text!r}", field="cron")
    if not low <= int(text) <= high:
        raise InvalidInput(f"{what}: {text} is not between {low} and {high}", field="cron")
    return int(text)
