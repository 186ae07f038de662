"""Filters of lists: every parameter is checked, and one that does not exist is refused, not passed over."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.http import QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import FINAL, Category, ClientStatus, TaskState, client_status
from slackwater_api.v1.shapes.common import CATEGORIES
from slackwater_tasks.models import Task
from slackwater_tasks.read.tasks import LIVE_STATES, in_states

EARLIEST, LATEST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
TASK_FILTERS = [
    OpenApiParameter("state", str, description="States, by comma: ready,running"),
    OpenApiParameter("status", str, description="Of waiting, in_progress, done, failed; by comma."),
    OpenApiParameter("category", str, enum=CATEGORIES),
    OpenApiParameter("tier", str),
    OpenApiParameter("handler", str),
    OpenApiParameter("name", str, description="The exact name."),
    OpenApiParameter("tag", str),
    OpenApiParameter("workflow", OpenApiTypes.UUID),
    OpenApiParameter("submitted_after", OpenApiTypes.DATETIME),
    OpenApiParameter("submitted_before", OpenApiTypes.DATETIME),
]


def words_of(enum: type[Any]) -> list[tuple[str, str]]:
    """The members of an enumeration as choices, in the words of the API."""
    return [(member.name.lower(), member.name.lower()) for member in enum]


def one_of(choices: list[tuple[str, str]]) -> dict[str, str]:
    """The words for a value that is none of the choices."""
    return {"invalid_choice": f"must be one of {', '.join(word for word, _ in choices)}"}


STATES, KINDS = words_of(TaskState), words_of(Category)
STATUSES = [(status.label.replace(" ", "_"),) * 2 for status in ClientStatus]


class ChoicesIn(django_filters.BaseInFilter, django_filters.ChoiceFilter):  # type: ignore[misc]
    """Several of a few words, with commas between."""


class MomentFilter(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    """A moment, in any zone that can be written: PostgreSQL knows none that is sixteen hours or more from UTC."""

    def filter(self, rows: QuerySet[Any], value: datetime | None) -> QuerySet[Any]:
        """``rows`` narrowed by the moment in UTC; one before the first year, or after the last, is that."""
        if value:
            try:
                value = value.astimezone(UTC)
            except OverflowError:
                value = EARLIEST if value.year < LATEST.year else LATEST
        found: QuerySet[Any] = super().filter(rows, value)
        return found


class TaskFilter(django_filters.FilterSet):  # type: ignore[misc]
    """What the list of tasks can be narrowed by; several narrow together."""

    state = ChoicesIn(
        method="by_state",
        choices=STATES,
        error_messages=one_of(STATES),
        help_text="One or more states, by comma.",
    )
    status = ChoicesIn(
        method="by_status",
        choices=[*STATUSES, *((status.label,) * 2 for status in ClientStatus)],  # as tasks show it, too
        error_messages=one_of(STATUSES),
        help_text="One or more of waiting, in_progress, done, failed, by comma.",
    )
    category = django_filters.ChoiceFilter(method="by_category", choices=KINDS, error_messages=one_of(KINDS))
    tier = django_filters.CharFilter("tier__slug", max_length=63)
    handler = django_filters.CharFilter("handler", max_length=200)
    name = django_filters.CharFilter("name", max_length=200, help_text="The exact name.")
    tag = django_filters.CharFilter(method="by_tag", max_length=63)
    workflow = django_filters.UUIDFilter("workflow_id")
    submitted_after = MomentFilter("submitted_at", lookup_expr="gte")
    submitted_before = MomentFilter("submitted_at", lookup_expr="lt")

    class Meta:
        model = Task
        fields: list[str] = []

    def by_state(self, rows: QuerySet[Any], name: str, values: list[str]) -> QuerySet[Any]:
        """Tasks in any of these states."""
        return in_states(rows, [TaskState[value.upper()] for value in values])

    def by_status(self, rows: QuerySet[Any], name: str, values: list[str]) -> QuerySet[Any]:
        """Tasks with any of these statuses."""
        labels = {value.replace("_", " ") for value in values}
        states = [state for state in TaskState if client_status(state).label in labels]
        if len(states) == len(LIVE_STATES | FINAL):
            return rows
        return in_states(rows, states)

    def by_category(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Tasks of a category."""
        return rows.filter(category=Category[value.upper()])

    def by_tag(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Tasks that carry a tag."""
        return rows.filter(tags__contains=[value])


def filtered_tasks(query: Mapping[str, Any]) -> QuerySet[Any]:
    """The tenant's tasks narrowed by the query; ``InvalidInput`` names the parameter at fault."""
    asked = TaskFilter(query, queryset=Task.objects.all())
    if not asked.is_valid():
        name, messages = next(iter(asked.errors.items()))
        raise InvalidInput(str(messages[0]), field=name)
    rows: QuerySet[Any] = asked.qs
    return rows


def matching_tasks(wanted: Any, where: str = "filter") -> QuerySet[Any]:
    """The tenant's tasks that an object of filters matches: the names and values that lists take in their query.

    Several values of one name may be an array. At least one filter must be given, so that nothing happens to
    everything by mistake. ``InvalidInput`` names the path.
    """
    known = ", ".join(sorted(TaskFilter.base_filters))
    if not isinstance(wanted, dict) or not wanted:
        raise InvalidInput(f"must be an object with at least one of {known}", field=where)
    query = QueryDict(mutable=True)
    for name, value in wanted.items():
        if name not in TaskFilter.base_filters:
            raise InvalidInput(f"there is no such filter; known are {known}", field=f"{where}.{name[:60]}")
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(entry, str) and entry for entry in values):
            raise InvalidInput("must be a string or an array of strings", field=f"{where}.{name}")
        query[name] = ",".join(values)
    try:
        return filtered_tasks(query)
    except InvalidInput as error:
        raise InvalidInput(error.message, field=f"{where}.{error.field}") from None
