"""A receipt's text is written at once: it is the canonical text of what it tells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler_ext.core.states import FINAL, Category, Outcome, TaskState
from slackwater_monitoring.receipts import chain
from slackwater_monitoring.receipts.account import Ended, Form, Moments
from slackwater_monitoring.receipts.terms import Terms

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])
MOMENTS = st.datetimes(timezones=ZONES).filter(lambda at: 1000 < at.year < 9000)
DAY = datetime(2026, 3, 1, tzinfo=UTC)
SMALL = st.integers(0, 2**31)
COUNTS = st.none() | SMALL
NAMES = st.text(min_size=1, max_size=12)
TERMS = st.builds(
    Terms, SMALL, SMALL, st.just({"7": 3_600_001}), st.dictionaries(st.just("urgent"), st.integers(0, 9_000)), NAMES, NAMES
)  # fmt: skip
ENDS = st.builds(
    Ended, SMALL, st.uuids().map(str), NAMES, st.sampled_from([int(one) for one in Category]), st.just(7), NAMES, SMALL, SMALL,
    SMALL, MOMENTS, MOMENTS, st.none() | MOMENTS, MOMENTS, st.none() | st.sampled_from([int(one) for one in FINAL]), COUNTS,
    st.none() | MOMENTS, st.none() | st.sampled_from([int(one) for one in Outcome]), COUNTS, COUNTS, COUNTS, NAMES,
    st.none() | MOMENTS, st.none() | NAMES, st.booleans(),
)  # fmt: skip
NOTHING_AHEAD = (0, 0, 0)


def shown(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def as_seconds(milliseconds: int | None) -> Any:
    return None if milliseconds is None else milliseconds / 1000 if milliseconds % 1000 else milliseconds // 1000


@given(st.lists(MOMENTS | st.just(DAY), max_size=9))
def test_moments_are_written_alike_however_many_fall_into_a_second(ats: list[datetime]) -> None:
    moments = Moments()
    near = [at + timedelta(microseconds=n) for at in ats for n in (0, 1, 999_999)]
    assert [moments.text(at) for at in near] == [f'"{shown(at)}"' for at in near]


def told(row: Ended, terms: Terms, charged: int, before: tuple[int, int, int] | None) -> dict[str, Any]:
    late_ms = 0
    if row.latest_start is not None and (row.first or row.number is None):
        late_ms = max(0, round(((row.started_at or row.at) - row.latest_start).total_seconds() * 1000))
    names = {"order": 0, "category": 1, "share": 2}
    return {
        "task_id": row.task_id,
        "attempt": row.number,
        "state": None if row.state is None else TaskState(row.state).name.lower(),
        "outcome": None if row.outcome is None else Outcome(row.outcome).name.lower(),
        "ended_at": shown(row.at),
        "tier": row.tier,
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
            "cpu_milli": row.cpu_milli,
            "memory_mb": row.memory_mb,
            "disk_mb": row.disk_mb,
            "cpu_s": as_seconds(row.cpu_ms),
            "peak_memory_mb": row.peak_memory_mb,
            "peak_disk_mb": row.peak_disk_mb,
            "before": None if before is None else {name: before[at] for name, at in names.items()},
        },
        "charged_micros": charged,
    }


LATE = Ended(
    tenant=1, task_id="0193a1b2-0000-7000-8000-000000000000", cell="default", category=int(Category.URGENT), tier_id=7,
    tier='ünder "q"', cpu_milli=250, memory_mb=64, disk_mb=10, submitted_at=DAY, due_at=DAY,
    latest_start=DAY + timedelta(seconds=1), at=DAY + timedelta(minutes=1, microseconds=1), state=int(TaskState.SUCCEEDED),
    number=1, started_at=DAY + timedelta(seconds=2, microseconds=500), outcome=int(Outcome.SUCCEEDED), cpu_ms=7,
    peak_memory_mb=None, peak_disk_mb=3, handler="demo.add", queued_at=None, node=None, first=True,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(row=ENDS, terms=TERMS, number=SMALL, charged=SMALL, before=st.none() | st.tuples(SMALL, SMALL, SMALL))
@example(row=LATE, terms=Terms(1, 5, {}, {}, "fifo", "drf \\"), number=9, charged=0, before=NOTHING_AHEAD)
def test_a_receipts_text_is_the_canonical_one_of_what_it_tells(
    row: Ended, terms: Terms, number: int, charged: int, before: tuple[int, int, int] | None
) -> None:
    receipt = Form(row, terms, Moments()).receipt(row, row.run_ms, charged, before)
    assert receipt.text(number) == chain.canonical({"number": number, **told(row, terms, charged, before)})
    assert (receipt.tenant, receipt.at, receipt.charged_micros) == (row.tenant, row.at, charged)
