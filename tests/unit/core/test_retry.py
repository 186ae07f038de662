"""Back-off of retries."""

from __future__ import annotations

import random

import pytest

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.retry import RetryPolicy


def test_delays_grow_to_the_cap() -> None:
    policy = RetryPolicy(base_s=2, factor=3, max_s=50, jitter=0)
    rng = random.Random(0)
    assert [policy.delay(attempt, rng.random) for attempt in range(1, 6)] == [2, 6, 18, 50, 50]


def test_jitter_only_shortens_and_spreads() -> None:
    policy = RetryPolicy(base_s=100, factor=1, max_s=100, jitter=0.25)
    rng = random.Random(7)
    delays = [policy.delay(1, rng.random) for _ in range(1000)]
    assert all(75 < delay <= 100 for delay in delays)
    assert max(delays) - min(delays) > 24


def test_a_huge_attempt_number_is_the_cap() -> None:
    assert RetryPolicy(jitter=0).delay(100_000, random.random) == 3600
    assert RetryPolicy(base_s=0, jitter=0).delay(100_000, random.random) == 0


def test_attempt_numbers_start_at_one() -> None:
    with pytest.raises(ValueError, match="number 1"):
        RetryPolicy().delay(0, random.random)


def test_parse_fills_in_the_default() -> None:
    default = RetryPolicy(base_s=7)
    assert RetryPolicy.from_mapping(None, default=default) == default
    assert RetryPolicy.from_mapping({"max_s": 60}, default=default) == RetryPolicy(base_s=7, max_s=60)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"base": 1}, "retry.base"),
        ({"base_s": "1"}, "retry.base_s"),
        ({"base_s": True}, "retry.base_s"),
        ({"base_s": -1}, "retry.base_s"),
        ({"factor": 0.5}, "retry.factor"),
        ({"jitter": 1.5}, "retry.jitter"),
        ({"max_s": float("inf")}, "retry.max_s"),
        ({"factor": float("nan")}, "retry.factor"),
    ],
)
def test_errors_name_the_field(values: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RetryPolicy.from_mapping(values)
    assert caught.value.field == field
