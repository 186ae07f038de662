"""Words and fields that the shapes share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers as s

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


def as_shape(shape: type[s.Serializer[Any]], row: Any, **given: Any) -> dict[str, Any]:
    """The fields of ``shape``: those ``given``, the others from ``row``. What is empty is null."""
    fields: Mapping[str, Any] = shape._declared_fields
    found = {name: given[name] if name in given else getattr(row, name) for name in fields}
    return {name: None if value == "" and fields[name].allow_null else value for name, value in found.items()}


def seconds(**more: Any) -> s.FloatField:
    """A duration in seconds."""
    return s.FloatField(min_value=0, max_value=MAX_SECONDS, **more)


@cache
def listing(item: type[s.Serializer[Any]]) -> Any:
    """The answer of a list: a page of it."""
    cursor = s.CharField(allow_null=True, help_text="Give it as cursor; null on the last page.")
    return inline_serializer(f"{item.__name__}Page", {"items": item(many=True), "next_cursor": cursor})
