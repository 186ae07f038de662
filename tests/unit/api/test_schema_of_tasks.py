"""What the OpenAPI document says of a task's fields is what the fields take: no more, and no less."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from slackwater_api.http.reference import document
from slackwater_tasks.field_kinds import Moment
from slackwater_tasks.spec import FIELDS
from tests.support.task_values import values_of

TASK = {"handler": "demo.echo"}
WHAT_RUNS = {"handler", "script", "script_path"}


@pytest.fixture(scope="module")
def says() -> Draft202012Validator:
    """The schema of a submission."""
    plain = json.loads(json.dumps(document(), default=str))
    return Draft202012Validator({"$ref": "#/components/schemas/TaskIn", "components": plain["components"]})


def sendable(value: Any) -> bool:
    """Whether a value can be written as JSON in UTF-8."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, UnicodeError):
        return False
    return True


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_field_takes_what_the_document_says(says: Draft202012Validator, name: str) -> None:
    values = values_of(FIELDS[name])
    for value in filter(sendable, values.accepted):
        other = {} if name in WHAT_RUNS and value else {"script_path": "x"} if name == "handler" else TASK
        assert says.is_valid({**other, name: value}), (name, value)
    # Of moments a schema tells the form alone; null stands for an empty text.
    for value in () if isinstance(FIELDS[name].kind, Moment) else filter(sendable, values.refused):
        assert value is None or not says.is_valid({**TASK, name: value}), (name, value)


def test_exactly_one_of_what_runs_is_given(says: Draft202012Validator) -> None:
    sha256 = "0" * 64
    for good in ({"handler": "x"}, {"script": sha256, "handler": ""}, {"script_path": "a", "script": None}):
        assert says.is_valid(good), good
    for bad in ({}, {"handler": ""}, {"handler": "x", "script": sha256}, {"script": None}, {"handler": "x", "eta": 1}):
        assert not says.is_valid(bad), bad


def test_a_change_counts_seconds_from_itself() -> None:
    shapes = document()["components"]["schemas"]
    for shape, since in (("TaskIn", "its submission"), ("PatchedTaskChange", "this change")):
        for name in ("start_in_s", "expires_in_s"):
            assert f"counted from {since}" in shapes[shape]["properties"][name]["description"], (shape, name)
