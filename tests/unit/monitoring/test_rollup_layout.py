"""Histograms of figures over time."""

from __future__ import annotations

import pytest

from slackwater_monitoring.rollups import layout


@pytest.mark.parametrize(("part", "expected"), [(0.5, 2.125), (0.95, 4.625)])
def test_a_quantile_lies_within_its_bucket_as_in_promql(part: float, expected: float) -> None:
    counts = [0] * layout.BUCKETS
    for seconds in (2.0, 2.5, 4.0):  # a bound belongs to the bucket that it ends
        counts[layout.bucket(0, seconds)] += 1
    assert layout.quantile(counts, part) == pytest.approx(expected)


def test_of_nothing_there_is_no_quantile_and_what_is_longest_is_told_by_the_last_bound() -> None:
    assert layout.quantile([0] * layout.BUCKETS, 0.5) is None
    assert layout.quantile([0] * len(layout.BOUNDS) + [1], 0.5) == layout.BOUNDS[-1]
