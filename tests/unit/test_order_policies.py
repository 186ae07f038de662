"""Ranks inside a line."""

from __future__ import annotations

from typing import Any

from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.deadline import Deadline
from scheduler_ext.policies.order.fifo import Fifo


def given(**changes: Any) -> RankInput:
    values: dict[str, Any] = {
        "arrived_us": 1_000_000,
        "latest_start_us": None,
        "expected_us": None,
        "cap_us": 0,
    }
    return RankInput(**{**values, **changes})


def test_fifo_is_by_arrival_whatever_else() -> None:
    early, late = (
        given(arrived_us=1, cap_us=9),
        given(arrived_us=2, latest_start_us=0, expected_us=1, level=0),
    )
    assert Fifo().rank(early) < Fifo().rank(late)


def test_higher_priority_comes_first_and_stays_in_32_bits() -> None:
    for policy in (Fifo(), Deadline()):
        assert policy.rank(given(priority=5)) < policy.rank(given(arrived_us=0, latest_start_us=0))
        for extreme in (-(10**9), 10**9):
            group, number = policy.rank(given(priority=extreme, arrived_us=10**30))
            assert -(2**31) <= group < 2**31
            assert -(2**63) <= number < 2**63


def test_deadline_is_by_latest_start() -> None:
    policy = Deadline(default_tolerance_s=10)
    soon = given(arrived_us=9_000_000, latest_start_us=9_500_000)
    later = given(arrived_us=0, latest_start_us=20_000_000)
    without = given(arrived_us=1_000_000)
    assert policy.rank(soon) < policy.rank(without) < policy.rank(later)
