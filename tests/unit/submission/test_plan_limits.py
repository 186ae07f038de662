"""Checks against a plan."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_ext.core.errors import InvalidInput, NotGranted, TooLarge
from slackwater_tasks.submission import limits as a
from slackwater_tenants.models import Plan

PLAN = Plan(
    tiers=["basic", "regular"],
    max_cap_s=60,
    max_payload_bytes=1000,
    max_dag_tasks=5,
    max_dag_edges=6,
    max_dag_depth=3,
    handlers=["shop.*", "mail.send"],
)


def test_tier() -> None:
    a.check_tier(PLAN, "basic")
    with pytest.raises(NotGranted, match="basic, regular") as caught:
        a.check_tier(PLAN, "premium", field="tasks[2].tier")
    assert caught.value.field == "tasks[2].tier"


@pytest.mark.parametrize(("cap", "error"), [(0, InvalidInput), (-5, InvalidInput), (60_001, NotGranted)])
def test_cap(cap: int, error: type[Exception]) -> None:
    a.check_cap(PLAN, 60_000)
    with pytest.raises(error):
        a.check_cap(PLAN, cap)


def test_payload() -> None:
    a.check_payload(PLAN, 1000)
    with pytest.raises(TooLarge, match="1001 bytes; the plan allows 1000"):
        a.check_payload(PLAN, 1001)


@pytest.mark.parametrize(
    ("handler", "granted"),
    [
        ("shop.pay", True),
        ("shop.a.b", True),
        ("mail.send", True),
        ("mail.sender", False),
        ("Shop.pay", False),
    ],
)
def test_handler_patterns_match_the_whole_name(handler: str, granted: bool) -> None:
    if granted:
        a.check_handler(PLAN, handler)
    else:
        with pytest.raises(NotGranted, match=handler):
            a.check_handler(PLAN, handler)


@pytest.mark.parametrize("over", ["tasks", "edges", "depth"])
def test_dag(over: str) -> None:
    sizes: dict[str, Any] = {"tasks": 5, "edges": 6, "depth": 3}
    a.check_dag(PLAN, **sizes)
    sizes[over] += 1
    with pytest.raises(TooLarge) as caught:
        a.check_dag(PLAN, **sizes)
    assert caught.value.extra["limit"] == sizes[over] - 1
