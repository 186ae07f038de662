"""Policies by name."""

from __future__ import annotations

import pytest

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.order.deadline import Deadline
from scheduler_ext.policies.registry import order_policy, share_policy


def test_by_name_with_parameters() -> None:
    assert order_policy("deadline", {"default_tolerance_s": 60}) == Deadline(default_tolerance_s=60)
    assert share_policy("equal").name == "equal"


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ConfigurationError, match=r"deadline, .*fifo") as caught:
        order_policy("lifo")
    assert caught.value.field == "order_policy"
    with pytest.raises(ConfigurationError, match="equal"):
        share_policy("fifo")


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"nonsense": 1}, "order_policy.nonsense"),
        ({"default_tolerance_s": "60"}, "order_policy.default_tolerance_s"),
        ({"default_tolerance_s": True}, "order_policy.default_tolerance_s"),
        ({"default_tolerance_s": -1}, "order_policy.default_tolerance_s"),
    ],
)
def test_a_wrong_parameter_is_named(parameters: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        order_policy("deadline", parameters)
    assert caught.value.field == field
