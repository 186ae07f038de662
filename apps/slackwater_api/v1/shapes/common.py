"""Words and fields that the shapes share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers as s

from scheduler_ext.core.plain_text import PLAIN, TELLING
from scheduler_ext.core.states import Category, ClientStatus, Outcome, RunCondition, TaskState
from slackwater_api.v1.filters import words
from slackwater_schedules.models import ScheduleFire
from slackwater_schedules.recurrence import Kind
from slackwater_tasks.field_kinds import MAX_SECONDS
from slackwater_tasks.models import OnLate

STATES, CATEGORIES, CONDITIONS, ON_LATE = words(TaskState), words(Category), words(RunCondition), words(OnLate)
STATUSES = [status.label for status in ClientStatus]
OUTCOMES = words(Outcome)
NODE_STATES = ["starting", "active", "draining"]
KINDS = ["handler", "script"]
KINDS_OF_SCHEDULE: list[str] = [str(kind) for kind in Kind]
FIRE_OUTCOMES: list[str] = ScheduleFire.Outcome.values


@extend_schema_field({})
class Anything(s.JSONField):
    """Any JSON value."""


@extend_schema_field({"type": "array", "items": {}})
class AnyList(s.JSONField):
    """An array of any JSON values."""


class Ruled(s.Serializer[Any]):
    """A shape with rules that concern several of its fields."""

    rules: ClassVar[dict[str, Any]] = {}
    """What its JSON Schema says besides."""


class RuledSchema(OpenApiSerializerExtension):
    """Writes the rules of a shape into its schema."""

    target_class = Ruled
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        found = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        return {**found, **self.target.rules}


def exactly_one(*names: str) -> dict[str, Any]:
    """The rules of a shape of which one text of several must be given: null and empty are none."""
    none = {"type": ["string", "null"], "maxLength": 0}
    choices = [
        {
            "required": [name],
            "properties": {name: {"type": "string", "minLength": 1}, **{each: none for each in names if each != name}},
        }
        for name in names
    ]
    return {"allOf": [{"anyOf": choices}]}  # inside of allOf, for generators of clients make a union of the other


def line(longest: int, least: int = 1, pattern: str = PLAIN, **more: Any) -> s.RegexField:
    """A text without control characters."""
    return s.RegexField(
        f"^{pattern}$",
        min_length=least or None,
        max_length=longest,
        trim_whitespace=False,
        **more,
    )


def title(longest: int, **more: Any) -> s.RegexField:
    """What somebody calls a thing: a line that is more than blanks."""
    return line(longest, pattern=TELLING, **more)


def as_shape(shape: type[s.Serializer[Any]], row: Any, **given: Any) -> dict[str, Any]:
    """The fields of ``shape``: those ``given``, the others from ``row``. What is empty is null."""
    fields: Mapping[str, Any] = shape._declared_fields
    found = {name: given[name] if name in given else getattr(row, name) for name in fields}
    return {name: None if value == "" and fields[name].allow_null else value for name, value in found.items()}


def seconds(least: float = 0, **more: Any) -> s.FloatField:
    """A duration in seconds."""
    return s.FloatField(min_value=least, max_value=MAX_SECONDS, **more)


@cache
def listing(item: type[s.Serializer[Any]]) -> Any:
    """The answer of a list: a page of it."""
    cursor = s.CharField(allow_null=True, help_text="Give it as cursor; null on the last page.")
    return inline_serializer(f"{item.__name__}Page", {"items": item(many=True), "next_cursor": cursor})
