"""What is checked inside arguments that are TypedDicts, dataclasses, UUIDs, decimals and moments, however deep they lie."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, NotRequired, Required, TypedDict
from uuid import UUID, uuid4

import pytest
import typing_extensions
from jsonschema_rs import meta
from kombu.utils.json import register_type
from pydantic import create_model

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.task.arguments import Arguments
from scheduler_ext.task.celery_json import CALL, TYPED, written
from scheduler_ext.task.signature import schema_of
from slackwater_console.forms import arguments

ID = "0198c9a0-5a3e-7c62-9b1e-2f4f1c0f6a11"


class Line(TypedDict):
    sku: str
    count: int
    note: NotRequired[str]


class Patch(TypedDict, total=False):
    id: Required[UUID]
    price: Decimal


class Folder(TypedDict):
    name: str
    folders: list[Folder]


class Extended(typing_extensions.TypedDict):
    count: int


class Unresolved(TypedDict):
    value: Nowhere  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Address:
    street: str
    country: str = "DE"
    lines: list[Line] = field(default_factory=list)
    shown: str = field(init=False, default="")


def one(line: Line) -> None: ...
def several(lines: list[Line]) -> None: ...
def by_name(lines: dict[str, Line]) -> None: ...
def perhaps(line: Line | None = None) -> None: ...
def either(line: Line | UUID) -> None: ...
def any_number(*lines: Line) -> None: ...
def quoted(lines: list["Line"]) -> None: ...  # noqa: UP037 - it is a name within a name
def explained(lines: Annotated[list[Line], "what is bought"]) -> None: ...
def patch(patch: Patch) -> None: ...
def tree(folder: Folder) -> None: ...
def extended(each: list[Extended]) -> None: ...
def unresolved(each: list[Unresolved]) -> None: ...
def post(to: Address, also: list[Address] = []) -> None: ...  # noqa: B006
def ids(these: list[UUID], when: datetime, day: date, at: time, price: Decimal) -> None: ...


def checked(function: Callable[..., Any], args: list[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The field that is wrong; None where nothing is."""
    found = schema_of(function)
    assert found is not None
    meta.validate(found)
    try:
        Arguments(json.loads(json.dumps(found))).check_payload((json.dumps(args), json.dumps(kwargs)), str)
    except InvalidInput as error:
        return error.field
    return None


def wrong(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    return checked(function, [*args], kwargs)


FINE = {"sku": "a", "count": 1}
BAD = {"sku": "a", "count": "y"}


@pytest.mark.parametrize(
    ("function", "fine", "bad", "place"),
    [
        (one, FINE, BAD, "args[0].count"),
        (one, {**FINE, "note": "soon", "more": 1}, {**FINE, "note": 1}, "args[0].note"),
        (one, FINE, {"sku": "a"}, "args[0]"),
        (several, [FINE], [FINE, BAD], "args[0][1].count"),
        (by_name, {"x": FINE}, {"x": BAD}, "args[0].x.count"),
        (perhaps, None, BAD, "args[0].count"),
        (either, ID, BAD, "args[0].count"),
        (either, FINE, "no id", "args[0]"),
        (any_number, FINE, BAD, "args[0].count"),
        (quoted, [FINE], [BAD], "args[0][0].count"),
        (explained, [FINE], [BAD], "args[0][0].count"),
        (patch, {"id": ID, "price": "1.50"}, {"id": ID, "price": "cheap"}, "args[0].price"),
        (patch, {"id": ID}, {"price": 1}, "args[0]"),
        (tree, {"name": "a", "folders": [{"name": "b", "folders": []}]},
         {"name": "a", "folders": [{"name": 1, "folders": []}]}, "args[0].folders[0].name"),
        (extended, [{"count": 1}], [{"count": "y"}], "args[0][0].count"),
        (unresolved, [{"value": 1}], [1], "args[0][0]"),
        (post, {"street": "Elm"}, {"street": "Elm", "lines": [BAD]}, "args[0].lines[0].count"),
        (post, {"street": "Elm", "country": "FR"}, {"country": "FR"}, "args[0]"),
    ],
)  # fmt: skip
def test_fields_are_checked_where_they_are(function: Any, fine: Any, bad: Any, place: str) -> None:
    assert wrong(function, fine) is None
    assert wrong(function, bad) == place


RIGHT = {"these": [ID], "when": "2030-01-31T09:00:00Z", "day": "2030-01-31", "at": "09:00", "price": "1.50"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("these", [[], [ID.upper(), ID.replace("-", "")]]),
        ("when", ["2030-01-31 09:00", "2030-01-31T09:00:00.123456+01:00", "2030-01-31"]),
        ("day", ["2030-01-31", "2030-01-31T09:00:00Z"]),
        ("at", ["23:59:59", "09:00:00.5+00:00"]),
        ("price", [1, 1.5, "-.5", "1E+2", "NaN", "-Infinity"]),
    ],
)
def test_what_the_class_reads_is_taken(name: str, values: list[Any]) -> None:
    assert [wrong(ids, **RIGHT | {name: value}) for value in values] == [None] * len(values)


