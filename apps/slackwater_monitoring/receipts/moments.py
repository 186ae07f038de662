"""Moments as the server has them: microseconds since 2000. Of thousands of rows nothing is made but numbers."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from psycopg.types.numeric import Int8BinaryLoader

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
MICROSECOND: Final = timedelta(microseconds=1)
LATER: Final = 10**11 * SECOND
"""So much later no moment is negative, and the last digits of each are those behind the point."""


def cursor(conn: Any) -> Any:
    """One whose rows come in the server's binary form, their moments as they are there."""
    found = conn.cursor(binary=True)
    found.adapters.register_loader("timestamptz", Int8BinaryLoader)
    return found


def since_epoch(at: datetime) -> int:
    """A moment as such a cursor reads it."""
    return (at - EPOCH) // MICROSECOND


def as_datetime(moment: int) -> datetime:
    return EPOCH + timedelta(microseconds=moment)


def as_date(day: int) -> date:
    """The date in UTC of a moment divided by ``DAY``."""
    return EPOCH.date() + timedelta(days=day)


def milliseconds(span: int) -> int:
    """A time in whole milliseconds; 0 where the later moment is the earlier one."""
    return round(span / SECOND * 1000) if span > 0 else 0


class Texts(dict[int, str]):
    """The text of each second, made once: many moments fall into one."""

    def __missing__(self, second: int) -> str:
        text = self[second] = (EPOCH + timedelta(seconds=second)).isoformat()[:19]
        return text

    def of(self, moment: int | None) -> str:
        """A moment as JSON: UTC, with all six digits."""
        if moment is None:
            return "null"
        return f'"{self[moment // SECOND]}.{str(moment + LATER)[-6:]}Z"'
