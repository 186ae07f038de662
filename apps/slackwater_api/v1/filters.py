"""Filters of lists: each is declared once, and every parameter is checked; an unknown one is refused by the operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import django_filters
from django import forms
from django.db.models import Q, QuerySet
from django.http import QueryDict
from django_filters.fields import BaseCSVField
from drf_spectacular.utils import OpenApiParameter

from scheduler_ext.core.errors import InvalidInput, NotPermitted
from scheduler_ext.core.states import FINAL, Category, ClientStatus, Outcome, TaskState, client_status
from slackwater_monitoring.models import Delivery
from slackwater_monitoring.notify.subscriptions import ALL_EVENTS
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_schedules.recurrence import Kind
from slackwater_tasks.field_kinds import Metadata, Moment
from slackwater_tasks.models import Task
from slackwater_tasks.read.finding import of_error, of_node, of_schedule, of_tag
from slackwater_tasks.read.tasks import LIVE_STATES, in_states
from slackwater_tasks.read.workflows import in_statuses

EARLIEST, LATEST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
DEEP = re.compile(r"metadata\[.*\]", re.DOTALL)
"""A parameter that names what is looked for in an object."""
YES_NO = ["true", "false"]
ONE_ID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def words(enum: type[Any]) -> list[str]:
    """The members of an enumeration in the words of the API."""
    return [member.name.lower() for member in enum]


class OneOf(django_filters.ChoiceFilter):  # type: ignore[misc]
    """One of a few words."""

    def __init__(self, known: Sequence[str], **more: Any) -> None:
        self.known = list(known)
        more["error_messages"] = {"invalid_choice": f"must be one of {', '.join(self.known)}"}
        super().__init__(choices=[(word, word) for word in self.known], **more)


class _PartsField(BaseCSVField):  # type: ignore[misc]
    def clean(self, value: Any) -> Any:
        """Its parts, each checked; none may be empty, which Django takes for nothing asked."""
        if value and not all(part.strip() for part in value):
            raise forms.ValidationError("must have something before and after each comma")
        return super().clean(value)


class _Several(django_filters.BaseInFilter):  # type: ignore[misc]
    """Several values, separated by commas."""

    base_field_class = _PartsField


class SomeOf(_Several, OneOf):
    """Several of a few words, separated by commas."""

    def __init__(self, known: Sequence[str], **more: Any) -> None:
        super().__init__(known, help_text=f"One or more of {', '.join(known)}, by comma.", **more)


class _MomentField(forms.Field):
    def clean(self, value: Any) -> datetime | None:
        """The moment, which says its zone."""
        try:
            return None if value is None else Moment.read(value, "")
        except InvalidInput as error:
            raise forms.ValidationError(error.message) from None


class MomentFilter(django_filters.Filter):  # type: ignore[misc]
    """A moment in any zone, compared in UTC: PostgreSQL takes no offset of sixteen hours or more."""

    field_class = _MomentField

    def filter(self, rows: QuerySet[Any], value: datetime | None) -> QuerySet[Any]:
        """``rows`` narrowed by the moment in UTC; one beyond the first or last year counts as that year's limit."""
        if value:
            try:
                value = value.astimezone(UTC)
            except OverflowError:
                value = EARLIEST if value.year < LATEST.year else LATEST
        found: QuerySet[Any] = super().filter(rows, value)
        return found


def after(column: str) -> MomentFilter:
    """Rows whose ``column`` is not before a moment."""
    return MomentFilter(column, lookup_expr="gte", help_text="Not before this moment.")


def before(column: str) -> MomentFilter:
    """Rows whose ``column`` is before a moment."""
    return MomentFilter(column, lookup_expr="lt", help_text="Before this moment.")


def text(column: str, longest: int = 200, help_text: str = "") -> django_filters.CharFilter:
    """Rows whose ``column`` is exactly a text."""
    return django_filters.CharFilter(column, max_length=longest, help_text=help_text)


def exact_name(column: str = "name", longest: int = 200) -> django_filters.CharFilter:
    """Rows of a name."""
    return text(column, longest, "The exact name.")


