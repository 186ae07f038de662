"""Histograms of figures over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater_monitoring.rollups import layout


@pytest.mark.parametrize(("part", "expected"), [(0.5, 2.125), (0.95, 4.625)])
def test_a_quantile_lies_within_its_bucket_as_in_promql(part: float, expected: float) -> None:
    counts = [0] * layout.BUCKETS
    for seconds in (2.0, 2.5, 4.0):  # a bound belongs to the bucket that it ends
        counts[layout.bucket(0, round(seconds * 1_000_000))] += 1
    assert layout.quantile(counts, part) == pytest.approx(expected)


@given(st.integers(-5, 10**12) | st.sampled_from(layout.BOUNDS_US).flatmap(lambda at: st.integers(at - 2, at + 2)))
def test_a_time_in_microseconds_is_in_the_bucket_of_its_seconds(microseconds: int) -> None:
    place = layout.bucket(layout.RUNS, microseconds) - layout.RUNS
    assert place == sum(bound < microseconds / 1_000_000 for bound in layout.BOUNDS)


def test_of_nothing_there_is_no_quantile_and_what_is_longest_is_told_by_the_last_bound() -> None:
    assert layout.quantile([0] * layout.BUCKETS, 0.5) is None
    assert layout.quantile([0] * len(layout.BOUNDS) + [1], 0.5) == layout.BOUNDS[-1]
