"""Tasks submitted together are read as each would be alone, and COPY stores what INSERT would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.task.arguments import Arguments
from slackwater_tasks.ledger import copy_format
from slackwater_tasks.spec import dump_payload, parse_task, parse_tasks
from slackwater_tasks.submission.alike import texts_of

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 3), st.just(1.0), st.text(max_size=3), st.just("demo.echo"),
    st.just("urgent"), st.lists(st.text(max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=2), st.none(), max_size=1),
)  # fmt: skip
KEYS = st.sampled_from([
    "handler", "script", "args", "kwargs", "priority", "category", "tags", "name", "depends_on", "total_attempts",
    "checkpoints", "retry", "mutex_key", "nonsense",
])  # fmt: skip
VALID = st.fixed_dictionaries(
    {"handler": st.sampled_from(["demo.echo", "demo.add"])},
    optional={
        "args": st.lists(st.one_of(st.integers(), st.text(max_size=4), st.none()), max_size=3),
        "kwargs": st.dictionaries(st.text(max_size=3), st.floats(allow_nan=True), max_size=2),
        "priority": st.sampled_from([0, 1, True, 1.0, 7]),
        "tags": st.lists(st.sampled_from(["a", "b"]), max_size=2),
        "mutex_key": st.sampled_from(["", "k"]),
        "name": st.text(max_size=2) | st.just("x" * 201),
        "depends_on": st.lists(st.sampled_from(["a", "", "a"]), max_size=2),
    },
)
ITEMS = st.lists(st.one_of(VALID, st.dictionaries(KEYS, VALUES, max_size=4), VALUES), min_size=1, max_size=6)


def one_by_one(items: Sequence[Any]) -> Any:
    return [parse_task(item, f"tasks[{n}]") for n, item in enumerate(items)]


def outcome(read: Callable[[Sequence[Any]], Any], items: Sequence[Any]) -> Any:
    """What reading gives, or the task that is at fault: of several faults in one task either may be told first."""
    try:
        return read(items)
    except InvalidInput as error:
        return str(error.field).split(".")[0]


@given(items=ITEMS)
def test_together_as_one_by_one(items: list[Any]) -> None:
    expected = outcome(one_by_one, items)
    if not isinstance(expected, list):
        assert outcome(lambda given: parse_tasks(given, "tasks"), items) == expected
        return
    specs, payloads = parse_tasks(items, "tasks")
    assert payloads == [spec.payload for spec in expected]
    for spec, alone in zip(specs, expected, strict=True):
        for name in set(alone.__dataclass_fields__) - {"args", "kwargs", "payload", "shape"}:
            value, wanted = getattr(spec, name), getattr(alone, name)
            assert (value, value.__class__) == (wanted, wanted.__class__), name


def test_alike_tasks_share_their_specification() -> None:
    specs, payloads = parse_tasks([{"handler": "demo.echo", "args": [n]} for n in range(3)], "tasks")
    assert specs[0] is specs[1] is specs[2]
    assert payloads == [("[0]", "{}"), ("[1]", "{}"), ("[2]", "{}")]


STORABLE = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
MOMENTS = st.integers(0, 2**33 * 1_000_000).map(
    lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)
ROW = st.tuples(
    st.none() | STORABLE | st.sampled_from(["\\N", "\\.", "\\", "a\tb\nc\rd"]),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.booleans(), MOMENTS, st.lists(STORABLE | st.sampled_from(['"', "\\", "NULL", "{,}"]), max_size=3),
)  # fmt: skip


@pytest.mark.django_db
@given(rows=st.lists(ROW, min_size=1, max_size=4))
def test_copy_reads_what_was_written(rows: list[tuple[Any, ...]]) -> None:
    with connection.cursor() as cur:
        cur.execute("CREATE TEMP TABLE copied (n serial, a text, b int, c boolean, d timestamptz, e text[])")
        try:
            with cur.copy("COPY copied (a, b, c, d, e) FROM STDIN") as copy:
                copy.write("".join(map(copy_format.line, rows)))
            cur.execute("SELECT a, b, c, d, e FROM copied ORDER BY n")
            assert cur.fetchall() == rows
        finally:
            cur.execute("DROP TABLE copied")


def test_lines_of_one_kind_differ_only_where_they_may() -> None:
    made: list[int] = []

    def row(item: tuple[str, int]) -> tuple[Any, ...]:
        made.append(item[1])
        return (item[1], item[0], "x", item[1], None)

    items = [("a", 1), ("a", 2), ("b", 3), ("a", 4)]
    vary = [(0, lambda item: str(item[1])), (3, lambda item: str(item[1]))]
    lines = list(copy_format.alike(items, lambda item: item[0], row, vary))
    assert lines == [copy_format.line(row(item)) for item in items]
    assert made[:2] == [1, 3], "a row is built once for each kind"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["\x00", "\ud800", "$from"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@given(many=st.lists(st.lists(JSON, max_size=3), min_size=1, max_size=4))
def test_arguments_are_written_together_as_each_is(many: list[list[Any]]) -> None:
    texts = texts_of(many, (list,))
    if texts is not None:
        assert texts == [dump_payload(args, {}, "")[0] for args in many]


NAMES = ["a", "b", "c"]
TYPE = st.sampled_from([{}, *({"type": name} for name in ("integer", "number", "string", "boolean", "null", "array"))])
SCHEMAS = st.fixed_dictionaries(
    {
        "x-positional": st.sampled_from([[], ["a"], ["a", "b"]]),
        "properties": st.fixed_dictionaries(dict.fromkeys(NAMES, TYPE)),
        "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        "additionalProperties": st.booleans() | TYPE,
    },
    optional={"x-rest": TYPE},
)
PLAIN = st.none() | st.booleans() | st.integers() | st.just(1.5) | st.text(max_size=2) | st.lists(st.none(), max_size=1)
CALLS = st.lists(
    st.tuples(st.lists(PLAIN, max_size=3), st.dictionaries(st.sampled_from([*NAMES, "d", "$celery"]), PLAIN, max_size=3)),
    min_size=1, max_size=3,
)  # fmt: skip


@given(schema=SCHEMAS, calls=CALLS)
def test_what_surely_fits_is_not_refused(schema: dict[str, Any], calls: list[tuple[list[Any], dict[str, Any]]]) -> None:
    arguments = Arguments(schema)
    if arguments.surely_fit([each[0] for each in calls], [each[1] for each in calls]):
        for call in calls:
            arguments.check_payload(dump_payload(*call, ""), str)


def test_plain_types_surely_fit_and_what_a_schema_must_say_does_not() -> None:
    whole = {"type": "integer"}
    arguments = Arguments({"x-positional": ["a"], "properties": {"a": whole}, "required": ["a"],
                           "additionalProperties": False})  # fmt: skip
    assert arguments.surely_fit([[1], [2]], ())
    assert arguments.surely_fit((), [{"a": 1}, {"a": 2}])
    unsure: list[tuple[Any, Any]] = [
        ([[1], [True]], ()),
        ([[1], []], ()),
        ((), [{"a": 1}, {"b": 1}]),
        ([[1]], [{"a": 1}]),
        ((), ()),
    ]
    for some, named in unsure:
        assert not arguments.surely_fit(some, named)
