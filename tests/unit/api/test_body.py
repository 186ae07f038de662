"""A body's JSON: checked in time and memory that grow as the body does, and no further."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from scheduler_ext.core.errors import InvalidInput, SlackwaterError, TooLarge
from slackwater_api.http.body import MAX_DEPTH, MAX_NAME, parse

MEASURE = """
import json, os, sys, time
import django
django.setup()
from slackwater_api.http.body import parse
from scheduler_ext.core.errors import SlackwaterError

def peak():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024

def now():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) * 1024

body = sys.stdin.buffer.read()
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
before = now()
try:
    parse(body)
    said = ""
except SlackwaterError as error:
    said = error.code
print(json.dumps({"said": said, "more": peak() - before}))
"""


def bomb(width: int, name: int, *, depth: int = 20) -> bytes:
    """Nested objects with long names round a wide array; one escape makes every string be looked at."""
    text = "[" + ",".join(["1"] * width) + "]"
    for n in range(depth):
        text = f'{{"{"k" * name}{n}": {text}}}'
    return f'{{"escaped": "\\u00fc", "inner": {text}}}'.encode()


def measured(body: bytes) -> dict[str, Any]:
    """What a fresh process says to a body, and how much memory it came to hold above what it had with the body."""
    env = {"DJANGO_SETTINGS_MODULE": "slackwater.settings.test", "PYTHONPATH": "platform:apps:."}
    done = subprocess.run([sys.executable, "-c", MEASURE], input=body, env=env, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="measures by /proc")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (bomb(5_000, 10_000), "invalid_input"),
        (bomb(50_000, 900), ""),
        (bomb(390_000, 900), ""),
        (bomb(2_000_000, 900), "too_large"),
        (b"[" + b'{"a":1},' * 1_000_000 + b"1]", "too_large"),
        (b'{"args": ["' + b"x" * 16_000_000 + b'"]}', ""),
        (b'{"args": ["' + b",[{" * 5_000_000 + b'"]}', ""),
        (b'{"args": ["' + b',\\"' * 4_000_000, "malformed_body"),
    ],
    ids=["long names", "wide", "wider", "too wide", "dense", "one text", "a text of brackets", "a text without end"],
)
def test_memory_grows_as_the_body_does(body: bytes, said: str) -> None:
    found = measured(body)
    assert found["said"] == said
    assert found["more"] <= 4 * len(body) + 4_194_304


def test_dense_values_are_bounded_in_number(settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "API_MAX_BODY_VALUES": 100}
    assert len(parse(json.dumps([1] * 100).encode())) == 100
    with pytest.raises(TooLarge) as refused:
        parse(json.dumps([1] * 101).encode())
    assert refused.value.extra["limit"] == 100
    assert parse(json.dumps(["[,{" * 200, 'a"[,' * 50]).encode())[0] == "[,{" * 200


def test_the_names_of_members_are_bounded() -> None:
    assert parse(json.dumps({"args": [{"n" * MAX_NAME: 1}]}).encode())
    with pytest.raises(InvalidInput) as refused:
        parse(json.dumps({"args": [{}, {"n" * (MAX_NAME + 1): 1}]}).encode())
    assert str(refused.value.field).startswith("args[1].nnn")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"args": [1, {"b": ["\\u0000"]}]}', "args[1].b[0]"),
        ('{"args": [[], {"b": 1, "\\u0000c": 2}]}', "args[1].\\x00c"),
        ('{"kwargs": {"": "\\ud800"}}', "kwargs."),
        ('{"": "\\ud800"}', '""'),
        ('["\\ud800"]', "[0]"),
        ('"\\ud800"', None),
        ('{"ü": {"a": "\\u0000"}}', "ü.a"),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_path(body: str, field: str | None) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(body.encode())
    assert refused.value.field == field


def test_depth_is_counted_from_the_first_bracket() -> None:
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(SlackwaterError, match="nested more than"):
        parse(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))
