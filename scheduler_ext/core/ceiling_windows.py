"""Time windows in which other ceilings hold, such as a night in which everything may run.

An entry is ``[days] FROM-TO ZONE [category=permille …]``, several are separated by ``;``, and the last that is open
decides: ``22:00-06:00 Europe/Berlin; sat,sun 00:00-24:00 Europe/Berlin offpeak=950``. Without categories off-peak work
has no ceiling. A window that ends before it begins lasts over midnight, and belongs to the day on which it begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from scheduler_ext.core.errors import ConfigurationError

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CATEGORIES: Final = ("delayable", "periodic", "offpeak")
_TIMES: Final = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
FIELD: Final = "ceiling_windows"
LOOKED_AHEAD_S: Final = 8 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One entry."""

    days: frozenset[int]
    """0 is Monday."""
    begins: int
    """Minutes since midnight."""
    ends: int
    zone: ZoneInfo
    ceilings: Mapping[str, int]
    """Thousandths of utilization by category."""

    def is_open(self, now: float) -> bool:
        """Whether it is open at a moment (Unix seconds), by the wall clock of its zone."""
        local = datetime.fromtimestamp(now, self.zone)
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.begins < self.ends:
            return day in self.days and self.begins <= minute < self.ends
        return (day in self.days and minute >= self.begins) or ((day - 1) % 7 in self.days and minute < self.ends)


@lru_cache(maxsize=64)
def parse(text: str) -> tuple[Window, ...]:
    """The windows of a configuration; ``ConfigurationError`` says which entry is wrong, and why."""
    return tuple(_window(entry.strip()) for entry in text.split(";") if entry.strip())


def open_ceilings(text: str, now: float) -> dict[str, int]:
    """The ceilings that the windows open at a moment set, by category; a category that none names is absent."""
    found: dict[str, int] = {}
    for window in parse(text) if text else ():
        if window.is_open(now):
            found.update(window.ceilings)
    return found


def next_change(text: str, now: float) -> float | None:
    """The next moment (Unix seconds) at which other ceilings hold than do now; ``None`` within a week: never.

    Minute by minute: only the calendar itself knows when clocks are put forward or back.
    """
    before, minute = open_ceilings(text, now), (int(now) // 60 + 1) * 60
    for at in range(minute, minute + LOOKED_AHEAD_S, 60):
        if open_ceilings(text, at) != before:
            return float(at)
    return None


def _window(entry: str) -> Window:
    words = entry.split()
    days = frozenset(range(7)) if _TIMES.fullmatch(words[0]) else _days(words.pop(0), entry)
    times = _TIMES.fullmatch(words.pop(0)) if words else None
    if times is None or not words:
        raise ConfigurationError(f"{entry!r} is not like 'mon-fri 22:00-06:00 Europe/Berlin offpeak=1000'", field=FIELD)
    hour, minute, to_hour, to_minute = map(int, times.groups())
    begins, ends = hour * 60 + minute, to_hour * 60 + to_minute
    if max(minute, to_minute) > 59 or begins >= 1440 or ends > 1440 or begins == ends:
        raise ConfigurationError(f"{entry!r} has no such time, or lasts no time", field=FIELD)
    try:
        zone = ZoneInfo(words.pop(0))
    except (KeyError, ValueError, OSError):
        raise ConfigurationError(f"{entry!r} names no known time zone", field=FIELD) from None
    return Window(days=days, begins=begins, ends=ends, zone=zone, ceilings=_ceilings(words, entry))


def _days(text: str, entry: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            raise ConfigurationError(f"{entry!r}: days are {', '.join(DAYS)}, or spans like mon-fri", field=FIELD)
        day = DAYS.index(first)
        length = (DAYS.index(last or first) - day) % 7
        found |= {(day + n) % 7 for n in range(length + 1)}
    return frozenset(found)


def _ceilings(words: list[str], entry: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in CATEGORIES or not number.isdecimal() or not 0 <= int(number) <= 1000:
            text = f"{entry!r}: ceilings are {', '.join(CATEGORIES)}, each like offpeak=1000"
            raise ConfigurationError(text, field=FIELD)
        found[name] = int(number)
    return found or {"offpeak": 1000}
