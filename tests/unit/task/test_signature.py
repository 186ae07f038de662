"""What a handler's signature says of its arguments in JSON Schema, and how arguments are checked against it."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import pytest
from celery import Celery
from jsonschema_rs import meta
from pydantic import BaseModel, Field

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.task import handlers
from scheduler_ext.task.arguments import Arguments
from scheduler_ext.task.signature import schema_of


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    sku: str
    count: int = Field(default=1, ge=1)


class Order(BaseModel):
    items: list[Item]


class Point(TypedDict):
    x: int


def send(
    to: str, subject: str = "hello", *, copies: int | None = None, tags: Sequence[str] = (), **headers: str
) -> None:
    """Send a mail."""


def everything(
    a: bool, b: float, c: list[int], d: dict[str, int], e: Literal["x", 1], f: Colour, g: Order, h: Any,
    i: Annotated[int, Field(ge=0)], j: Annotated[str, "who it is for"], k: datetime, m: UUID, n: Path, o: tuple[int, str],
    p: Point, q: Callable[[], None], r: int = None,  # type: ignore[assignment]  # noqa: RUF013
    s: object = json, t: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """One of each."""


def schema(function: Callable[..., Any], **more: Any) -> dict[str, Any]:
    found = schema_of(function, **more)
    assert found is not None
    meta.validate(found)
    return found


def told(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str | None, str]:
    """The field that is wrong, and why; (None, "") where nothing is."""
    try:
        Arguments(schema(function)).check_payload((json.dumps(args), json.dumps(kwargs)), str)
    except InvalidInput as error:
        return error.field, str(error)
    return None, ""


def test_a_signature_becomes_a_schema() -> None:
    assert schema(send) == {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "subject": {"type": "string", "default": "hello"},
            "copies": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"type": "string"}, "default": ()},
        },
        "required": ["to"],
        "additionalProperties": {"type": "string"},
        "x-positional": ["to", "subject"],
    }


def test_every_annotation_has_its_schema() -> None:
    found = schema(everything)
    kinds = found["properties"]
    assert kinds["c"] == {"type": "array", "items": {"type": "integer"}}
    assert kinds["d"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert (kinds["e"], kinds["f"]) == ({"enum": ["x", 1]}, {"enum": ["red", "blue"]})
    assert kinds["i"] == {"type": "integer", "minimum": 0}
    assert kinds["j"] == {"type": "string", "description": "who it is for"}
    assert (kinds["h"], kinds["q"], kinds["s"]) == ({}, {}, {})
    assert [kinds[name].get("format") for name in "km"] == ["date-time", "uuid"]
    assert kinds["p"]["type"] == "object"
    assert kinds["o"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert kinds["r"]["anyOf"][1] == {"type": "null"}
    assert found["$defs"]["Item"]["properties"]["count"]["minimum"] == 1


def test_what_cannot_be_known_is_not_published() -> None:
    assert schema_of(len) is None
    assert schema_of(dict) is None

    def later(value: Nowhere, other: int) -> None:  # type: ignore[name-defined]  # noqa: F821
        """An annotation for a type checker alone."""

    assert schema(later)["properties"] == {"value": {}, "other": {}}


@pytest.mark.parametrize(
    ("args", "kwargs", "field", "said"),
    [
        (("a@b",), {}, None, ""),
        ((), {"to": "a@b", "copies": 2, "X-Id": "7"}, None, ""),
        (({"$from": "parent"},), {"copies": {"$from": ["a", "b"]}}, None, ""),
        ((), {}, "kwargs.to", "must be given"),
        ((7,), {}, "args[0]", "must be a string"),
        (("a", "b", 3), {}, "args[2]", "takes 2 positional arguments at most"),
        (("a",), {"to": "b"}, "kwargs.to", "is given twice: args[0]"),
        (("a",), {"copies": 1.5}, "kwargs.copies", "does not fit"),
        (("a",), {"tags": ["x", 1]}, "kwargs.tags[1]", "must be a string"),
        (("a",), {"X-Id": 7}, "kwargs.X-Id", "must be a string"),
    ],
)  # fmt: skip
def test_arguments_are_checked(args: Any, kwargs: Any, field: str | None, said: str) -> None:
    found = told(send, *args, **kwargs)
    assert found[0] == field
    assert said in found[1]


def test_models_and_plain_types_are_checked_within() -> None:
    def act(order: Order, colour: Colour = Colour.RED, ratio: float = 1, on: bool = False, n: int = 0) -> None:
        """Act."""

    fine = {"items": [{"sku": "a"}]}
    assert told(act, fine, "blue", 1, on=True, n=2.0) == (None, "")
    assert told(act, {"items": [{"sku": "a", "count": 0}]})[0] == "args[0].items[0].count"
    assert told(act, fine, "green") == ("args[1]", 'args[1]: must be one of "red", "blue"')
    assert told(act, fine, ratio=True)[0] == "kwargs.ratio"
    assert told(act, fine, on=1)[0] == "kwargs.on"
    assert "did you mean colour?" in told(act, fine, color="red")[1]


def test_a_task_is_published_without_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_exports", {})
    app = Celery("typed", set_as_current=False)

    def bound(self: Any, to: str) -> None:
        """It has its task first."""

    def free(to: str) -> None:
        """It has not."""

    made = {
        "bound": app.task(name="bound", bind=True)(bound),
        "retrying": app.task(name="retrying", bind=True, autoretry_for=(ValueError,))(bound),
        "free": app.task(name="free")(free),
        "open": app.task(name="open", typing=False)(free),
    }
    for task in made.values():
        handlers.export(task)
    published = {name: export.schema for name, export in handlers.exported().items()}
    assert published.pop("open") is None
    assert [list((one or {})["properties"]) for one in published.values()] == [["to"]] * 3


class Paid(BaseModel):
    sum: float = Field(ge=0)


@pytest.mark.parametrize(
    ("annotation", "fits", "wrong"),
    [
        (Annotated[str, Field(pattern="(a+)+$")], "aaa", "a" * 40 + "!"),
        (Annotated[float, Field(multiple_of=0.1)], 10**401, 0.05),
        (Annotated[float, Field(multiple_of=0.3)], 0.9, 10**401),
        (Annotated[int, Field(le=10)], 1.0, 10**401),
    ],
    ids=["pattern", "a_long_multiple", "no_multiple", "too_long_a_number"],
)
def test_no_argument_holds_the_process_up(annotation: Any, fits: Any, wrong: Any) -> None:
    """What an engine that tries one way after the other would match for hours, and a float cannot hold."""

    def act(a: Any) -> None:
        """Act."""

    act.__annotations__["a"] = annotation
    assert told(act, fits) == (None, "")
    field, said = told(act, wrong)
    assert field == "args[0]"
    assert "does not fit what the handler takes" in said


def test_look_around_and_back_references_are_matched_within_a_bound() -> None:
    arguments = Arguments({"properties": {"a": {"pattern": "^(?!x)"}, "b": {"pattern": r"^(?:(b|bb)+)\1?(?=c)"}}})
    arguments.check_payload(("[]", '{"a": "y", "b": "bbc"}'), str)
    for wrong in ({"a": "x"}, {"b": "bd"}, {"b": "b" * 100 + "!c"}):
        with pytest.raises(InvalidInput, match="does not fit"):
            arguments.check_payload(("[]", json.dumps(wrong)), str)


def test_an_expression_that_no_engine_knows_is_the_handlers_to_check() -> None:
    arguments = Arguments({"properties": {"a": {"pattern": "(?P<"}, "b": {"maxLength": 1}}})
    arguments.check_payload(("[]", '{"a": "x", "b": "y"}'), str)
    with pytest.raises(InvalidInput):
        arguments.check_payload(("[]", '{"a": "x", "b": "yy"}'), str)


def test_what_may_be_left_out_is_checked_within() -> None:
    def act(paid: Paid | None = None) -> None:
        """Act."""

    assert told(act, {"sum": -1})[0] == "args[0].sum"


def test_what_fits_too_many_alternatives_is_told() -> None:
    with pytest.raises(InvalidInput, match="does not fit"):
        Arguments({"properties": {"a": {"oneOf": [{"type": "integer"}, {"minimum": 0}]}}}).check_payload(
            ("[]", '{"a": 1}'), str
        )