@pytest.mark.parametrize(
    ("name", "values", "place"),
    [
        ("these", [["x"], [ID[:-1]], [7]], "kwargs.these[0]"),
        ("when", ["soon", "2030-13-01T09:00:00Z", "2030-01-31T25:00:00Z", 7], "kwargs.when"),
        ("day", ["2030-01-32", "2030-01-31T25:00:00Z", "2030-01-31 or so"], "kwargs.day"),
        ("at", ["24:00", "nine"], "kwargs.at"),
        ("price", ["", ".", "1,50", "cheap", True, None], "kwargs.price"),
    ],
)
def test_what_the_class_does_not_read_is_refused(name: str, values: list[Any], place: str) -> None:
    assert [wrong(ids, **RIGHT | {name: value}) for value in values] == [place] * len(values)


def test_values_that_celery_writes_fit() -> None:
    now = datetime(2030, 1, 31, 9, 0, 0, 5, UTC)
    for moment in (now, now.replace(tzinfo=None, microsecond=0)):
        values = [[uuid4()], moment, moment.date(), moment.timetz(), Decimal("1E-7")]
        assert checked(ids, *written(values, {})) is None
    assert checked(ids, *written([[uuid4()], now, now.date(), now.time(), "cheap"], {})) == "args[4]"


class Weighed:
    """A class that a team writes in its own way."""


def test_how_a_class_of_the_team_is_written_no_annotation_says() -> None:
    def take(line: Line, count: int) -> None: ...

    register_type(Weighed, "Weighed", lambda _: "12 EUR", lambda _: Weighed())
    assert checked(take, *written([Weighed(), 1], {})) is None
    assert checked(take, *written([], {"line": [Weighed()], "count": "x"})) == "kwargs.count"
    assert checked(take, *written([uuid4(), 1], {})) == "args[0]"
    assert checked(take, [{"__type__": ["no", "text"], "__value__": 1}, 1], {CALL: {TYPED: True}}) is None


def test_classes_of_one_name_stay_apart() -> None:
    typed: Any = TypedDict("Line", {"weight": int})  # type: ignore[name-match]
    model = create_model("Bill", line=create_model("Line", count=int))

    def apart(first: list[Line], second: list[Any], third: Any) -> None: ...

    apart.__annotations__ = {"first": list[Line], "second": list[typed], "third": model}
    assert wrong(apart, [FINE], [{"weight": 1}], {"line": {"count": 1}}) is None
    assert wrong(apart, [BAD], [], {}) == "args[0][0].count"
    assert wrong(apart, [], [{"weight": "y"}], {}) == "args[1][0].weight"


def test_a_form_names_the_format_and_not_its_pattern() -> None:
    fields = {each.label: each for each in arguments(schema_of(ids) or {})}
    assert (fields["when"].help, fields["day"].help) == ("a date-time", "a date")
