"""What holds for every rule: order, no doubles, and the stated answer at every change of a clock from 2000 to 2040."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from celery.schedules import crontab_parser
from hypothesis import given
from hypothesis import strategies as st

from slackwater_schedules.cron import parse_cron
from slackwater_schedules.occurrences import PASS_LIMIT, Due, Missed, MissedPolicy, jitter, plan
from slackwater_schedules.recurrence import INSTANT, Kind, Rule, between, next_after, resolve, zone_of

ZONES = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Asuncion",
    "America/Caracas",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Europe/Moscow",
    "Pacific/Apia",
    "Pacific/Chatham",
    "UTC",
]
MINUTE = timedelta(minutes=1)
AROUND = timedelta(hours=30)


@cache
def transitions(zone_name: str) -> list[datetime]:
    """Every instant from 2000 to 2040 at which the zone's offset changes, to the second."""
    zone = ZoneInfo(zone_name)
    found = []
    day = datetime(2000, 1, 1, tzinfo=UTC)
    while day.year <= 2040:
        low, high = day, day + timedelta(days=1)
        before = low.astimezone(zone).utcoffset()
        if high.astimezone(zone).utcoffset() != before:
            while high - low > timedelta(seconds=1):
                middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
                low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
            found.append(high)
        day += timedelta(days=1)
    return found


def first_shown(wall: datetime, name: str, change: datetime) -> datetime | None:
    """The first instant within 30 hours of a change at which the zone's clocks show a minute; None: none does."""
    zone = zone_of(name)
    low, high = change - AROUND, change + AROUND
    offsets = {low.astimezone(zone).utcoffset()}
    offsets |= {other.astimezone(zone).utcoffset() for other in transitions(name) if low <= other < high}
    instants = [(wall - offset).replace(tzinfo=UTC) for offset in offsets if offset is not None]
    showing = [i for i in instants if low <= i < high and i.astimezone(zone).replace(tzinfo=None) == wall]
    return min(showing, default=None)


def test_the_chosen_zones_change_their_clocks() -> None:
    changes = {zone: len(transitions(zone)) for zone in ZONES}
    assert changes["Europe/Berlin"] == 82
    assert changes["Pacific/Apia"] > 5
    assert sum(changes.values()) > 1_000


