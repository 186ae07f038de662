"""The shapes of requests and answers, for OpenAPI alone.

Input is checked by the services, which every way in shares, and answers are built by ``apps.tasks.reading``; so
nothing is serialized twice, and the path of a submission carries no serializer. A test compares each answer with these.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers as s

from apps.schedules.models import MAX_JITTER_S, MAX_MISSED_LIMIT, Schedule, ScheduleFire
from apps.tasks.models import OnLate
from apps.tasks.specs import MAX_SECONDS
from scheduler_ext.core.states import Category, ClientStatus, Outcome, RunCondition, TaskState


def words(enum: type[Any]) -> list[str]:
    """The members of an enum as the API spells them."""
    return [member.name.lower() for member in enum]


STATES, CATEGORIES, CONDITIONS, ON_LATE = (
    words(TaskState),
    words(Category),
    words(RunCondition),
    words(OnLate),
)
STATUSES = [status.label for status in ClientStatus]
OUTCOMES = words(Outcome)
NODE_STATES = ["active", "draining"]
KINDS = ["handler", "script"]
KINDS_OF_SCHEDULE: list[str] = Schedule.Kind.values
FIRE_OUTCOMES: list[str] = ScheduleFire.Outcome.values


@extend_schema_field({})
class Anything(s.JSONField):
    """Any JSON value."""


@extend_schema_field({"type": "array", "items": {}})
class AnyList(s.JSONField):
    """An array of any JSON values."""


def seconds(**more: Any) -> s.FloatField:
    """A duration in seconds."""
    return s.FloatField(min_value=0, max_value=MAX_SECONDS, **more)


class RetryIn(s.Serializer[Any]):
    """Back-off between attempts; what is not given is the platform's."""

    base_s = s.FloatField(required=False)
    factor = s.FloatField(required=False)
    max_s = s.FloatField(required=False)
    jitter = s.FloatField(required=False)


class TaskChange(s.Serializer[Any]):
    """What can be changed of a waiting task."""

    name = s.CharField(max_length=200, required=False, allow_blank=True)
    args = AnyList(required=False, help_text="Positional arguments.")
    kwargs = s.DictField(child=Anything(), required=False, help_text="Keyword arguments.")
    tier = s.CharField(
        max_length=63, required=False, help_text="What it needs: basic, regular, premium, or your own."
    )
    category = s.ChoiceField(CATEGORIES, required=False)
    priority = s.IntegerField(
        min_value=0, max_value=1000, required=False, help_text="Larger is first in its line."
    )
    delay_tolerance = seconds(required=False, allow_null=True, help_text="How long its start may be delayed.")
    on_late = s.ChoiceField(ON_LATE, required=False, help_text="What happens when its latest start passes.")
    execution_cap = seconds(required=False, allow_null=True, help_text="Longest run, from the start.")
    total_attempts = s.IntegerField(min_value=1, max_value=100, required=False)
    retry = RetryIn(required=False, allow_null=True)
    start_at = s.DateTimeField(
        required=False, allow_null=True, help_text="No start before; with a time zone."
    )
    mutex_key = s.CharField(
        max_length=150, required=False, allow_blank=True, help_text="Tasks sharing it exclude one another."
    )
    mutex_limit = s.IntegerField(min_value=1, max_value=10_000, required=False)
    tags = s.ListField(child=s.CharField(max_length=63), max_length=32, required=False)


class TaskIn(TaskChange):
    """A task to run: exactly one of ``handler``, ``script`` and ``script_path``."""

    handler = s.CharField(max_length=200, required=False, help_text="Name of an exported function.")
    script = s.RegexField(r"^[0-9a-f]{64}$", required=False, help_text="SHA-256 of a stored script.")
    script_path = s.CharField(max_length=500, required=False, help_text="Path in your mounted folder.")
    depends_on = s.ListField(
        child=s.CharField(max_length=200), required=False, help_text="Names in the same call, or ids."
    )
    condition = s.ChoiceField(
        CONDITIONS, required=False, help_text="What must have become of the tasks it needs."
    )
    idempotency_key = s.CharField(max_length=200, required=False, allow_blank=True)


