"""A receipt's text is written at once: it is the canonical text of what it tells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler_ext.core.states import FINAL, Category, Outcome, TaskState
from slackwater_monitoring.receipts import chain
from slackwater_monitoring.receipts.account import Ended, Form, Tier
from slackwater_monitoring.receipts.moments import DAY as DAY_US
from slackwater_monitoring.receipts.moments import Texts, as_date, as_datetime, milliseconds, since_epoch
from slackwater_monitoring.receipts.terms import Terms

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])
MOMENTS = st.datetimes(timezones=ZONES).filter(lambda at: 1000 < at.year < 9000)
NUMBERS = MOMENTS.map(since_epoch)
DAY = datetime(2026, 3, 1, tzinfo=UTC)
SMALL = st.integers(0, 2**31)
COUNTS = st.none() | SMALL
NAMES = st.text(min_size=1, max_size=12)
TERMS = st.builds(
    Terms, SMALL, SMALL, st.just({"7": 3_600_001}), st.dictionaries(st.just("urgent"), st.integers(0, 9_000)), NAMES, NAMES
)  # fmt: skip
ENDS = st.builds(
    Ended, SMALL, st.sampled_from([int(one) for one in Category]), st.just(7),
    st.none() | st.sampled_from([int(one) for one in FINAL]), st.none() | st.sampled_from([int(one) for one in Outcome]),
    NAMES, COUNTS, st.uuids().map(str), COUNTS, st.booleans(), NUMBERS, NUMBERS,
    st.none() | NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS, NUMBERS, COUNTS, COUNTS, COUNTS,
)  # fmt: skip
TIERS = st.builds(Tier, NAMES, SMALL, SMALL, SMALL)
NOTHING_AHEAD = (0, 0, 0)


def shown(moment: int | None) -> str | None:
    return None if moment is None else written(as_datetime(moment))


def written(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def as_seconds(milliseconds: int | None) -> Any:
    return None if milliseconds is None else milliseconds / 1000 if milliseconds % 1000 else milliseconds // 1000


@given(st.lists(MOMENTS | st.just(DAY), max_size=9))
def test_moments_are_written_alike_however_many_fall_into_a_second(ats: list[datetime]) -> None:
    texts = Texts()
    near = [at + timedelta(microseconds=n) for at in ats for n in (0, 1, 999_999)]
    assert [texts.of(since_epoch(at)) for at in near] == [f'"{written(at)}"' for at in near]


@given(at=MOMENTS, since=MOMENTS)
@example(at=DAY, since=DAY)
@example(at=datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), since=datetime(1969, 12, 31, 23, 59, 59, 998_499, UTC))
@example(at=DAY + timedelta(microseconds=500), since=DAY)
@example(at=DAY + timedelta(microseconds=1_500), since=DAY)
@example(at=DAY + timedelta(seconds=1, microseconds=1_500), since=DAY)
def test_moments_as_numbers_count_as_datetimes_do(at: datetime, since: datetime) -> None:
    moment = since_epoch(at)
    assert as_datetime(moment) == at
    assert as_date(moment // DAY_US) == at.astimezone(UTC).date()
    assert milliseconds(moment - since_epoch(since)) == max(0, round((at - since).total_seconds() * 1000))


def told(row: Ended, terms: Terms, tier: Tier, charged: int, before: tuple[int, int, int] | None) -> dict[str, Any]:
    late_ms = 0
    if row.latest_start is not None and (row.first or row.number is None):
        since = as_datetime(row.latest_start)
        late = as_datetime(row.at if row.started_at is None else row.started_at) - since
        late_ms = max(0, round(late.total_seconds() * 1000))
    names = {"order": 0, "category": 1, "share": 2}
    return {
        "task_id": row.task_id,
        "attempt": row.number,
        "state": None if row.state is None else TaskState(row.state).name.lower(),
        "outcome": None if row.outcome is None else Outcome(row.outcome).name.lower(),
        "ended_at": shown(row.at),
        "tier": tier.slug,
        "category": Category(row.category).name.lower(),
        "promised": {
            "submitted_at": shown(row.submitted_at),
            "latest_start": shown(row.latest_start),
            "attempt_micros": terms.attempt_micros,
            "hour_micros": terms.hour_micros(row.tier_id, row.category) // 1000,
            "terms": terms.version,
            "order": terms.order,
            "share": terms.share,
        },
        "kept": {
            "started_at": shown(row.started_at),
            "late_by_s": as_seconds(late_ms),
            "held_s": as_seconds(row.run_ms),
            "cpu_milli": tier.cpu_milli,
            "memory_mb": tier.memory_mb,
            "disk_mb": tier.disk_mb,
            "cpu_s": as_seconds(row.cpu_ms),
            "peak_memory_mb": row.peak_memory_mb,
            "peak_disk_mb": row.peak_disk_mb,
            "before": None if before is None else {name: before[at] for name, at in names.items()},
        },
        "charged_micros": charged,
    }


LATE = Ended(
    tenant=1, category=int(Category.URGENT), tier_id=7, handler="demo.add", node_id=None, state=int(TaskState.SUCCEEDED),
    outcome=int(Outcome.SUCCEEDED), task_id="0193a1b2-0000-7000-8000-000000000000", number=1, first=True,
    submitted_at=since_epoch(DAY), due_at=since_epoch(DAY), latest_start=since_epoch(DAY) + 1_000_000, queued_at=None,
    started_at=since_epoch(DAY) + 2_000_500, at=since_epoch(DAY) + 60_000_001, cpu_ms=7, peak_memory_mb=None, peak_disk_mb=3,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    row=ENDS, terms=TERMS, tier=TIERS, number=SMALL, charged=SMALL, before=st.none() | st.tuples(SMALL, SMALL, SMALL)
)
@example(
    row=LATE, terms=Terms(1, 5, {}, {}, "fifo", "drf \\"), tier=Tier('ünder "q"', 250, 64, 10), number=9, charged=0,
    before=NOTHING_AHEAD,
)  # fmt: skip
def test_a_receipts_text_is_the_canonical_one_of_what_it_tells(
    row: Ended, terms: Terms, tier: Tier, number: int, charged: int, before: tuple[int, int, int] | None
) -> None:
    form = Form(row, terms, tier, Texts())
    another = row._replace(latest_start=row.due_at, submitted_at=row.submitted_at + 1)
    for one in (row, another, another, row):  # of one form, whatever they were promised
        receipt = form.receipt(one, one.run_ms, charged, before)
        assert receipt.text(number) == chain.canonical({"number": number, **told(one, terms, tier, charged, before)})
        assert (receipt.tenant, receipt.at, receipt.charged_micros) == (one.tenant, one.at, charged)
