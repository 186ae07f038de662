"""When a schedule fires: pure calculations, no clock and no database.

Rules that name a time of day are read on the wall clock of their zone. Where the clock is changed:

* a time that does not exist runs at the first instant after the gap;
* a time that happens twice runs once, at the first.

Intervals, and cron expressions whose hour field is ``*``, count elapsed time instead: every hour stays every hour.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cache
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo

from slackwater_schedules.cron import Cron

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
INSTANT: Final = timedelta(microseconds=1)
LOOK_AHEAD: Final = 40 * 366 * DAY
"""The rarest rule is a 29 February on one day of the week, around 2100: it may be all but forty years away."""
LAST_DAY: Final = -1


class Kind(StrEnum):
    """How a schedule recurs."""

    ONCE = "once"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    ANNUALLY = "annually"
    CRON = "cron"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A recurrence. Only the fields of its kind matter; every instant in it is aware."""

    kind: Kind
    zone: str = "UTC"
    start: datetime | None = None
    """No firing before; a firing at this very instant counts."""
    end: datetime | None = None
    """No firing after."""
    at: datetime | None = None
    """Once: when."""
    times: tuple[time, ...] = ()
    """Daily to annually: times of day, sorted."""
    weekdays: frozenset[int] = frozenset()
    """Weekly: Monday is 0."""
    days: tuple[int, ...] = ()
    """Monthly: 1 to 31, or -1 for the last day."""
    dates: tuple[tuple[int, int], ...] = ()
    """Annually: (month, day)."""
    clip: bool = True
    """A day that a month lacks is its last day; otherwise that month is skipped."""
    cron: Cron | None = None
    every: timedelta | None = None
    """Interval: the step."""
    anchor: datetime | None = None
    """Interval: firings are whole steps after it, so nothing drifts."""


def next_after(rule: Rule, after: datetime) -> datetime | None:
    """The first firing strictly later than ``after`` (aware), in UTC; None when there is none."""
    if rule.start is not None and after < rule.start:
        after = rule.start - INSTANT
    found = _next(rule, after.astimezone(UTC))
    if found is None or (rule.end is not None and found > rule.end):
        return None
    return found


def between(rule: Rule, start: datetime, end: datetime) -> Iterator[datetime]:
    """All firings from ``start`` to ``end``, both included, in order."""
    found = next_after(rule, start - INSTANT)
    while found is not None and found <= end:
        yield found
        found = next_after(rule, found)


def resolve(wall: datetime, zone: ZoneInfo) -> datetime:
    """The instant (UTC) of a naive wall-clock time: the first of two, or the end of the gap it falls into."""
    instant = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return instant
    # In a gap the two folds lie on either side of the change; close in on the second at which the clock jumps.
    before, after = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant
    while after - before > SECOND:
        middle = before + (after - before) // 2 // SECOND * SECOND
        if middle.astimezone(zone).replace(tzinfo=None) > wall:
            after = middle
        else:
            before = middle
    return after


@cache
def zone_of(name: str) -> ZoneInfo:
    """The zone of that name; ``ZoneInfoNotFoundError`` or ``ValueError`` when there is none."""
    return ZoneInfo(name)


def _next(rule: Rule, after: datetime) -> datetime | None:
    if rule.kind is Kind.ONCE:
        assert rule.at is not None
        return rule.at.astimezone(UTC) if rule.at > after else None
    if rule.kind is Kind.INTERVAL:
        return _next_interval(rule, after)
    if rule.cron is not None and rule.cron.every_hour:
        return _next_elapsed(rule.cron, zone_of(rule.zone), after)
    return _next_by_wall_clock(rule, after)