@pytest.mark.parametrize("name", ZONES)
def test_a_time_that_does_not_exist_runs_after_the_gap_and_one_that_happens_twice_runs_at_the_first(
    name: str,
) -> None:
    zone = zone_of(name)
    for change in transitions(name):
        before = (change - INSTANT).astimezone(zone).replace(tzinfo=None) + INSTANT
        after = change.astimezone(zone).replace(tzinfo=None)
        low, high = min(before, after), max(before, after)
        for wall in {low, low + (high - low) // 2 // MINUTE * MINUTE, high - MINUTE, high, low - MINUTE}:
            expected = first_shown(wall, name, change) or change
            assert resolve(wall, zone) == expected, f"{name} {wall}"
            rule = Rule(kind=Kind.DAILY, zone=name, times=(wall.time(),))
            fired = list(between(rule, change - timedelta(hours=20), change + timedelta(hours=20)))
            assert fired == sorted(set(fired))
            wanted = {
                first_shown(datetime.combine(wall.date() + timedelta(days=n), wall.time()), name, change) or change
                for n in (-1, 0, 1)
            }
            inside = {w for w in wanted if abs(w - change) <= timedelta(hours=20)}
            if high - low < timedelta(hours=12):  # where a whole day is left out, its neighbours collapse too
                assert set(fired) == inside, f"{name} {change} {wall}"
            assert expected in fired or abs(expected - change) > timedelta(hours=20)


@pytest.mark.parametrize("name", ZONES)
def test_every_hour_stays_every_hour(name: str) -> None:
    rule = Rule(kind=Kind.CRON, zone=name, cron=parse_cron("*/20 * * * *"))
    zone = zone_of(name)
    for change in transitions(name):
        start, end = change - timedelta(hours=3), change + timedelta(hours=3)
        minutes = [start + n * MINUTE for n in range(361)]
        assert list(between(rule, start, end)) == [m for m in minutes if m.astimezone(zone).minute % 20 == 0]


@pytest.mark.parametrize("name", ZONES)
def test_cron_at_hours_follows_the_wall_clock(name: str) -> None:
    rule = Rule(kind=Kind.CRON, zone=name, cron=parse_cron("0,30 0-4 * * *"))
    daily = Rule(kind=Kind.DAILY, zone=name, times=tuple(time(h, m) for h in range(5) for m in (0, 30)))
    for change in transitions(name):
        start, end = change - timedelta(days=2), change + timedelta(days=2)
        assert list(between(rule, start, end)) == list(between(daily, start, end))


SINCE_2000 = datetime(2000, 1, 1, tzinfo=UTC)
instants = st.timedeltas(timedelta(), timedelta(days=40 * 365)).map(lambda passed: SINCE_2000 + passed)
times = st.lists(st.times().map(lambda t: t.replace(microsecond=0, tzinfo=None)), min_size=1, max_size=4).map(
    lambda found: tuple(sorted(set(found)))
)
zones = st.sampled_from(ZONES)
crons = st.builds(
    " ".join,
    st.tuples(
        st.sampled_from(["0", "*/15", "7,37", "5-50/9", "*"]),
        st.sampled_from(["*", "0", "2", "1-3", "*/6", "23"]),
        st.sampled_from(["*", "1", "31", "l", "13,29", "*/7"]),
        st.sampled_from(["*", "2", "mar,oct", "*/3"]),
        st.sampled_from(["*", "mon-fri", "0", "5#2", "5l", "sun"]),
    ),
)
rules = st.one_of(
    st.builds(Rule, kind=st.just(Kind.DAILY), zone=zones, times=times),
    st.builds(
        Rule,
        kind=st.just(Kind.WEEKLY),
        zone=zones,
        times=times,
        weekdays=st.frozensets(st.integers(0, 6), min_size=1),
    ),
    st.builds(
        Rule,
        kind=st.just(Kind.MONTHLY),
        zone=zones,
        times=times,
        clip=st.booleans(),
        days=st.lists(st.sampled_from([-1, 1, 15, 28, 29, 30, 31]), min_size=1).map(tuple),
    ),
    st.builds(
        Rule,
        kind=st.just(Kind.ANNUALLY),
        zone=zones,
        times=times,
        clip=st.booleans(),
        dates=st.lists(st.sampled_from([(1, 1), (2, 29), (3, 31), (10, 26)]), min_size=1).map(tuple),
    ),
    # The 31st of February never comes.
    st.builds(Rule, kind=st.just(Kind.CRON), zone=zones, cron=crons.map(parse_cron)).filter(
        lambda rule: next_after(rule, SINCE_2000) is not None
    ),
    st.builds(
        Rule,
        kind=st.just(Kind.INTERVAL),
        anchor=instants,
        every=st.integers(1, 10**7).map(lambda s: timedelta(seconds=s)),
    ),
)


@given(rule=rules, after=instants)
def test_firings_lie_strictly_ahead_and_none_is_left_out(rule: Rule, after: datetime) -> None:
    found = []
    cursor = after
    for _ in range(6):
        following = next_after(rule, cursor)
        assert following is not None
        assert following > cursor
        assert next_after(rule, following - INSTANT) == following
        # Asked from anywhere in between, the answer is the same.
        assert next_after(rule, cursor + (following - cursor) // 2 - INSTANT) == following
        found.append(following)
        cursor = following
    assert list(between(rule, after + INSTANT, cursor)) == found


@given(rule=rules, after=instants, first=st.timedeltas(timedelta(), timedelta(days=30)))
def test_start_and_end_only_cut(rule: Rule, after: datetime, first: timedelta) -> None:
    middle, end = after + first, after + timedelta(days=40)
    if rule.kind is Kind.INTERVAL and rule.every is not None and rule.every < timedelta(hours=1):
        end, middle = after + timedelta(minutes=10), after + min(first, timedelta(minutes=5))
    whole = islice(between(rule, middle, end), 1_000)
    cut = replace(rule, start=middle, end=end)
    assert list(islice(between(cut, after, end + timedelta(days=10)), 1_000)) == list(whole)


@given(anchor=instants, every=st.integers(1, 10**6), after=instants)
def test_an_interval_never_drifts(anchor: datetime, every: int, after: datetime) -> None:
    rule = Rule(kind=Kind.INTERVAL, anchor=anchor, every=timedelta(seconds=every))
    found = next_after(rule, after)
    assert found is not None
    assert (found - anchor) % timedelta(seconds=every) == timedelta()
    assert found - after <= timedelta(seconds=every) or found == anchor


@given(
    field=st.lists(
        st.one_of(
            st.integers(0, 59).map(str),
            st.integers(1, 30).map(lambda n: f"*/{n}"),
            st.tuples(st.integers(0, 29), st.integers(30, 59)).map(lambda p: f"{p[0]}-{p[1]}"),
            st.tuples(st.integers(0, 29), st.integers(30, 59), st.integers(1, 9)).map(
                lambda p: f"{p[0]}-{p[1]}/{p[2]}"
            ),
        ),
        min_size=1,
        max_size=4,
    ).map(",".join)
)
def test_fields_mean_what_they_mean_to_celery(field: str) -> None:
    assert set(parse_cron(f"{field} 0 * * *").minutes) == crontab_parser(60).parse(field)


@given(expression=crons, day=st.dates(date(2000, 1, 1), date(2040, 12, 31)))
def test_a_cron_fires_on_the_days_it_matches(expression: str, day: date) -> None:
    cron = parse_cron(expression)
    rule = Rule(kind=Kind.CRON, cron=cron)
    midnight = datetime.combine(day, time(), UTC)
    fired = list(between(rule, midnight, midnight + timedelta(days=1) - INSTANT))
    assert len(fired) == (len(cron.hours) * len(cron.minutes) if cron.matches(day) else 0)


policies = st.builds(
    MissedPolicy,
    kind=st.sampled_from(list(Missed)),
    after=st.integers(0, 300).map(lambda s: timedelta(seconds=s)),
    limit=st.integers(1, 1000),
    window=st.integers(0, 4000).map(lambda s: timedelta(seconds=s)),
)


@given(
    policy=policies,
    every=st.integers(1, 100),
    behind=st.integers(0, 5_000),
    most_jitter=st.sampled_from([0, 0, 30]),
)
def test_every_firing_is_planned_once_whatever_is_missed(
    policy: MissedPolicy, every: int, behind: int, most_jitter: int
) -> None:
    first = datetime(2030, 1, 1, tzinfo=UTC)
    now = first + timedelta(seconds=behind)
    rule = Rule(kind=Kind.INTERVAL, anchor=first, every=timedelta(seconds=every))
    planned: list[Due] = []
    upcoming: datetime | None = first
    for _ in range(20):
        assert upcoming is not None
        found = plan(rule, upcoming, now, policy, seed=b"s", jitter_s=most_jitter)
        planned += found.due
        upcoming = found.next_fire
        if not found.due:
            break
    assert [p.fire_at for p in planned] == [first + n * timedelta(seconds=every) for n in range(len(planned))]
    assert upcoming is not None
    assert upcoming + jitter(b"s", upcoming, most_jitter) > now
    run = [p for p in planned if p.run]
    missed = [p for p in planned if now - p.due_at > policy.after]
    if not missed:
        assert run == planned
    elif policy.kind in (Missed.ONE, Missed.ALL):
        keep = 1 if policy.kind is Missed.ONE else policy.limit
        assert run == planned[len(planned) - len(run) :]
        # What one pass had to leave to the next is judged there: more than `keep` run only where none is missed.
        assert len(run) == min(keep, len(planned)) or (len(planned) > PASS_LIMIT and run[0] not in missed)
    elif policy.kind is Missed.SKIP:
        assert run == [p for p in planned if p not in missed]
    else:
        assert run == [p for p in planned if p not in missed or now - p.fire_at <= policy.window]
