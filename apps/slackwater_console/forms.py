"""Forms as data: their fields, what they send to the REST interface, and fields out of a handler's JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.http import QueryDict

from slackwater_adminkit import units
from slackwater_console.page import At
from slackwater_console.rest import Refused

PLAIN: Final = {"string": "text", "integer": "whole", "number": "number", "boolean": "flag"}
"""Types of a schema that have an input of their own; whatever else is written as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a form."""

    name: str
    label: str
    kind: str = "text"
    """text, email, whole, number, length (of time), flag, moment, choice, radio, several (boxes), list (texts by comma),
    lines (values by name), texts (texts by name), rows (values in order), json."""
    choices: Sequence[str] | Mapping[str, str] = ()
    """What may be chosen, or this with the words for it."""
    help: str = ""
    required: bool = False
    value: Any = ""
    heading: str = ""
    """What stands above it, where a new part of the form begins."""
    folded: bool = False
    """Whether it is folded away while nothing stands in it: only one with an area for text."""

    @property
    def options(self) -> list[tuple[str, str]]:
        """What may be chosen, each with the words for it."""
        return [*self.choices.items()] if isinstance(self.choices, Mapping) else [(each, each) for each in self.choices]

    @property
    def is_area(self) -> bool:
        """Whether it takes several lines."""
        return self.kind == "json" or self.kind in AREAS

    def read(self, data: QueryDict) -> Any:
        """What was given as JSON has it; ``None``: nothing. What cannot be read stays text, which the interface refuses."""
        if self.kind == "several":
            return data.getlist(self.name) or None
        text = data.get(self.name, "")
        if self.kind == "flag":
            return text == "on"
        text = text if self.kind == "text" and self.required else text.strip()
        if not text:
            return None
        try:
            return READERS.get(self.kind, str)(text)
        except ValueError:
            return text

    def filled(self, data: QueryDict) -> Field:
        """The same with what was given."""
        given = data.getlist(self.name) if self.kind == "several" else data.get(self.name, "")
        return replace(self, value=given == "on" if self.kind == "flag" else given)

    def holding(self, value: Any) -> Field:
        """The same with a value that JSON has. What its input would not give back as it is, is written as JSON."""
        if value is None:
            return replace(self, value=[] if self.kind == "several" else "")
        if value in ({}, []) and self.kind in AREAS:
            return replace(self, value="")
        if self.kind == "json" or not _fits(self.kind, value):
            return replace(self, kind="json", choices=(), value=json.dumps(value, ensure_ascii=False, indent=1))
        if self.kind == "choice" and value not in self.choices:
            return replace(self, choices=(*self.choices, value), value=value)
        return replace(self, value=SHOWN.get(self.kind, lambda plain: plain)(value))


def _fits(kind: str, value: Any) -> bool:
    """Whether an input of this kind reads the value back as it is."""
    if kind in AREAS:
        wanted_type = list if kind == "rows" else dict
        try:
            return isinstance(value, wanted_type) and bool(READERS[kind](SHOWN[kind](value)) == value)
        except ValueError:
            return False
    if kind == "list":
        return isinstance(value, list) and all(_fits("text", each) and "," not in str(each) for each in value)
    wanted: Any = {"flag": bool, "whole": int, "length": int, "number": (int, float), "several": list}.get(kind, str)
    if isinstance(value, bool) and kind != "flag":
        return False
    if isinstance(value, str):
        return wanted is str and value != "" and value == value.strip() and value.isprintable()
    return isinstance(value, wanted)


AREAS: Final[Mapping[str, units.ByNameField | units.InOrderField]] = {
    "lines": units.ArgumentsField(), "texts": units.TextsField(), "rows": units.InOrderField(),
}  # fmt: skip
"""Kinds with a line for each value, as the admin's forms have them."""


def _of_lines(kind: str, text: str) -> Any:
    try:
        return AREAS[kind].to_python(text)
    except ValidationError as error:
        raise ValueError(text) from error


def _seconds(text: str) -> int:
    try:
        return units.read(text, units.TIME)
    except ValidationError as error:
        raise ValueError(text) from error