class WorkflowIn(s.Serializer[Any]):
    """A graph of named tasks."""

    name = s.CharField(max_length=200, required=False, allow_blank=True)
    tasks = TaskIn(many=True)
    idempotency_key = s.CharField(max_length=200, required=False, allow_blank=True)


class ScriptIn(s.Serializer[Any]):
    """A script to store."""

    name = s.CharField(max_length=200)
    content = s.CharField(trim_whitespace=False, required=False, help_text="Its text.")
    content_base64 = s.CharField(required=False, help_text="Its bytes in base64, where it is no text.")


class CancelIn(s.Serializer[Any]):
    """How to cancel."""

    dependents = s.BooleanField(required=False, help_text="Also cancel all that depends on it.")


class Submitted(s.Serializer[Any]):
    """The ids of what was stored."""

    id = s.UUIDField(required=False, help_text="The task's, where one was handed in.")
    ids = s.ListField(child=s.UUIDField(), help_text="The tasks', in the order given.")
    created = s.BooleanField(help_text="False when the idempotency key returned the first answer.")


class WorkflowSubmitted(s.Serializer[Any]):
    """The ids of a stored workflow."""

    id = s.UUIDField()
    task_ids = s.ListField(child=s.UUIDField(), help_text="In the order given.")
    created = s.BooleanField()


class TaskSummary(s.Serializer[Any]):
    """A task as lists show it."""

    id = s.UUIDField()
    name = s.CharField(allow_blank=True)
    workflow_id = s.UUIDField(allow_null=True)
    status = s.ChoiceField(STATUSES)
    state = s.ChoiceField(STATES)
    kind = s.ChoiceField(KINDS)
    handler = s.CharField(allow_blank=True)
    script = s.CharField(allow_blank=True)
    script_path = s.CharField(allow_blank=True)
    category = s.ChoiceField(CATEGORIES)
    tier = s.CharField()
    priority = s.IntegerField()
    tags = s.ListField(child=s.CharField())
    submitted_at = s.DateTimeField()
    start_at = s.DateTimeField(allow_null=True)
    not_before = s.DateTimeField(allow_null=True, help_text="When a scheduled task becomes ready.")
    latest_start = s.DateTimeField(allow_null=True)
    started_at = s.DateTimeField(allow_null=True)
    finished_at = s.DateTimeField(allow_null=True)
    attempts = s.IntegerField(help_text="Attempts that began and ended.")
    cancel_requested = s.BooleanField()
    progress = Anything()
    reason = s.CharField(allow_blank=True, help_text="Why it ended as it did, where it did not succeed.")


class TaskDetail(TaskSummary):
    """A task with all that is known of it."""

    args = AnyList()
    kwargs = s.DictField(child=Anything())
    delay_tolerance = s.FloatField()
    on_late = s.ChoiceField(ON_LATE)
    execution_cap = s.FloatField()
    total_attempts = s.IntegerField()
    retry = RetryIn(allow_null=True)
    depends_on = s.ListField(child=s.UUIDField())
    waiting_for = s.IntegerField(help_text="How many of the tasks it needs have not ended.")
    condition = s.ChoiceField(CONDITIONS)
    mutex_key = s.CharField(allow_blank=True)
    mutex_limit = s.IntegerField()
    submitted_by = s.CharField(allow_blank=True)
    node = s.CharField(allow_null=True)
    result = Anything()
    error = s.CharField(allow_blank=True)


class HistoryEntry(s.Serializer[Any]):
    """One change of a task: who, when, why."""

    at = s.DateTimeField()
    to = s.ChoiceField(STATES)
    reason = s.CharField()
    actor = s.CharField(allow_null=True)
    node = s.CharField(allow_null=True)
    attempt = s.IntegerField(allow_null=True)
    detail = Anything(help_text="Of an edit: the old and the new value of each field.")

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        """``from`` is no name Python allows for a class attribute."""
        return {**super().get_fields(), "from": s.ChoiceField(STATES, allow_null=True)}


