"""Reading a schedule's rule: from what a client writes to a :class:`~slackwater_schedules.recurrence.Rule`.

===========  =====================================================================================
kind         parameters in ``rule``
===========  =====================================================================================
once         ``at``: ISO 8601; without an offset it is read in the schedule's time zone
daily        ``times``: list of ``HH:MM`` or ``HH:MM:SS``; midnight when left out, here and below
weekly       ``weekdays``: list of ``mon`` … ``sun``; ``times``
monthly      ``days``: list of 1 … 31 or ``last``; ``times``; ``short_months``
annually     ``dates``: list of ``MM-DD``; ``times``; ``short_months``
cron         ``cron``: five fields, or a macro such as ``@daily``
interval     ``every_s``: whole seconds
===========  =====================================================================================

``short_months`` says what happens to a day that a month lacks: ``last_day`` (the default) or ``skip``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Final, NoReturn
from zoneinfo import ZoneInfoNotFoundError

from scheduler_ext.core.errors import DoesNotFit, InvalidInput, whole
from slackwater_schedules.cron import Cron, parse_cron
from slackwater_schedules.recurrence import LAST_DAY, Kind, Rule, resolve, zone_of

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
SHORT_MONTHS: Final = ("last_day", "skip")
MAX_INTERVAL_S: Final = 10 * 366 * 86_400
MAX_TIMES: Final = 1440
MAX_DAYS: Final = 32
MAX_DATES: Final = 366
WIDEST_OFFSET: Final = timedelta(hours=16)
"""PostgreSQL knows no zone that is as far from UTC."""
TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
MONTH_DAY: Final = re.compile("(0[1-9]|1[0-2])-(0[1-9]|[12][0-9])|(0[13-9]|1[0-2])-30|(0[13578]|1[02])-31")


def check_zone(name: Any) -> str:
    """A time zone's name from the IANA database; ``InvalidInput`` when it is none."""
    if not isinstance(name, str) or not name or len(name) > 63:
        _fail("time_zone", "must be a name like Europe/Berlin")
    try:
        return zone_of(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        _fail("time_zone", f"there is no time zone {name!r}")


def read_instant(value: Any, field: str, zone: str) -> datetime:
    """An aware instant from a datetime or ISO 8601 text; without an offset it is the wall clock of ``zone``."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            _fail(field, f"cannot read {value!r}; write ISO 8601, for example 2030-01-31T09:00:00+01:00")
    if not isinstance(value, datetime):
        _fail(field, "must be a time in ISO 8601")
    if not 1970 < value.year < 2200:
        _fail(field, "must lie between 1971 and 2199")
    if value.tzinfo is None:
        return resolve(value, zone_of(zone))
    offset = value.utcoffset()
    return value.astimezone(UTC) if offset is not None and abs(offset) >= WIDEST_OFFSET else value


def read_rule(
    kind: Any,
    parameters: Any,
    *,
    zone: str,
    anchor: datetime,
    start: datetime | None = None,
    end: datetime | None = None,
) -> Rule:
    """The rule of that kind; ``InvalidInput`` names the parameter at fault (``rule.times[0]``).

    ``anchor`` is what an interval counts from when it has no ``start``. A ``once`` without ``at`` is at the anchor.
    """
    if kind not in list(Kind):
        _fail("kind", f"must be one of {', '.join(Kind)}")
    if not isinstance(parameters, Mapping):
        _fail("rule", "must be an object")
    kind = Kind(kind)
    readers = _PARAMETERS[kind]
    unknown = sorted(set(parameters) - set(readers))
    if unknown:
        _fail(f"rule.{unknown[0]}", f"is not a parameter of kind {kind}; known are {', '.join(readers)}")
    values: dict[str, Any] = {}
    for name, reader in readers.items():
        values |= reader(parameters.get(name), f"rule.{name}")
    if kind is Kind.ONCE:
        at = parameters.get("at")
        values["at"] = anchor if at is None else read_instant(at, "rule.at", zone)
    return Rule(kind=kind, zone=zone, start=start, end=end, anchor=start or anchor, **values)


def _fail(field: str, message: str) -> NoReturn:
    raise DoesNotFit(message, field=field)


def _items(value: Any, field: str, most: int) -> list[Any]:
    if not isinstance(value, list | tuple) or not value:
        _fail(field, "must be a list with at least one entry")
    if len(value) > most:
        _fail(field, f"has more than {most} entries")
    return list(value)


def _nothing(_value: Any, _field: str) -> dict[str, Any]:
    return {}


def _read_times(value: Any, field: str) -> dict[str, Any]:
    found = set()
    for index, text in enumerate(_items(["00:00"] if value is None else value, field, MAX_TIMES)):
        match = TIME.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            _fail(f"{field}[{index}]", f"{text!r} is not a time of day like 07:30")
        found.add(time(int(match[1]), int(match[2]), int(match[3] or 0)))
    return {"times": tuple(sorted(found))}


def _read_weekdays(value: Any, field: str) -> dict[str, Any]:
    days = _items(value, field, len(WEEKDAYS))
    for index, day in enumerate(days):
        if day not in WEEKDAYS:
            _fail(f"{field}[{index}]", f"{day!r} is not one of {', '.join(WEEKDAYS)}")
    return {"weekdays": frozenset(WEEKDAYS.index(day) for day in days)}


def _read_days(value: Any, field: str) -> dict[str, Any]:
    found = set()
    for index, day in enumerate(map(whole, _items(value, field, MAX_DAYS))):
        if day != "last" and not (isinstance(day, int) and not isinstance(day, bool) and 1 <= day <= 31):
            _fail(f"{field}[{index}]", f"{day!r} is not a day from 1 to 31, nor last")
        found.add(LAST_DAY if day == "last" else day)
    return {"days": tuple(sorted(found))}


def _read_dates(value: Any, field: str) -> dict[str, Any]:
    found = set()
    for index, text in enumerate(_items(value, field, MAX_DATES)):
        if not isinstance(text, str) or not MONTH_DAY.fullmatch(text):
            _fail(f"{field}[{index}]", f"{text!r} is not a month and day like 12-24")
        found.add((int(text[:2]), int(text[3:])))
    return {"dates": tuple(sorted(found))}


def _read_short_months(value: Any, field: str) -> dict[str, Any]:
    if value is not None and value not in SHORT_MONTHS:
        _fail(field, f"must be one of {', '.join(SHORT_MONTHS)}")
    return {"clip": value != "skip"}


@lru_cache(maxsize=4096)
def _cron(text: str) -> Cron:
    return parse_cron(text)


def _read_cron(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, str):
        _fail(field, "must be a text like 0 9 * * mon-fri")
    try:
        return {"cron": _cron(value)}
    except InvalidInput as error:
        _fail(field, error.message)


def _read_every(value: Any, field: str) -> dict[str, Any]:
    value = whole(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_INTERVAL_S:
        _fail(field, f"must be whole seconds from 1 to {MAX_INTERVAL_S}")
    return {"every": timedelta(seconds=value)}


_PARAMETERS: Final[dict[Kind, dict[str, Callable[[Any, str], dict[str, Any]]]]] = {
    Kind.ONCE: {"at": _nothing},
    Kind.DAILY: {"times": _read_times},
    Kind.WEEKLY: {"weekdays": _read_weekdays, "times": _read_times},
    Kind.MONTHLY: {"days": _read_days, "times": _read_times, "short_months": _read_short_months},
    Kind.ANNUALLY: {"dates": _read_dates, "times": _read_times, "short_months": _read_short_months},
    Kind.CRON: {"cron": _read_cron},
    Kind.INTERVAL: {"every_s": _read_every},
}
