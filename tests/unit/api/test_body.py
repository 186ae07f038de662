"""A body's JSON: checked in time and memory that grow as the body does, and no further."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler_ext.core.errors import InvalidInput, SlackwaterError, TooLarge
from slackwater_api.http.body import MAX_DEPTH, MAX_NAME, parse, parse_submission
from slackwater_api.http.cost import ALLOWED, TIMES
from slackwater_api.http.pieces import Pieces
from slackwater_tasks.submission.idempotency import body_hash

MEASURE = """
import json, os, sys
import django
django.setup()
from slackwater_api.http.body import parse_submission
from scheduler_ext.core.errors import SlackwaterError

def memory(kind):
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith(kind)).split()[1]) * 1024

def measured(path):
    with open(path, "rb") as file:
        body = file.read()
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = memory("VmRSS")
    try:
        parse_submission(body)
        said = ""
    except SlackwaterError as error:
        said = error.code
    return {"said": said, "more": memory("VmHWM") - before}

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


TASK = b'{"handler": "demo.echo", "args": [12345]},'
REAL = (
    b'{"name": "resize-000123", "handler": "photos.resize", "args": ["s3://bucket/000123.jpg", 1600], "priority": 5,'
    b' "depends_on": ["fetch-000123"]},'
)
BODIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "long names": (lambda: bomb(5_000, 10_000), "invalid_input"),
    "wide": (lambda: bomb(50_000, 900), ""),
    "wider": (lambda: bomb(390_000, 900), ""),
    "too wide": (lambda: bomb(2_000_000, 900), "too_large"),
    "dense": (lambda: b"[" + b'{"a":1},' * 1_000_000 + b"1]", "too_large"),
    "one text": (lambda: b'{"args": ["' + b"x" * 16_000_000 + b'"]}', ""),
    "a text of brackets": (lambda: b'{"args": ["' + b",[{" * 5_000_000 + b'"]}', ""),
    "a text without end": (lambda: b'{"args": ["' + b',\\"' * 4_000_000, "malformed_body"),
    "a wide letter in a long text": (
        lambda: b'{"args": ["' + b"x" * 8_000_000 + "\U0001f600".encode() + b'"]}',
        "too_large",
    ),
    "the same, escaped": (lambda: b'{"args": ["' + b"x" * 8_000_000 + b'\\ud83d\\ude00"]}', "too_large"),
    "wide letters": (lambda: b'{"args": ["' + "\U0001f600".encode() * 200_000 + b'"]}', ""),
    "lists in a list": (lambda: b'{"args": [' + b"[]," * 130_000 + b"1]}", "too_large"),
    "few lists in a list": (lambda: b'{"args": [' + b"[]," * 29_000 + b"1]}", ""),
    "lists as deep as may be": (lambda: b"[" + b",".join([b"[" * 90 + b"]" * 90] * 4_000) + b"]", "too_large"),
    "objects in a list": (lambda: b'{"args": [' + b'{"a":1},' * 190_000 + b"1]}", "too_large"),
    "few objects in a list": (lambda: b'{"args": [' + b'{"a":1},' * 12_000 + b"1]}", ""),
    "objects for tasks": (lambda: b"[" + b'{"a":1},' * 190_000 + b"{}]", ""),
    "names": (lambda: b'{"kwargs": {' + b",".join(b'"%x":1' % n for n in range(350_000)) + b"}}", "too_large"),
    "few names": (lambda: b'{"kwargs": {' + b",".join(b'"%x":1' % n for n in range(24_000)) + b"}}", ""),
    "numbers": (lambda: b'{"args": [' + b"1000," * 390_000 + b"1]}", "too_large"),
    "few numbers": (lambda: b'{"args": [' + b"1.5," * 80_000 + b"1]}", ""),
    "short texts": (lambda: b'{"args": [' + b'"ab",' * 50_000 + b"1]}", ""),
    "tasks": (lambda: b"[" + TASK * 90_000 + b"{}]", ""),
    "a workflow": (lambda: b'{"name": "w", "tasks": [' + REAL * 40_000 + b"{}]}", ""),
    "a workflow of wide letters": (
        lambda: b'{"name": "w", "tasks": [' + REAL.replace(b"photos", "\U0001f600".encode()) * 40_000 + b"{}]}",
        "",
    ),
    "one dense task among many": (
        lambda: b"[" + TASK * 10_000 + b'{"args": [' + b"[]," * 130_000 + b"1]}]",
        "too_large",
    ),
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
        assert one["more"] <= TIMES * (tmp_path / name).stat().st_size + ALLOWED, name


def test_many_tasks_are_the_same_read_one_by_one() -> None:
    late, tasks = b'{"name": "w", "tasks": [' + REAL * 9_000 + b"{}]}", b" [" + TASK * 9_000 + b"{} ] "
    for body in (late, tasks, b'{"tasks" :[' + TASK * 9_000 + b'{"args": ["\\u00fc [,\\"{"]}\n] , "name": "x"}'):
        found, plain = parse_submission(body), json.loads(body)
        pieces, same = (found["tasks"], plain["tasks"]) if isinstance(plain, dict) else (found, plain)
        assert isinstance(pieces, Pieces)
        assert list(pieces) == same
        assert (pieces[0], pieces[-1], pieces[8_998:], len(pieces)) == (same[0], same[-1], same[8_998:], 9_001)
        assert body_hash(found) == body_hash(plain)
        if isinstance(plain, dict):
            assert {**found, "tasks": None} == {**plain, "tasks": None}


@pytest.mark.parametrize(
    ("last", "said", "field"),
    [
        (b'{"args": ["\\u0000"]}]', "NUL", "[9000].args[0]"),
        (b'{"\\ud800": 1}]', "Unicode", "[9000].\\ud800"),
        (b'{"args": [}]]', r"\[9000\]: The body is not valid JSON: Expecting value at line 1, column 11", None),
        (b'{"args": [1}]', "The body is not valid JSON: the task at byte 378001 does not end", None),
        (b'{"args": ["\xff"]}]', r"\[9000\]: The body is not UTF-8", None),
        (b"{}", "The body is not valid JSON", None),
        (b"{}]]", "The body is not valid JSON", None),
        (b"{},]", "The body is not valid JSON: no value follows the comma", None),
        (b'{"args": ["]', "The body is not valid JSON", None),
    ],
)
def test_a_fault_in_one_of_many_is_named(last: bytes, said: str, field: str | None) -> None:
    with pytest.raises(SlackwaterError, match=said) as refused:
        parse_submission(b"[" + TASK * 9_000 + last)
    assert refused.value.field == field


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