class Ids(_Several, django_filters.UUIDFilter):  # type: ignore[misc]
    """Several ids, separated by commas."""


class Pattern(django_filters.CharFilter):  # type: ignore[misc]
    """A text with ``*`` for any letters and ``?`` for one; case counts."""

    def __init__(self, column: str) -> None:
        super().__init__(column, lookup_expr="regex", max_length=200, help_text="* is any letters, ? is one: mail.*")

    def filter(self, rows: QuerySet[Any], value: str | None) -> QuerySet[Any]:
        """``rows`` whose column matches as a whole."""
        parts = [{"*": ".*", "?": "."}.get(part, re.escape(part)) for part in re.split(r"([*?])", value or "")]
        found: QuerySet[Any] = super().filter(rows, f"^{''.join(parts)}$" if value else "")
        return found


class FoundBy(django_filters.CharFilter):  # type: ignore[misc]
    """Rows that a search by one text finds."""

    def __init__(self, found: Callable[[str], Q], help_text: str, longest: int) -> None:
        super().__init__(max_length=longest, help_text=help_text)
        self.found = found

    def filter(self, rows: QuerySet[Any], value: str | None) -> QuerySet[Any]:
        """``rows`` narrowed, where anything is asked for."""
        return rows.filter(self.found(value)) if value else rows


