"""A body's JSON: checked in time and memory that grow as the body does, and no further."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.core.errors import InvalidInput, SlackwaterError, TooLarge
from slackwater_api.http.body import MAX_DEPTH, MAX_NAME, parse

MEASURE = """
import json, os, sys
import django
django.setup()
from slackwater_api.http.body import parse
from scheduler_ext.core.errors import SlackwaterError

def held(kind):
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith(kind)).split()[1]) * 1024

def measured(path):
    with open(path, "rb") as file:
        body = file.read()
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = held("VmRSS")
    try:
        parse(body)
        said = ""
    except SlackwaterError as error:
        said = error.code
    return {"said": said, "more": held("VmHWM") - before}

for path in sys.argv[1:]:
    child = os.fork()  # a process for each body, that has read no other
    if child:
        assert os.waitpid(child, 0)[1] == 0
    else:
        print(json.dumps(measured(path)), flush=True)
        os._exit(0)
"""


def bomb(width: int, name: int, *, depth: int = 20) -> bytes:
    """Nested objects with long names round a wide array; one escape makes every string be looked at."""
    text = "[" + ",".join(["1"] * width) + "]"
    for n in range(depth):
        text = f'{{"{"k" * name}{n}": {text}}}'
    return f'{{"escaped": "\\u00fc", "inner": {text}}}'.encode()


BODIES = {
    "long names": (lambda: bomb(5_000, 10_000), "invalid_input"),
    "wide": (lambda: bomb(50_000, 900), ""),
    "wider": (lambda: bomb(390_000, 900), ""),
    "too wide": (lambda: bomb(2_000_000, 900), "too_large"),
    "dense": (lambda: b"[" + b'{"a":1},' * 1_000_000 + b"1]", "too_large"),
    "one text": (lambda: b'{"args": ["' + b"x" * 16_000_000 + b'"]}', ""),
    "a text of brackets": (lambda: b'{"args": ["' + b",[{" * 5_000_000 + b'"]}', ""),
    "a text without end": (lambda: b'{"args": ["' + b',\\"' * 4_000_000, "malformed_body"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="measures by /proc")
def test_memory_grows_as_the_body_does(tmp_path: Path) -> None:
    """What a process comes to hold above what it had with the body."""
    for name, (body, _) in BODIES.items():
        (tmp_path / name).write_bytes(body())
    env = {"DJANGO_SETTINGS_MODULE": "slackwater.settings.test", "PYTHONPATH": "platform:apps:."}
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / name) for name in BODIES)]
    found = map(json.loads, subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout.splitlines())
    for (name, (_, said)), one in zip(BODIES.items(), found, strict=True):
        assert one["said"] == said, name
        assert one["more"] <= 4 * (tmp_path / name).stat().st_size + 4_194_304, name


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