READERS: Final[dict[str, Callable[[str], Any]]] = {
    "whole": int,
    "number": float,
    "length": _seconds,
    "moment": lambda text: f"{text}Z",
    "list": lambda text: [part.strip() for part in text.split(",") if part.strip()],
    "json": json.loads,
    **{kind: partial(_of_lines, kind) for kind in AREAS},
}
SHOWN: Final[dict[str, Callable[[Any], Any]]] = {
    "length": lambda seconds: units.told(seconds, units.TIME),
    "moment": lambda text: text[:19],
    "list": ", ".join,
    **{kind: area.prepare_value for kind, area in AREAS.items()},
}
"""How an input has a value; others have it as it is."""


def as_data(fields: Iterable[Field]) -> QueryDict:
    """What a form would send that nobody changed."""
    data = QueryDict(mutable=True)
    for field in fields:
        if field.kind == "several":
            data.setlist(field.name, [*field.value])
        elif field.kind != "flag" or field.value:
            data[field.name] = "on" if field.kind == "flag" else str(field.value)
    return data


def given(fields: Iterable[Field], data: QueryDict) -> dict[str, Any]:
    """The body that a form makes: a field of which nothing was given is not in it."""
    return {field.name: value for field in fields if (value := field.read(data)) is not None}


def labels(fields: Iterable[Field]) -> dict[str, str]:
    """By the last part of its name what a field is called on the page: how a refusal tells of it."""
    return {field.name.rpartition(".")[2]: field.label for field in fields}


def arguments(schema: Mapping[str, Any]) -> list[Field]:
    """A field for each argument of a handler, by its JSON Schema."""
    needed = set(schema.get("required", ()))
    properties = schema.get("properties") or {}
    order = [name for name in schema.get("x-positional", ()) if name in properties]
    names = dict.fromkeys([*order, *properties])
    return [_argument(name, properties[name], name in needed) for name in names]


def _argument(name: str, shape: Any, needed: bool) -> Field:
    shape = shape if isinstance(shape, dict) else {}
    kinds = [each for each in shape.get("anyOf", ()) if each != {"type": "null"}]
    inner = {**shape, **kinds[0]} if len(kinds) == 1 else shape  # a type, or nothing
    kind, choices = PLAIN.get(str(inner.get("type")), "json"), inner.get("enum", ())
    if choices and all(isinstance(each, str) for each in choices):
        kind = "choice"
    value = shape.get("default", "")
    if kind == "json" and value != "":
        value = json.dumps(value, ensure_ascii=False)
    unsaid = {"pattern"} if "format" in inner else set()  # a name of it says more to people
    limits = [f"{word} {inner[key]}" for key, word in LIMITS.items() if key in inner and key not in unsaid]
    told = [str(shape.get("description", "")), ", ".join(limits), "as JSON" if kind == "json" else ""]
    return Field(
        name=f"arg.{name}", label=str(shape.get("title", name)), kind=kind, choices=choices if kind == "choice" else (),
        required=needed and kind != "flag", value="" if value is None else value, help=" · ".join(filter(None, told)),
    )  # fmt: skip


LIMITS: Final = {
    "minimum": "at least", "maximum": "at most", "exclusiveMinimum": "more than", "exclusiveMaximum": "less than",
    "minLength": "letters, at least", "maxLength": "letters, at most", "pattern": "as", "format": "a",
}  # fmt: skip
"""What a schema says of a value, in words."""


@dataclass(slots=True)
class Made:
    """What became of a form that may have been sent: its fields as they are shown again, the answer, or the refusal."""

    fields: list[Field]
    answer: Any = None
    refused: str = ""


def make(at: At, path: str, fields: Sequence[Field], *, method: str = "POST", once: str = "", **fixed: Any) -> Made:
    """Send what a form was given; a refusal that is about it is told beside it, any other is the page's."""
    if at.request.method != "POST":
        return Made([*fields])
    data = at.request.POST
    try:
        return Made([*fields], at.ask(method, path, {**given(fields, data), **fixed}, once=once))
    except Refused as refused:
        if refused.status in {403, 404} and refused.problem["code"] != "not_granted":
            raise
        return Made([field.filled(data) for field in fields], refused=refused.told(labels(fields)))
