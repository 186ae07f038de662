"""Ranks inside a line."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.deadline import Deadline
from scheduler_ext.policies.order.feedback import Feedback
from scheduler_ext.policies.order.fifo import Fifo
from scheduler_ext.policies.order.round_robin import RoundRobin
from scheduler_ext.policies.order.shortest_first import ShortestFirst
from scheduler_ext.policies.order.workflow import SmallestWorkflow
from scheduler_ext.policies.registry import ORDER_POLICIES, order_policy


def given(**changes: Any) -> RankInput:
    values: dict[str, Any] = {
        "arrived_us": 1_000_000,
        "latest_start_us": None,
        "expected_us": None,
        "cap_us": 0,
    }
    return RankInput(**{**values, **changes})


@pytest.mark.parametrize("name", sorted(ORDER_POLICIES))
def test_every_order_puts_priority_first_and_stays_in_its_columns(name: str) -> None:
    policy = order_policy(name)
    assert policy.name == name
    assert policy.rank(given(priority=5, level=3)) < policy.rank(given(arrived_us=0, latest_start_us=0))
    for extreme in (-(10**9), 10**9):
        group, place = policy.rank(given(priority=extreme, arrived_us=10**30, level=2**40, cap_us=10**30))
        assert -(2**31) <= group < 2**31
        assert -(2**63) <= place < 2**63


@pytest.mark.parametrize("name", sorted(ORDER_POLICIES))
def test_every_order_goes_by_arrival_when_nothing_else_differs(name: str) -> None:
    policy = order_policy(name)
    assert policy.rank(given(arrived_us=1)) < policy.rank(given(arrived_us=2))
    assert policy.rank(given()) == policy.rank(given())


def test_fifo_is_by_arrival_whatever_else() -> None:
    early, late = (
        given(arrived_us=1, cap_us=9),
        given(arrived_us=2, latest_start_us=0, expected_us=1, level=0),
    )
    assert Fifo().rank(early) < Fifo().rank(late)


def test_deadline_is_by_latest_start() -> None:
    policy = Deadline(default_tolerance_s=10)
    soon = given(arrived_us=9_000_000, latest_start_us=9_500_000)
    later = given(arrived_us=0, latest_start_us=20_000_000)
    without = given(arrived_us=1_000_000)
    assert policy.rank(soon) < policy.rank(without) < policy.rank(later)


def test_shortest_first_uses_the_cap_while_nothing_is_learnt() -> None:
    policy = ShortestFirst()
    assert policy.rank(given(expected_us=5, cap_us=10**9)) < policy.rank(given(cap_us=6))


def test_the_guard_of_shortest_first_ends_however_long_a_task_is_expected_to_run() -> None:
    policy = ShortestFirst(most_s=3600)
    long = policy.rank(given(expected_us=10**12))
    assert policy.rank(given(arrived_us=1_000_000 + 3_599 * 1_000_000, expected_us=0)) < long
    assert policy.rank(given(arrived_us=1_000_000 + 3_601 * 1_000_000, expected_us=0)) > long


def test_shortest_first_is_passed_only_within_its_guard() -> None:
    policy = ShortestFirst(weight=10)
    long = given(arrived_us=0, expected_us=1_000_000)
    assert policy.rank(given(arrived_us=9_000_000, expected_us=1)) < policy.rank(long)
    assert policy.rank(long) < policy.rank(given(arrived_us=10_000_000, expected_us=1))


def test_slices() -> None:
    turns, feedback = RoundRobin(quantum_ms=5), Feedback(quanta_ms=(1, 2, 4))
    assert [turns.quantum_us(level) for level in range(3)] == [5000] * 3
    assert [feedback.quantum_us(level) for level in range(5)] == [1000, 2000, 4000, 4000, 4000]
    assert turns.level_of(turns.rank(given(arrived_us=0, level=7))) == 7


def test_feedback_sinks_and_rises() -> None:
    policy = Feedback(boost_ms=1000)
    used = given(arrived_us=0, level=2)
    assert policy.rank(given(arrived_us=1_999_999)) < policy.rank(used) < policy.rank(given(arrived_us=2_000_001))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("shortest_first", {"weight": 0}),
        ("shortest_first", {"most_s": 0}),
        ("round_robin", {"quantum_ms": 0}),
        ("feedback", {"quanta_ms": "123"}),
        ("feedback", {"quanta_ms": []}),
        ("feedback", {"quanta_ms": [4, 2]}),
        ("feedback", {"quanta_ms": [1.5]}),
        ("feedback", {"boost_ms": 0}),
        ("deadline", {"default_tolerance_s": -1}),
    ],
)
def test_wrong_parameters_name_their_field(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        order_policy(name, parameters)
    assert caught.value.field == f"order_policy.{next(iter(parameters))}"


@pytest.mark.parametrize("name", sorted(ORDER_POLICIES))
def test_of_what_arrived_together_the_longest_path_goes_first(name: str) -> None:
    policy, hour = order_policy(name), 3_600_000_000
    ranks = [policy.rank(given(arrived_us=hour, path_us=path, work_us=9)) for path in (0, 1, 100, 102, hour)]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == 5
    assert policy.rank(given(path_us=hour, work_us=9)) > policy.rank(given(arrived_us=990_000, work_us=9)), "10 ms"


def test_the_smallest_workflow_goes_first_within_its_guard() -> None:
    policy = SmallestWorkflow(weight=2, most_s=100)
    large, small = given(work_us=40_000_000), given(arrived_us=70_000_000, work_us=5_000_000)
    assert policy.rank(small) < policy.rank(large) < policy.rank(given(arrived_us=72_000_000, work_us=5_000_000))
    assert policy.rank(given(work_us=10**15)) < policy.rank(given(arrived_us=102_000_000, work_us=1))
    assert policy.rank(given(expected_us=7)) < policy.rank(given(cap_us=8)), "by itself: as long as it runs"