class AttemptOut(s.Serializer[Any]):
    """One run that began and ended."""

    number = s.IntegerField()
    fence = s.IntegerField()
    outcome = s.ChoiceField(OUTCOMES)
    node = s.CharField(allow_null=True)
    worker = s.CharField(allow_blank=True)
    queued_at = s.DateTimeField(allow_null=True)
    started_at = s.DateTimeField()
    finished_at = s.DateTimeField()
    duration_s = s.FloatField()
    error = s.CharField(allow_blank=True)
    exit_code = s.IntegerField(allow_null=True)
    cpu_ms = s.IntegerField(allow_null=True)
    peak_memory_mb = s.IntegerField(allow_null=True)


class LogOut(s.Serializer[Any]):
    """What one attempt wrote to one stream."""

    fence = s.IntegerField()
    stream = s.CharField()
    text = s.CharField(allow_blank=True)
    truncated = s.BooleanField()


class WorkflowSummary(s.Serializer[Any]):
    """A workflow as lists show it."""

    id = s.UUIDField()
    name = s.CharField(allow_blank=True)
    task_count = s.IntegerField()
    edge_count = s.IntegerField()
    submitted_at = s.DateTimeField()


class WorkflowDetail(WorkflowSummary):
    """A workflow with its tasks counted by state."""

    status = s.ChoiceField(STATUSES)
    counts = inline_serializer("WorkflowCounts", {state: s.IntegerField() for state in STATES})


class ScriptSummary(s.Serializer[Any]):
    """A stored script."""

    sha256 = s.CharField()
    name = s.CharField()
    size = s.IntegerField()
    created_at = s.DateTimeField()


class ScriptDetail(ScriptSummary):
    """A stored script with its content."""

    content = s.CharField(allow_blank=True)


class DeadLetterOut(s.Serializer[Any]):
    """A task whose attempts are used up."""

    id = s.UUIDField()
    task_id = s.UUIDField()
    name = s.CharField(allow_blank=True)
    handler = s.CharField(allow_blank=True)
    script = s.CharField(allow_blank=True)
    at = s.DateTimeField()
    outcome = s.ChoiceField(OUTCOMES, allow_null=True)
    reason = s.CharField()
    retries = s.IntegerField()
    next_retry_at = s.DateTimeField(allow_null=True)


class Resources(s.Serializer[Any]):
    """A vector of resources."""

    cpu_milli = s.IntegerField(help_text="Thousandths of a CPU.")
    memory_mb = s.IntegerField()
    disk_mb = s.IntegerField()
    iops = s.IntegerField()
    bandwidth_kbps = s.IntegerField()
    ports = s.IntegerField()


class TierOut(Resources):
    """A tier that your plan lets you name."""

    name = s.CharField()
    own = s.BooleanField()
    default_execution_cap = s.IntegerField(help_text="Seconds.")


class NodeOut(s.Serializer[Any]):
    """A node of your cell, with your own tasks on it."""

    id = s.IntegerField()
    name = s.CharField()
    state = s.ChoiceField(NODE_STATES)
    capacity = Resources()
    slots = s.DictField(child=s.IntegerField())
    labels = s.ListField(child=s.CharField())
    sandbox = s.CharField()
    started_at = s.DateTimeField()
    heartbeat_at = s.DateTimeField()
    handlers = s.ListField(child=s.CharField())
    own_queued = s.IntegerField()
    own_running = s.IntegerField()


class QueueOut(s.Serializer[Any]):
    """One of your lines: the tasks of one category and tier."""

    category = s.ChoiceField(CATEGORIES)
    tier = s.CharField()
    paused = s.BooleanField()
    ready = s.IntegerField()
    ready_is_minimum = s.BooleanField(help_text="True when there are more: counting stops at 10,000.")
    queued = s.IntegerField()
    running = s.IntegerField()
    earliest_latest_start = s.DateTimeField(allow_null=True)


class Used(s.Serializer[Any]):
    """What is used of a plan now."""

    unfinished = s.IntegerField()
    urgent_unfinished = s.IntegerField()
    in_flight = s.IntegerField()
    submissions_available_now = s.IntegerField()


class LimitsOut(s.Serializer[Any]):
    """Your plan's numbers, and what is used of them."""

    plan = s.CharField()
    limits = s.DictField(child=Anything())
    used = Used()


