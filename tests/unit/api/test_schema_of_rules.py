"""What the OpenAPI document says of a schedule's rule is what rules are read by."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.reference import document
from slackwater_schedules.rules import read_rule

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
DATES = [f"{month:02}-{day:02}" for month in range(14) for day in range(33)]
GOOD: list[tuple[str, Any]] = [
    ("once", {}), ("once", {"at": None}), ("once", {"at": "2030-01-31T09:00"}), ("daily", {}),
    ("daily", {"times": None}), ("daily", {"times": ["07:30", "23:59:59"]}), ("weekly", {"weekdays": ["mon"] * 7}),
    ("monthly", {"days": [1, 31.0, "last"], "short_months": "skip"}), ("annually", {"dates": ["02-29", "12-31"]}),
    ("cron", {"cron": "@daily"}), ("interval", {"every_s": 60.0}),
]  # fmt: skip
BAD: list[tuple[str, Any]] = [
    ("once", {"at": 5}), ("daily", {"times": []}), ("daily", {"times": ["24:00"]}), ("daily", {"times": ["07:30\n"]}),
    ("daily", {"times": ["0\u0663:00"]}), ("daily", {"days": [1]}), ("weekly", {}), ("weekly", {"weekdays": ["monday"]}),
    ("monthly", {"days": [0]}), ("monthly", {"days": [True]}), ("monthly", {"days": [1], "short_months": 1}),
    ("annually", {"times": ["07:30"]}), ("cron", {}), ("cron", {"cron": 5}), ("interval", {}),
    ("interval", {"every_s": 0}), ("interval", {"every_s": True}), ("interval", []), ("hourly", {}),
]  # fmt: skip

OF_NO_KIND: list[Any] = [{"hours": 1}, {"days": [0]}, {"cron": 5}, []]


def fits(kind: str, rule: Any) -> bool:
    """Whether rules are read so."""
    try:
        read_rule(kind, rule, zone="UTC", anchor=NOW)
    except InvalidInput:
        return False
    return True


@pytest.mark.parametrize("shape", ["PreviewIn", "ScheduleIn", "PatchedScheduleChange"])
def test_the_document_and_the_reader_of_rules_agree(shape: str) -> None:
    plain = json.loads(json.dumps(document(), default=str))
    says = Draft202012Validator({"$ref": f"#/components/schemas/{shape}", "components": plain["components"]})
    rest = {"name": "report", "task": {"handler": "demo.echo"}} if shape == "ScheduleIn" else {}
    for good, (kind, rule) in [(True, each) for each in GOOD] + [(False, each) for each in BAD]:
        assert fits(kind, rule) is says.is_valid({**rest, "kind": kind, "rule": rule}) is good, (kind, rule)
    for date in DATES:
        rule = {"dates": [date]}
        assert fits("annually", rule) is says.is_valid({**rest, "kind": "annually", "rule": rule}), date
    assert says.is_valid({**rest, "kind": "weekly"}) is (shape == "PatchedScheduleChange"), "what is not changed stays"
    assert says.is_valid({**rest, "kind": "daily"})
    if shape == "PatchedScheduleChange":
        assert all(says.is_valid({"rule": rule}) for _, rule in GOOD)
        assert not any(says.is_valid({"rule": rule}) for rule in OF_NO_KIND)
