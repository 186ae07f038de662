"""Shapes of tasks and workflows."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import inline_serializer
from rest_framework import serializers as s

from slackwater_api.v1.shapes.common import (
    CATEGORIES,
    CONDITIONS,
    KINDS,
    MUTEX_SCOPES,
    ON_LATE,
    OUTCOMES,
    STATES,
    STATUSES,
    AnyList,
    Anything,
    seconds,
)


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
    tier = s.CharField(max_length=63, required=False, help_text="What it needs: basic, regular, premium, or your own.")
    category = s.ChoiceField(CATEGORIES, required=False)
    priority = s.IntegerField(min_value=0, max_value=1000, required=False, help_text="Larger is first in its line.")
    delay_tolerance = seconds(required=False, allow_null=True, help_text="How long its start may be delayed.")
    on_late = s.ChoiceField(ON_LATE, required=False, help_text="What happens when its latest start passes.")
    execution_cap = seconds(required=False, allow_null=True, help_text="Longest run, from the start.")
    total_attempts = s.IntegerField(min_value=1, max_value=100, required=False)
    retry = RetryIn(required=False, allow_null=True)
    start_at = s.DateTimeField(required=False, allow_null=True, help_text="No start before; with a time zone.")
    mutex_key = s.CharField(
        max_length=150, required=False, allow_blank=True, help_text="Tasks sharing it exclude one another."
    )
    mutex_limit = s.IntegerField(min_value=1, max_value=10_000, required=False)
    mutex_scope = s.ChoiceField(MUTEX_SCOPES, required=False, help_text="Which work its mutex key excludes.")
    rate_key = s.CharField(
        max_length=150,
        required=False,
        allow_blank=True,
        help_text="Its starts count against this key's rate.",
    )
    tags = s.ListField(child=s.CharField(max_length=63), max_length=32, required=False)


class TaskIn(TaskChange):
    """A task to run: exactly one of ``handler``, ``script`` and ``script_path``."""

    handler = s.CharField(max_length=200, required=False, help_text="Name of an exported function.")
    script = s.RegexField(r"^[0-9a-f]{64}$", required=False, help_text="SHA-256 of a stored script.")
    script_path = s.CharField(max_length=500, required=False, help_text="Path in your mounted folder.")
    depends_on = s.ListField(
        child=s.CharField(max_length=200), required=False, help_text="Names in the same call, or ids."
    )
    condition = s.ChoiceField(CONDITIONS, required=False, help_text="What must have become of the tasks it needs.")
    idempotency_key = s.CharField(max_length=200, required=False, allow_blank=True)
    webhook = s.CharField(
        max_length=2_000, required=False, allow_blank=True, help_text="Where this task's own events are sent."
    )
    checkpoints = s.BooleanField(
        required=False,
        help_text="It saves checkpoints, and yields when it is asked to; see the page on checkpoints.",
    )


class WorkflowIn(s.Serializer[Any]):
    """A graph of named tasks."""

    name = s.CharField(max_length=200, required=False, allow_blank=True)
    tasks = TaskIn(many=True)
    idempotency_key = s.CharField(max_length=200, required=False, allow_blank=True)


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


class TaskStatusOut(s.Serializer[Any]):
    """Where a task stands."""

    id = s.UUIDField()
    status = s.ChoiceField(STATUSES)
    state = s.ChoiceField(STATES)
    cancel_requested = s.BooleanField()
    finished_at = s.DateTimeField(allow_null=True)


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


class CheckpointOut(s.Serializer[Any]):
    """What a task saved last, and would go on from."""

    number = s.IntegerField(help_text="Rises with every save.")
    size = s.IntegerField(help_text="Bytes.")
    saved_at = s.DateTimeField()
    attempt = s.IntegerField(allow_null=True, help_text="The attempt that saved it.")


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
    mutex_scope = s.ChoiceField(MUTEX_SCOPES)
    rate_key = s.CharField(allow_blank=True)
    webhook = s.CharField(allow_blank=True)
    checkpoints = s.BooleanField(help_text="It, or its handler, declares that it saves checkpoints.")
    checkpoint = CheckpointOut(allow_null=True, help_text="Null: none is kept.")
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
    peak_disk_mb = s.IntegerField(allow_null=True, help_text="The most its work folder held, in MiB.")


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