def _next_interval(rule: Rule, after: datetime) -> datetime:
    assert rule.every is not None
    assert rule.anchor is not None
    anchor = rule.anchor.astimezone(UTC)
    if after < anchor:
        return anchor
    return anchor + ((after - anchor) // rule.every + 1) * rule.every


def _next_by_wall_clock(rule: Rule, after: datetime) -> datetime | None:
    """Walk over the days that match and their times of day.

    A later wall-clock time never resolves to an earlier instant, so what is at or before the wall clock at ``after``
    cannot lie behind it.
    """
    zone = zone_of(rule.zone)
    wall = after.astimezone(zone).replace(tzinfo=None)
    for day in _days_from(rule, wall.date()):
        for moment in _times(rule):
            candidate = datetime.combine(day, moment)
            if candidate > wall:
                instant = resolve(candidate, zone)
                if instant > after:
                    return instant
    return None


def _times(rule: Rule) -> Iterator[time] | tuple[time, ...]:
    if rule.cron is None:
        return rule.times
    minutes = rule.cron.minutes
    return (time(hour, minute) for hour in rule.cron.hours for minute in minutes)


def _days_from(rule: Rule, first: date) -> Iterator[date]:
    """The matching dates from ``first`` on, in order, as far as anything can lie ahead."""
    last = min(first, date.max - LOOK_AHEAD) + LOOK_AHEAD
    if rule.kind in (Kind.MONTHLY, Kind.ANNUALLY):
        dates = _days_by_month(rule, first)
    elif rule.cron is not None:
        dates = _cron_days(rule.cron, first)
    else:
        every = rule.kind is Kind.DAILY
        dates = (day for day in _each_day(first) if every or day.weekday() in rule.weekdays)
    return takewhile(lambda day: day <= last, dates)


def _each_day(first: date) -> Iterator[date]:
    day = first
    while day < date.max:
        yield day
        day += DAY


def _cron_days(cron: Cron, first: date) -> Iterator[date]:
    """Whole months are passed over where the month does not match; ends some time after the look-ahead."""
    day = first
    end = min(first, date.max - LOOK_AHEAD - 62 * DAY) + LOOK_AHEAD
    while day <= end:
        if day.month not in cron.months:
            day = day.replace(day=monthrange(day.year, day.month)[1]) + DAY
            continue
        if cron.matches(day):
            yield day
        day += DAY


def _days_by_month(rule: Rule, first: date) -> Iterator[date]:
    for year in range(first.year, date.max.year):
        for month in range(1, 13):
            if (year, month) < (first.year, first.month):
                continue
            length = monthrange(year, month)[1]
            wanted = rule.days or tuple(day for named, day in rule.dates if named == month)
            for day in sorted({fitted for day in wanted if (fitted := _fit(day, length, clip=rule.clip))}):
                if (found := date(year, month, day)) >= first:
                    yield found


def _fit(day: int, length: int, *, clip: bool) -> int:
    """The day of a month of that length that is meant; 0 when there is none."""
    if day == LAST_DAY:
        return length
    if day <= length:
        return day
    return length if clip else 0


def _next_elapsed(cron: Cron, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Walk over elapsed minutes: nothing is doubled, dropped or moved when the clock is changed."""
    instant = after.replace(second=0, microsecond=0) + MINUTE
    # Offsets of whole minutes are all there is since 1972; a stray second is shed here for the years before.
    instant -= instant.astimezone(zone).second * SECOND
    limit = min(instant, datetime.max.replace(tzinfo=UTC) - LOOK_AHEAD - DAY) + LOOK_AHEAD
    while instant <= limit:
        local = instant.astimezone(zone)
        if not cron.matches(local.date()):
            days = _cron_days(cron, local.date() + DAY)
            day = next(days, None)
            if day is None:
                return None
            instant = max(resolve(datetime.combine(day, time()), zone), instant + MINUTE)
            continue
        if local.minute in cron.minutes and instant > after:
            return instant
        instant = _towards(cron.minutes, local, instant, zone)
    return None


def _towards(minutes: tuple[int, ...], local: datetime, instant: datetime, zone: ZoneInfo) -> datetime:
    """The next instant worth a look: the next minute that matches; one minute on where the clock changes before."""
    ahead = next((minute - local.minute for minute in minutes if minute > local.minute), minutes[0] + 60 - local.minute)
    there = instant + ahead * MINUTE
    return there if there.astimezone(zone).utcoffset() == local.utcoffset() else instant + MINUTE
