"""Filters of the lists beside tasks: schedules and their firings, workflows, dead letters, scripts, webhooks' logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import django_filters
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import Outcome
from slackwater_api.v1.filters import ChoicesIn, MomentFilter, one_of, words_of
from slackwater_monitoring.models import Delivery
from slackwater_monitoring.notify.subscriptions import EVENTS
from slackwater_schedules.models import ScheduleFire
from slackwater_schedules.recurrence import Kind

KINDS = [(str(kind), str(kind)) for kind in Kind]
FIRED = [(str(outcome), str(outcome)) for outcome in ScheduleFire.Outcome.values]
SENT = [(str(state), str(state)) for state in Delivery.State.values]
TOLD = [(event, event) for event in (*EVENTS, "ping")]
ENDED = words_of(Outcome)
YES_NO = [("true", "true"), ("false", "false")]

AFTER, BEFORE = "Not before this moment.", "Before this moment."
NAME = OpenApiParameter("name", str, description="The exact name.")
HANDLER = OpenApiParameter("handler", str)


def _choice(name: str, choices: list[tuple[str, str]], description: str = "") -> OpenApiParameter:
    return OpenApiParameter(name, str, enum=[word for word, _ in choices], description=description)


def _several(name: str, choices: list[tuple[str, str]]) -> OpenApiParameter:
    words = ", ".join(word for word, _ in choices)
    return OpenApiParameter(name, str, description=f"One or more of {words}, by comma.")


def _span(name: str) -> list[OpenApiParameter]:
    return [
        OpenApiParameter(f"{name}_after", OpenApiTypes.DATETIME, description=AFTER),
        OpenApiParameter(f"{name}_before", OpenApiTypes.DATETIME, description=BEFORE),
    ]


SCHEDULE_FILTERS = [NAME, _choice("kind", KINDS), _choice("paused", YES_NO), HANDLER]
FIRE_FILTERS = [_several("outcome", FIRED), *_span("fire")]
WORKFLOW_FILTERS = [NAME, *_span("submitted")]
DEAD_LETTER_FILTERS = [NAME, HANDLER, _several("outcome", ENDED), OpenApiParameter("tag", str), *_span("at")]
SCRIPT_FILTERS = [NAME]
DELIVERY_FILTERS = [
    _several("state", SENT),
    _several("event", TOLD),
    OpenApiParameter("task", OpenApiTypes.UUID, description="What became of this task."),
    *_span("created"),
]


def _after(column: str) -> MomentFilter:
    return MomentFilter(column, lookup_expr="gte")


def _before(column: str) -> MomentFilter:
    return MomentFilter(column, lookup_expr="lt")


def _any_of(choices: list[tuple[str, str]], **more: Any) -> ChoicesIn:
    return ChoicesIn(choices=choices, error_messages=one_of(choices), **more)


class ScheduleFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Of schedules."""

    name = django_filters.CharFilter("name", max_length=100)
    kind = django_filters.ChoiceFilter(choices=KINDS, error_messages=one_of(KINDS))
    paused = django_filters.ChoiceFilter(method="by_paused", choices=YES_NO, error_messages=one_of(YES_NO))
    handler = django_filters.CharFilter("task__handler", max_length=200)

    def by_paused(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Those that fire, or those that do not."""
        return rows.filter(paused=value == "true")


class FireFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Of a schedule's firings."""

    outcome = _any_of(FIRED, lookup_expr="in")
    fire_after = _after("fire_at")
    fire_before = _before("fire_at")


class WorkflowFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Of workflows."""

    name = django_filters.CharFilter("name", max_length=200)
    submitted_after = _after("submitted_at")
    submitted_before = _before("submitted_at")


class DeadLetterFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Of dead letters: by their tasks, and by what became of the last attempt."""

    name = django_filters.CharFilter("task__name", max_length=200)
    handler = django_filters.CharFilter("task__handler", max_length=200)
    outcome = _any_of(ENDED, method="by_outcome")
    tag = django_filters.CharFilter(method="by_tag", max_length=63)
    at_after = _after("at")
    at_before = _before("at")

    def by_outcome(self, rows: QuerySet[Any], name: str, values: list[str]) -> QuerySet[Any]:
        """Those whose last attempt ended so."""
        return rows.filter(outcome__in=[Outcome[value.upper()] for value in values])

    def by_tag(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        """Those whose task carries a tag."""
        return rows.filter(task__tags__contains=[value])


class ScriptFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Of scripts."""

    name = django_filters.CharFilter("name", max_length=200)


class DeliveryFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Of a webhook's deliveries."""

    state = _any_of(SENT, lookup_expr="in")
    event = _any_of(TOLD, lookup_expr="in")
    task = django_filters.UUIDFilter("task_id")
    created_after = _after("created_at")
    created_before = _before("created_at")


def narrowed(by: type[django_filters.FilterSet], query: Mapping[str, Any], rows: QuerySet[Any]) -> QuerySet[Any]:
    """``rows`` narrowed by what the query asks for; ``InvalidInput`` names the parameter at fault."""
    asked = by(query, queryset=rows)
    if not asked.is_valid():
        name, messages = next(iter(asked.errors.items()))
        raise InvalidInput(str(messages[0]), field=name)
    found: QuerySet[Any] = asked.qs
    return found
