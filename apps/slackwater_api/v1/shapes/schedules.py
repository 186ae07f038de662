"""Shapes of schedules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension
from rest_framework import serializers as s

from scheduler_ext.core.plain_text import STEERING
from slackwater_api.v1.shapes.common import FIRE_OUTCOMES, KINDS_OF_SCHEDULE, Anything, Ruled, line
from slackwater_api.v1.shapes.tasks import TaskIn, WorkflowIn
from slackwater_api.v1.shapes.templates import TemplateUse
from slackwater_schedules.fields import NOT_SCHEDULED, OF_GRAPH
from slackwater_schedules.models import MAX_JITTER_S, MAX_MISSED_LIMIT, Schedule
from slackwater_schedules.occurrences import Missed
from slackwater_schedules.recurrence import Kind
from slackwater_schedules.rules import (
    MAX_DATES,
    MAX_DAYS,
    MAX_INTERVAL_S,
    MAX_TIMES,
    MONTH_DAY,
    SHORT_MONTHS,
    TIME,
    WEEKDAYS,
)

NAME = rf"[^{STEERING}\s]([^{STEERING}]*[^{STEERING}\s])?"
"""Without blanks around it."""


def _some(most: int, **item: Any) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "maxItems": most, "items": item}


TIMES = {**_some(MAX_TIMES, type="string", pattern=f"^{TIME.pattern}$"), "type": ["array", "null"]}
SHORT = {"type": ["string", "null"], "pattern": f"^({'|'.join(SHORT_MONTHS)})$"}
DAYS = _some(MAX_DAYS, anyOf=[{"type": "integer", "minimum": 1, "maximum": 31}, {"const": "last"}])
DATES = _some(MAX_DATES, type="string", pattern=f"^({MONTH_DAY.pattern})$")
PARAMETERS: dict[Kind, dict[str, Any]] = {
    Kind.ONCE: {"at": {"type": ["string", "null"]}},
    Kind.DAILY: {"times": TIMES},
    Kind.WEEKLY: {"weekdays": _some(len(WEEKDAYS), type="string", pattern=f"^({'|'.join(WEEKDAYS)})$"), "times": TIMES},
    Kind.MONTHLY: {"days": DAYS, "times": TIMES, "short_months": SHORT},
    Kind.ANNUALLY: {"dates": DATES, "times": TIMES, "short_months": SHORT},
    Kind.CRON: {"cron": {"type": "string"}},
    Kind.INTERVAL: {"every_s": {"type": "integer", "minimum": 1, "maximum": MAX_INTERVAL_S}},
}
"""What a rule may hold, by kind."""
NEEDED = {"weekdays", "days", "dates", "cron", "every_s"}


def _by_kind() -> Iterator[dict[str, Any]]:
    for kind, parameters in PARAMETERS.items():
        needed = sorted(NEEDED & parameters.keys())
        more = {"required": needed} if needed else {}
        rule = {"type": "object", "properties": parameters, "additionalProperties": False, **more}
        more = {"required": ["rule"]} if needed else {}
        yield {"properties": {"kind": {"const": str(kind)}, "rule": rule}, **more}


RULE_OF_KIND = {"anyOf": list(_by_kind())}
"""Which rule goes with which kind."""
RULE_OF_CHANGE = {"anyOf": [{"properties": each["properties"]} for each in RULE_OF_KIND["anyOf"]]}
"""The same where what is not given stays: a rule without a kind is one of the kind there is."""


class ScheduledTask(TaskIn):
    """The task that is submitted each time."""

    left_out = NOT_SCHEDULED


class ScheduledTaskAmong(TaskIn):
    """A task of the workflow that is submitted each time."""

    left_out = NOT_SCHEDULED.keys() - OF_GRAPH


class ScheduledWorkflow(s.Serializer[Any]):
    """The workflow that is submitted each time."""

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        found = {name: field for name, field in WorkflowIn().get_fields().items() if name != "idempotency_key"}
        return {**found, "tasks": s.ListField(child=ScheduledTaskAmong(), min_length=1)}


class ScheduledTemplate(TemplateUse):
    """The template of a workflow that is submitted each time, and its use."""

    template = line(100, help_text="Its name.")


class ScheduledWork(s.Serializer[Any]):
    """A workflow, or the use of a template."""


class ScheduledWorkSchema(OpenApiSerializerExtension):
    """One of two shapes."""

    target_class = ScheduledWork

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        shapes = (ScheduledWorkflow, ScheduledTemplate)
        return {"oneOf": [auto_schema.resolve_serializer(shape, direction).ref for shape in shapes]}


class ScheduleFields(Ruled):
    """The fields of a schedule."""

    name = line(100, pattern=NAME, required=False)
    kind = s.ChoiceField(KINDS_OF_SCHEDULE, required=False)
    rule = s.DictField(child=Anything(), required=False, help_text="Parameters of its kind.")
    time_zone = line(63, required=False, help_text="Of the tz database: Europe/Berlin")
    start_at = s.DateTimeField(required=False, allow_null=True)
    end_at = s.DateTimeField(required=False, allow_null=True)
    jitter_s = s.IntegerField(min_value=0, max_value=MAX_JITTER_S, required=False)
    paused = s.BooleanField(required=False)
    missed = s.ChoiceField(Missed.values, required=False)
    missed_after_s = s.IntegerField(min_value=0, max_value=MAX_INTERVAL_S, required=False)
    missed_limit = s.IntegerField(min_value=1, max_value=MAX_MISSED_LIMIT, required=False)
    missed_window_s = s.IntegerField(min_value=0, max_value=MAX_INTERVAL_S, required=False)
    overlap = s.ChoiceField(Schedule.Overlap.values, required=False)
    task = ScheduledTask(required=False, help_text="What is submitted: the fields of a task …")
    workflow = ScheduledWork(
        required=False, help_text="… or of a workflow: name, tags, metadata, tasks; or template, version, parameters."
    )


class ScheduleChange(ScheduleFields):
    """The fields of a schedule that can be changed."""

    rules = {"allOf": [{"not": {"required": ["task", "workflow"]}}, RULE_OF_CHANGE]}

    version = s.IntegerField(
        required=False, allow_null=True, help_text="The version you saw: a 409 when it has moved on since."
    )


class ScheduleIn(ScheduleFields):
    """A task or a workflow that is to run again and again."""

    rules = {"allOf": [{"oneOf": [{"required": ["task"]}, {"required": ["workflow"]}]}, RULE_OF_KIND]}

    name = line(100, pattern=NAME)
    kind = s.ChoiceField(KINDS_OF_SCHEDULE)


class PreviewIn(Ruled):
    """The times of a schedule."""

    rules = {"allOf": [RULE_OF_KIND]}

    kind = s.ChoiceField(KINDS_OF_SCHEDULE)
    rule = s.DictField(child=Anything(), required=False, help_text="Parameters of its kind.")
    time_zone = line(63, required=False, help_text="Of the tz database: Europe/Berlin")
    start_at = s.DateTimeField(required=False, allow_null=True)
    end_at = s.DateTimeField(required=False, allow_null=True)
    count = s.IntegerField(required=False, min_value=1, max_value=1_000, help_text="How many firings; ten by default.")


class PreviewOut(s.Serializer[Any]):
    """When it would fire."""

    next_firings = s.ListField(child=s.DateTimeField(), help_text="Without jitter.")


class ScheduleSummary(s.Serializer[Any]):
    """A schedule."""

    id = s.UUIDField()
    name = s.CharField()
    kind = s.ChoiceField(KINDS_OF_SCHEDULE)
    rule = s.DictField(child=Anything())
    time_zone = s.CharField()
    start_at = s.DateTimeField(allow_null=True)
    end_at = s.DateTimeField(allow_null=True)
    jitter_s = s.IntegerField()
    paused = s.BooleanField()
    missed = s.ChoiceField(Missed.values)
    missed_after_s = s.IntegerField()
    missed_limit = s.IntegerField()
    missed_window_s = s.IntegerField()
    overlap = s.ChoiceField(Schedule.Overlap.values)
    task = s.DictField(child=Anything(), help_text="{} where it submits a workflow.")
    workflow = s.DictField(child=Anything(), allow_null=True)
    version = s.IntegerField()
    next_firing_at = s.DateTimeField(allow_null=True)
    created_at = s.DateTimeField()
    created_by = s.CharField(allow_null=True)
    updated_at = s.DateTimeField()
    updated_by = s.CharField(allow_null=True)


class ScheduleDetail(ScheduleSummary):
    """A schedule with its next firings."""

    next_firings = s.ListField(child=s.DateTimeField(), help_text="The next ten, without jitter.")


class FiringOut(s.Serializer[Any]):
    """One time a schedule fired for, or missed."""

    fire_at = s.DateTimeField()
    due_at = s.DateTimeField()
    fired_at = s.DateTimeField()
    late_by_s = s.FloatField(help_text="From when it was due.")
    outcome = s.ChoiceField(FIRE_OUTCOMES)
    task_id = s.UUIDField(allow_null=True)
    workflow_id = s.UUIDField(allow_null=True)
    error = s.CharField(allow_null=True)
    backfill = s.BooleanField()
    version = s.IntegerField()


class BackfillIn(s.Serializer[Any]):
    """A past range, both ends included."""

    start = s.DateTimeField()
    end = s.DateTimeField()


class BackfillOut(s.Serializer[Any]):
    """The tasks that a backfill submitted."""

    workflow_id = s.UUIDField(allow_null=True)
    task_ids = s.ListField(child=s.UUIDField())
    workflow_ids = s.ListField(child=s.UUIDField(), help_text="Where the schedule submits workflows.")
