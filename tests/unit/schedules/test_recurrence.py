"""Rules by example: what each kind means, and what is refused with which field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_ext.core.errors import InvalidInput
from slackwater_schedules.cron import parse_cron
from slackwater_schedules.occurrences import Missed, MissedPolicy, jitter, plan
from slackwater_schedules.recurrence import INSTANT, Kind, Rule, between, next_after, zone_of
from slackwater_schedules.rules import check_zone, read_instant, read_rule

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


def rule(
    kind: str,
    zone: str = "UTC",
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    **parameters: Any,
) -> Rule:
    return read_rule(kind, parameters, zone=zone, anchor=NOW, start=start, end=end)


def firings(of: Rule, n: int, after: datetime = NOW) -> list[str]:
    found = []
    cursor: datetime | None = after
    for _ in range(n):
        assert cursor is not None
        cursor = next_after(of, cursor)
        if cursor is None:
            break
        found.append(cursor.astimezone(zone_of(of.zone)).strftime("%Y-%m-%d %H:%M"))
    return found


def test_once_fires_once() -> None:
    at = rule("once", "Europe/Berlin", at="2026-07-01T09:00")
    assert firings(at, 3) == ["2026-07-01 09:00"]
    assert next_after(at, NOW) == datetime(2026, 7, 1, 7, tzinfo=UTC)
    assert next_after(rule("once"), NOW - INSTANT) == NOW


def test_daily_and_weekly() -> None:
    assert firings(rule("daily", times=["18:30", "06:00"]), 3) == [
        "2026-01-15 18:30",
        "2026-01-16 06:00",
        "2026-01-16 18:30",
    ]
    assert firings(rule("daily"), 1) == ["2026-01-16 00:00"]
    assert firings(rule("weekly", weekdays=["mon", "fri"], times=["08:00:30"]), 3) == [
        "2026-01-16 08:00",
        "2026-01-19 08:00",
        "2026-01-23 08:00",
    ]


def test_a_day_that_a_month_lacks() -> None:
    assert firings(rule("monthly", days=[31]), 4) == [
        "2026-01-31 00:00",
        "2026-02-28 00:00",
        "2026-03-31 00:00",
        "2026-04-30 00:00",
    ]
    assert firings(rule("monthly", days=[31], short_months="skip"), 3) == [
        "2026-01-31 00:00",
        "2026-03-31 00:00",
        "2026-05-31 00:00",
    ]
    assert firings(rule("monthly", days=[30, "last"]), 3) == [
        "2026-01-30 00:00",
        "2026-01-31 00:00",
        "2026-02-28 00:00",
    ]


def test_the_29th_of_february() -> None:
    assert firings(rule("annually", dates=["02-29"]), 3) == [
        "2026-02-28 00:00",
        "2027-02-28 00:00",
        "2028-02-29 00:00",
    ]
    assert firings(rule("annually", dates=["02-29"], short_months="skip"), 2) == [
        "2028-02-29 00:00",
        "2032-02-29 00:00",
    ]
    century = datetime(2097, 1, 1, tzinfo=UTC)
    assert firings(rule("annually", dates=["02-29"], short_months="skip"), 1, century) == ["2104-02-29 00:00"]
    assert firings(rule("cron", cron="0 0 29 2 *"), 1, century) == ["2104-02-29 00:00"]


@pytest.mark.parametrize("hour", ["0", "*"])
def test_a_day_of_the_month_that_must_be_a_day_of_the_week_too(hour: str) -> None:
    """The 8th of February is the second Friday eleven years on; a Monday, 29 February, may be forty years away."""
    friday = rule("cron", cron=f"0 {hour} */7 2 5#2")
    assert firings(friday, 1, datetime(2013, 3, 1, tzinfo=UTC)) == ["2019-02-08 00:00"]
    assert firings(friday, 1, datetime(2019, 3, 1, tzinfo=UTC)) == ["2030-02-08 00:00"]
    leap = rule("cron", cron=f"0 {hour} */28 2 1#5")
    assert firings(leap, 1, datetime(2072, 3, 1, tzinfo=UTC)) == ["2112-02-29 00:00"]


def test_interval_counts_from_its_start() -> None:
    start = datetime(2026, 1, 15, 11, 59, 50, tzinfo=UTC)
    assert next_after(rule("interval", every_s=60, start=start), NOW) == start + timedelta(minutes=1)
    assert next_after(rule("interval", every_s=60), NOW) == NOW + timedelta(minutes=1)
    later = NOW + timedelta(days=1)
    assert next_after(rule("interval", every_s=60, start=later), NOW) == later


def test_start_and_end_are_included() -> None:
    start, end = datetime(2026, 1, 17, tzinfo=UTC), datetime(2026, 1, 19, tzinfo=UTC)
    cut = rule("daily", start=start, end=end)
    assert list(between(cut, NOW, NOW + timedelta(days=30))) == [start, start + timedelta(days=1), end]


def test_the_clock_is_put_forward() -> None:
    night = datetime(2024, 3, 30, tzinfo=UTC)
    assert firings(rule("daily", "Europe/Berlin", times=["02:30"]), 3, night) == [
        "2024-03-30 02:30",
        "2024-03-31 03:00",
        "2024-04-01 02:30",
    ]


def test_the_clock_is_put_back() -> None:
    found = list(
        between(
            rule("daily", "Europe/Berlin", times=["02:30"]),
            datetime(2024, 10, 26, 12, tzinfo=UTC),
            datetime(2024, 10, 28, tzinfo=UTC),
        )
    )
    assert found == [datetime(2024, 10, 27, 0, 30, tzinfo=UTC)]


def test_a_day_that_a_zone_left_out() -> None:
    # Samoa went from 29 to 31 December 2011.
    found = firings(rule("daily", "Pacific/Apia", times=["10:00"]), 3, datetime(2011, 12, 29, 12, tzinfo=UTC))
    assert found == ["2011-12-29 10:00", "2011-12-31 00:00", "2011-12-31 10:00"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/15 9-17 * * mon-fri", "2026-01-15 12:15"),
        ("0 0 1 jan,jul *", "2026-07-01 00:00"),
        ("30 4 1,15 * 5", "2026-01-16 04:30"),
        ("0 22 * * 5l", "2026-01-30 22:00"),
        ("0 22 * * tue#2", "2026-02-10 22:00"),
        ("0 22 * * sat-sun", "2026-01-17 22:00"),
        ("0 22 * * fri-sun", "2026-01-16 22:00"),
        ("0 22 * * 7", "2026-01-18 22:00"),
        ("0 0 L 2 *", "2026-02-28 00:00"),
        ("5/20 13 * * *", "2026-01-15 13:05"),
        ("@weekly", "2026-01-18 00:00"),
        ("@hourly", "2026-01-15 13:00"),
    ],
)
def test_cron(expression: str, expected: str) -> None:
    assert firings(rule("cron", cron=expression), 1) == [expected]


def test_a_cron_that_never_fires_ends() -> None:
    assert next_after(Rule(kind=Kind.CRON, cron=parse_cron("0 0 30 2 *")), NOW) is None
    assert next_after(Rule(kind=Kind.CRON, cron=parse_cron("0 * 30 2 *")), NOW) is None


@pytest.mark.parametrize(
    ("kind", "parameters", "field", "message"),
    [
        ("hourly", {}, "kind", "must be one of once, daily"),
        ("daily", {"times": []}, "rule.times", "at least one"),
        ("daily", {"times": ["07:30", "24:00"]}, "rule.times[1]", "'24:00' is not a time of day"),
        ("daily", {"days": [1]}, "rule.days", "not a parameter of kind daily"),
        ("weekly", {}, "rule.weekdays", "at least one"),
        ("weekly", {"weekdays": ["monday"]}, "rule.weekdays[0]", "not one of mon"),
        ("monthly", {"days": [0]}, "rule.days[0]", "from 1 to 31"),
        ("monthly", {"days": [True]}, "rule.days[0]", "from 1 to 31"),
        ("monthly", {"days": [31], "short_months": "maybe"}, "rule.short_months", "last_day, skip"),
        ("annually", {"dates": ["02-30"]}, "rule.dates[0]", "not a month and day"),
        ("annually", {"dates": ["13-01"]}, "rule.dates[0]", "not a month and day"),
        ("cron", {"cron": "* * * *"}, "rule.cron", "has 4"),
        ("cron", {"cron": "61 * * * *"}, "rule.cron", "minute: 61 is not between 0 and 59"),
        ("cron", {"cron": "0 0 * foo *"}, "rule.cron", "month: cannot read 'foo'"),
        ("cron", {"cron": "*/0 * * * *"}, "rule.cron", "step"),
        ("cron", {"cron": "9-5 * * * *"}, "rule.cron", "backwards"),
        ("cron", {"cron": "1,,2 * * * *"}, "rule.cron", "cannot read ''"),
        ("cron", {"cron": 5}, "rule.cron", "must be a text"),
        ("interval", {}, "rule.every_s", "whole seconds"),
        ("interval", {"every_s": 0}, "rule.every_s", "whole seconds"),
        ("interval", {"every_s": 1.5}, "rule.every_s", "whole seconds"),
        ("once", {"at": "soon"}, "rule.at", "cannot read 'soon'"),
        ("once", {"at": 5}, "rule.at", "ISO 8601"),
        ("once", {"at": "9999-01-01T00:00"}, "rule.at", "between 1971 and 2199"),
    ],
)
def test_a_wrong_rule_is_refused_by_its_field(kind: str, parameters: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rule(kind, **parameters)
    assert caught.value.field == field
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["Mars/Olympus", "", None, "../../etc/passwd", "x" * 100])
def test_an_unknown_zone_is_refused(name: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_zone(name)
    assert caught.value.field == "time_zone"


def test_an_instant_without_an_offset_is_read_in_the_zone() -> None:
    assert read_instant("2026-07-01T09:00", "at", "America/New_York") == datetime(2026, 7, 1, 13, tzinfo=UTC)
    assert read_instant("2026-07-01T09:00Z", "at", "America/New_York") == datetime(2026, 7, 1, 9, tzinfo=UTC)


def policy(kind: Missed, **changes: Any) -> MissedPolicy:
    values = {"after": timedelta(seconds=60), "limit": 3, "window": timedelta(minutes=10), **changes}
    return MissedPolicy(kind=kind, **values)


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        # Twenty minutes away from an interval of two minutes: 11 firings due, all but the last are missed.
        (Missed.SKIP, [20]),
        (Missed.ONE, [20]),
        (Missed.ALL, [16, 18, 20]),
        (Missed.WINDOW, [10, 12, 14, 16, 18, 20]),
    ],
)
def test_missed_firings(kind: Missed, run: list[int]) -> None:
    found = plan(rule("interval", every_s=120), NOW, NOW + timedelta(minutes=20), policy(kind))
    assert len(found.due) == 11
    assert [(d.fire_at - NOW) // timedelta(minutes=1) for d in found.due if d.run] == run
    assert found.next_fire == NOW + timedelta(minutes=22)


def test_late_is_not_missed() -> None:
    found = plan(rule("interval", every_s=10), NOW, NOW + timedelta(seconds=55), policy(Missed.SKIP))
    assert [d.run for d in found.due] == [True] * 6


def test_jitter_is_fixed_and_spread() -> None:
    moments = [NOW + timedelta(minutes=n) for n in range(1_000)]
    delays = [jitter(b"schedule", moment, 60) for moment in moments]
    assert delays == [jitter(b"schedule", moment, 60) for moment in moments]
    assert all(timedelta() <= delay < timedelta(seconds=60) for delay in delays)
    for quarter in range(4):
        inside = [d for d in delays if quarter * 15 <= d.total_seconds() < (quarter + 1) * 15]
        assert 180 < len(inside) < 320
    assert jitter(b"schedule", NOW, 0) == timedelta()