class _Names(forms.Widget):
    """Reads ``metadata[NAME]=VALUE``, for any name."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> dict[str, str] | str | None:
        """What stands in brackets, with its value; the value itself where nothing does."""
        if name in data:
            return str(data[name])
        found = {key[len(name) + 1 : -1]: text for key, text in data.items() if DEEP.fullmatch(key)}
        return found or None


class _MetadataField(forms.Field):
    widget = _Names

    def clean(self, value: Any) -> Any:
        """What is asked for, checked like what is stored."""
        if isinstance(value, str):
            raise forms.ValidationError("name what is looked for: metadata[NAME]=VALUE")
        try:
            return Metadata().check(value or {}, "metadata")
        except InvalidInput as error:
            raise forms.ValidationError(error.message) from None


class MetadataFilter(django_filters.Filter):  # type: ignore[misc]
    """Rows whose metadata has all that is named."""

    field_class = _MetadataField

    def __init__(self) -> None:
        super().__init__(
            "metadata", lookup_expr="contains", help_text="`metadata[NAME]=VALUE`; several narrow together."
        )

    def filter(self, rows: QuerySet[Any], value: dict[str, str]) -> QuerySet[Any]:
        """``rows`` narrowed, where anything is asked for."""
        return rows.filter(metadata__contains=value) if value else rows


class ListFilter(django_filters.FilterSet):  # type: ignore[misc]
    """The filters of one list: declared once, for the query and for the OpenAPI document."""

    @classmethod
    def parameters(cls) -> list[OpenApiParameter]:
        """The filters as OpenAPI shows them."""
        return [_parameter(name, each) for name, each in cls.base_filters.items()]

    @classmethod
    def narrow(cls, query: Mapping[str, Any], rows: QuerySet[Any]) -> QuerySet[Any]:
        """``rows`` narrowed as the query asks; ``InvalidInput`` names the parameter at fault."""
        for name, each in cls.base_filters.items():
            if (
                name in query
                and not query[name].strip()
                and type(each) not in (django_filters.CharFilter, Pattern, FoundBy)
            ):
                raise InvalidInput("must not be empty", field=name)
        asked = cls(query, queryset=rows)
        if not asked.is_valid():
            name, messages = next(iter(asked.errors.items()))
            raise InvalidInput(str(messages[0]), field=name)
        found: QuerySet[Any] = asked.qs
        return found


def _schema(each: django_filters.Filter) -> dict[str, Any]:
    """What a filter takes as text."""
    if isinstance(each, SomeOf):
        word = f"({'|'.join(map(re.escape, each.known))})"
        return {"type": "string", "pattern": f"^{word}(,{word})*$"}
    if isinstance(each, OneOf):
        return {"type": "string", "enum": each.known}
    if isinstance(each, MomentFilter):
        return {"type": "string", "format": "date-time"}
    if isinstance(each, Ids):
        return {"type": "string", "pattern": f"^{ONE_ID}(,{ONE_ID})*$"}
    if isinstance(each, django_filters.UUIDFilter):
        return {"type": "string", "format": "uuid"}
    if isinstance(each, django_filters.NumberFilter):
        return {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
    return {"type": "string", "maxLength": each.extra["max_length"]}


def _parameter(name: str, each: django_filters.Filter) -> OpenApiParameter:
    about = each.extra.get("help_text") or ""
    if not isinstance(each, MetadataFilter):
        return OpenApiParameter(name, _schema(each), description=about)
    return OpenApiParameter(name, Metadata.schema(), style="deepObject", description=about)


def schema_in_body(each: django_filters.Filter) -> dict[str, Any]:
    """What a filter takes in a body: text, or an array of the texts that a query has between commas."""
    if isinstance(each, MetadataFilter):
        return Metadata.schema(minProperties=1)
    one = _schema(each)
    if not {"enum", "format", "pattern"} & one.keys():
        one["pattern"] = r"\S"
    if isinstance(each, django_filters.NumberFilter):
        one = {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"}
    most = {} if isinstance(each, _Several) else {"maxItems": 1}
    return {"oneOf": [one, {"type": "array", "minItems": 1, **most, "items": one}]}


class TaskFilter(ListFilter):
    """The filters of tasks; several narrow together."""

    state = SomeOf(words(TaskState), method="by_state")
    status = SomeOf([status.label for status in ClientStatus], method="by_status")
    category = OneOf(words(Category), method="by_category")
    tier = text("tier__slug", 63)
    id = Ids(lookup_expr="in", help_text="Several by comma.")
    handler = text("handler")
    handler_pattern = Pattern("handler")
    name = exact_name()
    name_pattern = Pattern("name")
    tag = django_filters.CharFilter(method="by_tag", max_length=63)
    metadata = MetadataFilter()
    workflow_id = django_filters.UUIDFilter()
    submitted_after = after("submitted_at")
    submitted_before = before("submitted_at")
    submitted_by = text("submitted_by", 120, "As tasks show it: `key:PREFIX`, `schedule:NAME`.")
    schedule = FoundBy(of_schedule, "The name or the id of the schedule that submitted it.", 100)
    node = FoundBy(of_node, "The name of the node that it is on, or that an attempt of it was on.", 200)
    error = FoundBy(of_error, "A text in the error, or the reason, with which it ended; case does not count.", 200)
    admitted_by = django_filters.NumberFilter(
        min_value=1, max_value=2**31 - 1, decimal_places=0, help_text="The number of a submitter."
    )
    scheduling_type = OneOf([kind.value for kind in Kind], method="by_scheduling")

    def by_scheduling(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        schedules = Schedule.objects.filter(kind=value).values_list("name", flat=True)
        match = Q(submitted_by__in=[f"schedule:{each}" for each in schedules])
        return rows.filter(match | ~Q(submitted_by__startswith="schedule:") if value == "once" else match)

    def by_state(self, rows: QuerySet[Any], name: str, values: list[str]) -> QuerySet[Any]:
        return in_states(rows, [TaskState[value.upper()] for value in values])

    def by_status(self, rows: QuerySet[Any], name: str, values: list[str]) -> QuerySet[Any]:
        states = [state for state in TaskState if client_status(state).label in values]
        if len(states) == len(LIVE_STATES | FINAL):
            return rows
        return in_states(rows, states)

    def by_category(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(category=Category[value.upper()])

    def by_tag(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(of_tag(value))


def matching_tasks(
    wanted: Any, where: str = "filter", *, check: Callable[[QueryDict], None] = lambda _: None
) -> QuerySet[Any]:
    """The tenant's tasks that an object of filters matches: the names and values that lists take in their query.

    Several values of one name may be an array. At least one filter must be given, so that nothing happens to
    everything by mistake. ``InvalidInput`` names the path. ``check``: refuses what this client may not ask.
    """
    known = ", ".join(sorted(TaskFilter.base_filters))
    if not isinstance(wanted, dict) or not wanted:
        raise InvalidInput(f"must be an object with at least one of {known}", field=where)
    query = QueryDict(mutable=True)
    for name, value in wanted.items():
        if DEEP.fullmatch(name) and isinstance(value, str):
            query[name] = value
            continue
        if name not in TaskFilter.base_filters:
            raise InvalidInput(f"there is no such filter; known are {known}", field=f"{where}.{name[:60]}")
        if name == "metadata" and isinstance(value, dict) and value:
            for key, text in Metadata().check(value, f"{where}.metadata").items():
                query[f"metadata[{key}]"] = text
            continue
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(entry, str) and entry.strip() for entry in values):
            raise InvalidInput("must be a string or an array of strings, none empty", field=f"{where}.{name}")
        if len(values) > 1 and not isinstance(TaskFilter.base_filters[name], _Several):
            raise InvalidInput("takes one value", field=f"{where}.{name}")
        query[name] = ",".join(values)
    try:
        check(query)
        return TaskFilter.narrow(query, Task.objects.all())
    except (InvalidInput, NotPermitted) as error:
        raise type(error)(error.message, field=f"{where}.{error.field}") from None


class ScheduleFilter(ListFilter):
    name = exact_name("name", 100)
    name_pattern = Pattern("name")
    kind = OneOf([str(kind) for kind in Kind])
    paused = OneOf(YES_NO, method="by_paused")
    handler = text("task__handler")

    def by_paused(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(paused=value == "true")


class FireFilter(ListFilter):
    outcome = SomeOf([str(outcome) for outcome in ScheduleFire.Outcome.values], lookup_expr="in")
    fire_after = after("fire_at")
    fire_before = before("fire_at")


class WorkflowTaskFilter(TaskFilter):
    """Those of tasks; the address says of which workflow."""

    workflow_id = None


class WorkflowFilter(ListFilter):
    """The filters of workflows."""

    name = exact_name()
    name_pattern = Pattern("name")
    status = SomeOf([status.label for status in ClientStatus], method="by_status")
    tag = django_filters.CharFilter(method="by_tag", max_length=63)
    metadata = MetadataFilter()
    submitted_after = after("submitted_at")
    submitted_before = before("submitted_at")

    def by_status(self, rows: QuerySet[Any], name: str, values: list[str]) -> QuerySet[Any]:
        return in_statuses(rows, values)

    def by_tag(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(tags__contains=[value])


class DeadLetterFilter(ListFilter):
    """The filters of dead letters: by their tasks, and by what became of the last attempt."""

    name = exact_name("task__name")
    name_pattern = Pattern("task__name")
    handler = text("task__handler")
    handler_pattern = Pattern("task__handler")
    outcome = SomeOf(words(Outcome), method="by_outcome")
    tag = django_filters.CharFilter(method="by_tag", max_length=63)
    at_after = after("at")
    at_before = before("at")

    def by_outcome(self, rows: QuerySet[Any], name: str, values: list[str]) -> QuerySet[Any]:
        return rows.filter(outcome__in=[Outcome[value.upper()] for value in values])

    def by_tag(self, rows: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return rows.filter(of_tag(value, "task__"))


class TemplateFilter(ListFilter):
    name_pattern = Pattern("name")


class ScriptFilter(ListFilter):
    name = exact_name()
    name_pattern = Pattern("name")


class UploadFilter(ListFilter):
    name = exact_name()
    name_pattern = Pattern("name")


class DeliveryFilter(ListFilter):
    state = SomeOf([str(state) for state in Delivery.State.values], lookup_expr="in")
    event = SomeOf([*ALL_EVENTS, "ping"], lookup_expr="in")
    task_id = django_filters.UUIDFilter(help_text="What became of this task.")
    created_after = after("created_at")
    created_before = before("created_at")