class ScheduleFields(s.Serializer[Any]):
    """The fields of a schedule."""

    name = s.CharField(max_length=100, required=False)
    kind = s.ChoiceField(KINDS_OF_SCHEDULE, required=False)
    rule = s.DictField(child=Anything(), required=False, help_text="Parameters of its kind.")
    time_zone = s.CharField(required=False, help_text="Of the tz database: Europe/Berlin")
    start_at = s.DateTimeField(required=False, allow_null=True)
    end_at = s.DateTimeField(required=False, allow_null=True)
    jitter_s = s.IntegerField(min_value=0, max_value=MAX_JITTER_S, required=False)
    paused = s.BooleanField(required=False)
    missed = s.ChoiceField(Schedule.Missed.values, required=False)
    missed_after_s = s.IntegerField(min_value=0, required=False)
    missed_limit = s.IntegerField(min_value=1, max_value=MAX_MISSED_LIMIT, required=False)
    missed_window_s = s.IntegerField(min_value=0, required=False)
    overlap = s.ChoiceField(Schedule.Overlap.values, required=False)
    task = s.DictField(child=Anything(), required=False, help_text="What is submitted: the fields of a task.")


class ScheduleChange(ScheduleFields):
    """What can be changed of a schedule."""

    version = s.IntegerField(
        required=False, help_text="The version you saw: a 409 when it has moved on since."
    )


class ScheduleIn(ScheduleFields):
    """A task that is to run again and again."""

    name = s.CharField(max_length=100)
    kind = s.ChoiceField(KINDS_OF_SCHEDULE)
    task = s.DictField(child=Anything(), help_text="What is submitted: the fields of a task.")


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
    missed = s.ChoiceField(Schedule.Missed.values)
    missed_after_s = s.IntegerField()
    missed_limit = s.IntegerField()
    missed_window_s = s.IntegerField()
    overlap = s.ChoiceField(Schedule.Overlap.values)
    task = s.DictField(child=Anything())
    version = s.IntegerField()
    next_fire_at = s.DateTimeField(allow_null=True)
    created_at = s.DateTimeField()
    created_by = s.CharField(allow_blank=True)
    updated_at = s.DateTimeField()
    updated_by = s.CharField(allow_blank=True)


class ScheduleDetail(ScheduleSummary):
    """A schedule with its next firings."""

    next_firings = s.ListField(child=s.DateTimeField(), help_text="The next ten, without jitter.")


class ScheduleFireOut(s.Serializer[Any]):
    """One time a schedule fired for, or missed."""

    fire_at = s.DateTimeField()
    due_at = s.DateTimeField()
    fired_at = s.DateTimeField()
    lateness_s = s.FloatField()
    outcome = s.ChoiceField(FIRE_OUTCOMES)
    task_id = s.UUIDField(allow_null=True)
    error = s.CharField(allow_blank=True)
    backfill = s.BooleanField()
    version = s.IntegerField()


class BackfillIn(s.Serializer[Any]):
    """A past range, both ends included."""

    start = s.DateTimeField()
    end = s.DateTimeField()


class BackfillOut(s.Serializer[Any]):
    """What a backfill submitted."""

    workflow_id = s.UUIDField(allow_null=True)
    task_ids = s.ListField(child=s.UUIDField())


class ProblemOut(s.Serializer[Any]):
    """An error (RFC 9457). ``code`` is stable; ``field`` is the path of the input at fault."""

    type = s.CharField()
    title = s.CharField()
    status = s.IntegerField()
    detail = s.CharField()
    code = s.CharField()
    request_id = s.CharField()
    field = s.CharField(required=False)


def listing(item: type[s.Serializer[Any]], *, paged: bool = True) -> Any:
    """The answer of a list."""
    fields: dict[str, Any] = {"items": item(many=True)}
    if paged:
        fields["next_cursor"] = s.CharField(
            allow_null=True, help_text="Give it as cursor; null on the last page."
        )
    return inline_serializer(f"{item.__name__}{'Page' if paged else 'List'}", fields)
