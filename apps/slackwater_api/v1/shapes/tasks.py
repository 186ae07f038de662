"""Shapes of tasks and workflows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers as s

from scheduler_ext.core import labels
from scheduler_ext.core.retry import LIMITS
from slackwater_api.v1.shapes.common import (
    KINDS,
    OUTCOMES,
    STATES,
    STATUSES,
    AnyList,
    Anything,
    Ruled,
    exactly_one,
    line,
    seconds,
)
from slackwater_tasks.control.edit import RUNS_AT_ONCE
from slackwater_tasks.control.resubmit import CHANGEABLE
from slackwater_tasks.field_kinds import (
    LISTED,
    Array,
    Choice,
    Field,
    Flag,
    Kind,
    Map,
    Metadata,
    Moment,
    Object,
    Resources,
    Retry,
    Seconds,
    Sha256,
    Text,
    Texts,
    Whole,
)
from slackwater_tasks.read import output
from slackwater_tasks.spec import FIELDS


class RetryIn(s.Serializer[Any]):
    """Back-off between attempts; a value that is not given is the platform's."""

    null: ClassVar[bool] = False

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        return {
            name: s.FloatField(min_value=low, max_value=high, required=False, allow_null=self.null)
            for name, (low, high) in LIMITS.items()
        }


class RetryPatch(RetryIn):
    """What of a back-off is to differ; null: the platform's value."""

    null = True


class ResourcesIn(s.Serializer[Any]):
    """Amounts in place of those of the tier."""

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        kind = Resources()
        return {
            name: s.IntegerField(min_value=kind.least(name), max_value=kind.MOST, required=False) for name in kind.NAMES
        }


@extend_schema_field(Metadata.schema())
class MetadataIn(s.JSONField):
    """A small object of texts."""


@extend_schema_field(Metadata.schema(["string", "null"]))
class MetadataPatch(s.JSONField):
    """What of such an object is to differ; null takes a name out of it."""


def _texts(kind: Texts, **more: Any) -> s.ListField:
    one = line(kind.longest, pattern=labels.FORM.pattern) if kind.labels else line(kind.longest)
    return s.ListField(child=one, max_length=kind.most, **more)


class MapIn(s.Serializer[Any]):
    """Over what a task is mapped: one is made for each element of a list."""

    over = line(200, help_text="One of `depends_on`; its result is the list, or holds it.")
    path = line(200, 0, required=False, allow_null=True, help_text="To the list: keys and places, separated by dots.")
    item = line(
        200,
        0,
        required=False,
        allow_null=True,
        help_text="The keyword argument that gets the element; without it, it comes before `args`.",
    )
    index = line(
        200, 0, required=False, allow_null=True, help_text="The keyword argument that gets the element's place, from 0."
    )


_ACCEPTED: dict[type[Kind], Callable[..., s.Field[Any, Any, Any, Any]]] = {
    Text: lambda kind, **more: line(
        kind.longest,
        0 if kind.empty else 1,
        kind.pattern,
        **{"allow_null": kind.empty, **more},
    ),
    Sha256: lambda kind, **more: s.RegexField(f"^({kind.PATTERN.pattern})?$", **{"allow_null": True, **more}),
    Whole: lambda kind, **more: s.IntegerField(min_value=kind.low, max_value=kind.high, **more),
    Flag: lambda _kind, **more: s.BooleanField(**more),
    Seconds: lambda kind, **more: seconds(kind.LEAST if kind.positive else 0, **more),
    Choice: lambda kind, **more: s.ChoiceField(list(kind.words), **more),
    Moment: lambda _kind, **more: s.DateTimeField(**more),
    Texts: _texts,
    Array: lambda _kind, **more: AnyList(**more),
    Object: lambda _kind, **more: s.DictField(child=Anything(), **more),
    Retry: lambda _kind, **more: RetryIn(**more),
    Map: lambda _kind, **more: MapIn(**more),
    Resources: lambda _kind, **more: ResourcesIn(**more),
    Metadata: lambda _kind, **more: MetadataIn(**more),
}
_SHOWN: dict[type[Kind], Callable[[Any], s.Field[Any, Any, Any, Any]]] = {
    Text: lambda kind: s.CharField(allow_null=kind.empty),
    Sha256: lambda _kind: s.CharField(allow_null=True),
    Whole: lambda _kind: s.IntegerField(),
    Flag: lambda _kind: s.BooleanField(),
    Seconds: lambda _kind: s.FloatField(),
    Choice: lambda kind: s.ChoiceField(list(kind.words)),
    Moment: lambda _kind: s.DateTimeField(allow_null=True),
    Texts: lambda _kind: s.ListField(child=s.CharField()),
    Array: lambda _kind: AnyList(),
    Object: lambda _kind: s.DictField(child=Anything()),
    Retry: lambda _kind: RetryIn(allow_null=True),
    Map: lambda _kind: MapIn(allow_null=True),
    Metadata: lambda _kind: s.DictField(child=s.CharField()),
}


def accepted(field: Field) -> s.Field[Any, Any, Any, Any]:
    """The shape of a field in a submission."""
    more = {"help_text": field.help} if field.help else {}
    return _ACCEPTED[type(field.kind)](
        field.kind, required=False, **more, **({"allow_null": True} if field.nullable else {})
    )


def shown(field: Field) -> s.Field[Any, Any, Any, Any]:
    """The shape of a field of a stored task."""
    return _SHOWN[type(field.kind)](field.kind)


class TaskIn(Ruled):
    """A task to run: exactly one of ``handler``, ``script`` and ``script_path``."""

    rules = exactly_one("handler", "script", "script_path")
    left_out: ClassVar[Collection[str]] = ()

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        return {name: accepted(field) for name, field in FIELDS.items() if name not in self.left_out}


class TaskAmong(TaskIn):
    """A task without an idempotency key of its own: one of several, or one whose id tells a repeat."""

    left_out = ("idempotency_key",)


class TaskOrTasks(s.Serializer[Any]):
    """One task, or several."""


class TaskOrTasksSchema(OpenApiSerializerExtension):
    """One of two shapes, of which the second is an array."""

    target_class = TaskOrTasks

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        one, many = (auto_schema.resolve_serializer(shape, direction).ref for shape in (TaskIn, TaskAmong))
        return {"oneOf": [one, {"type": "array", "minItems": 1, "items": many}]}


class TaskChange(s.Serializer[Any]):
    """The fields of a waiting task that can be changed."""

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        found = {name: accepted(field) for name, field in FIELDS.items() if field.editable}
        for name in ("start_in_s", "expires_in_s"):
            found[name].help_text = "The same, counted from this change: one of both."
        return found


class TaskAnew(s.Serializer[Any]):
    """What of an ended task is to differ: a merge patch, in which null stands for the default."""

    names: ClassVar[Collection[str]] = CHANGEABLE

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        found = {name: accepted(field) for name, field in FIELDS.items() if name in self.names}
        retry, metadata = (FIELDS[name].help for name in ("retry", "metadata"))
        found["retry"] = RetryPatch(required=False, allow_null=True, help_text=retry)
        return {**found, "metadata": MetadataPatch(required=False, help_text=metadata)}


class TaskRerun(TaskAnew):
    """What of a task of a workflow is to differ when it runs again."""

    names = RUNS_AT_ONCE


class WorkflowIn(s.Serializer[Any]):
    """A graph of named tasks."""

    name = line(200, 0, required=False, allow_null=True)
    tags = s.ListField(child=line(63), max_length=32, required=False)
    metadata = s.DictField(
        child=Anything(),
        required=False,
        allow_null=True,
        help_text="An object of yours; it comes back with the workflow and its events.",
    )
    max_running = s.IntegerField(
        min_value=1, max_value=10_000, required=False, allow_null=True,
        help_text="So many of its tasks are with nodes at a time, at most; they can have no mutex key then.",
    )  # fmt: skip
    share_weight = s.IntegerField(
        min_value=1, max_value=1_000, required=False, allow_null=True,
        help_text="Makes it a member of your share: what you are due goes by weight to such workflows and to the rest of "
        "your work, whose weight is 1. Null: it is part of that rest.",
    )  # fmt: skip
    tasks = s.ListField(child=TaskAmong(), min_length=1)
    idempotency_key = line(200, 0, required=False, allow_null=True)


class CancelIn(s.Serializer[Any]):
    """How to cancel."""

    dependents = s.BooleanField(required=False, help_text="Also cancel all that depends on it.")
    waiting_only = s.BooleanField(required=False, help_text="Only what has not begun: what runs goes on, unasked.")
    reason = line(150, 0, required=False, allow_null=True, help_text="Why; its history tells it.")


class Submitted(s.Serializer[Any]):
    """The ids of the stored tasks."""

    id = s.UUIDField(required=False, help_text="The task's, where one was submitted.")
    task_ids = s.ListField(child=s.UUIDField(), help_text="In the order given.")
    created = s.BooleanField(
        help_text="False where it was there: under this id, or with this idempotency key in the body."
    )


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
    workflow_id = s.UUIDField(allow_null=True)
    status = s.ChoiceField(STATUSES)
    state = s.ChoiceField(STATES)
    kind = s.ChoiceField(KINDS)
    submitted_at = s.DateTimeField()
    not_before = s.DateTimeField(allow_null=True, help_text="When a scheduled task becomes ready.")
    latest_start = s.DateTimeField(allow_null=True, help_text="Until when it is, or was, to start.")
    started_at = s.DateTimeField(allow_null=True)
    finished_at = s.DateTimeField(allow_null=True)
    attempts = s.IntegerField(help_text="Attempts that began and ended, of all the times it was run.")
    cancel_requested = s.BooleanField()
    progress = Anything()
    reason = s.CharField(allow_null=True, help_text="Why it ended as it did, where it did not succeed.")

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        """The fields above and those of the declaration that lists show."""
        listed = {name: shown(field) for name, field in FIELDS.items() if field.shown == LISTED}
        return {**listed, **super().get_fields()}


class CheckpointOut(s.Serializer[Any]):
    """The last checkpoint of a task, from which it would continue."""

    number = s.IntegerField(help_text="Rises with every save.")
    size = s.IntegerField(help_text="Bytes.")
    saved_at = s.DateTimeField()
    attempt = s.IntegerField(allow_null=True, help_text="The attempt that saved it.")


class TaskDetail(TaskSummary):
    """A task with all that is known of it."""

    depends_on = s.ListField(child=s.UUIDField())
    waiting_for = s.IntegerField(help_text="How many of the tasks it needs have not ended.")
    late_by_s = s.FloatField(allow_null=True, help_text="How long after its latest start it started, or still waits.")
    checkpoints = s.BooleanField(help_text="It, or its handler, declares that it saves checkpoints.")
    checkpoint = CheckpointOut(allow_null=True, help_text="Null: none is kept.")
    submitted_by = s.CharField(allow_null=True, help_text="Like `key:PREFIX`, `schedule:NAME`, `task:ID`.")
    copied_from = s.UUIDField(allow_null=True, help_text="The ended task that it was submitted anew from.")
    admitted_by = s.IntegerField(allow_null=True, help_text="The number of the submitter that admitted it.")
    scheduling_type = s.CharField(
        allow_null=True, help_text="The kind of its schedule, `once` without one; null: its schedule is gone."
    )
    node = s.CharField(allow_null=True)
    result = Anything()
    error = s.CharField(allow_null=True)

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        """The fields above and all that are shown of the declaration."""
        return {**{name: shown(field) for name, field in FIELDS.items() if field.shown}, **super().get_fields()}


class HistoryEntry(s.Serializer[Any]):
    """One change of a task, with its moment, actor and reason."""

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
    worker = s.CharField(allow_null=True)
    queued_at = s.DateTimeField(allow_null=True)
    started_at = s.DateTimeField()
    finished_at = s.DateTimeField()
    duration_s = s.FloatField(help_text="Of its own code: in a batch it begins after those before it.")
    error = s.CharField(allow_null=True)
    exit_code = s.IntegerField(allow_null=True)
    cpu_s = s.FloatField(allow_null=True, help_text="CPU seconds, where they are measured.")
    peak_memory_mb = s.IntegerField(allow_null=True)
    peak_disk_mb = s.IntegerField(allow_null=True, help_text="The most its work folder held, in MiB.")


class LogLine(s.Serializer[Any]):
    """A line that a task printed or logged."""

    place = s.CharField(help_text="Where it stands: give it as cursor, and what follows it is read.")
    task_id = s.UUIDField()
    at = s.DateTimeField(allow_null=True, help_text="Null for output of a release that did not note times.")
    attempt = s.IntegerField(allow_null=True)
    fence = s.IntegerField()
    stream = s.ChoiceField(list(output.STREAMS), help_text="platform: a note of where lines are missing.")
    level = s.ChoiceField(list(output.LEVELS))
    text = s.CharField(allow_blank=True)


class ChunkOut(s.Serializer[Any]):
    """A piece of a task's result stream."""

    place = s.CharField(help_text="Where it stands: give it as cursor, and what follows it is read.")
    at = s.DateTimeField()
    attempt = s.IntegerField(help_text="A higher one than before: the task began anew.")
    fence = s.IntegerField()
    value = Anything()


class WorkflowSummary(s.Serializer[Any]):
    """A workflow as lists show it."""

    id = s.UUIDField()
    name = s.CharField(allow_null=True)
    task_count = s.IntegerField()
    edge_count = s.IntegerField()
    max_running = s.IntegerField(allow_null=True, help_text="Of its tasks, with nodes at a time; null: any number.")
    share_weight = s.IntegerField(allow_null=True, help_text="As a member of its tenant's share; null: it is none.")
    submitted_at = s.DateTimeField()
    finished_at = s.DateTimeField(allow_null=True, help_text="When the last of its tasks ended.")
    status = s.ChoiceField(STATUSES)
    tags = s.ListField(child=s.CharField())
    metadata = s.DictField(child=Anything())


class WorkflowDetail(WorkflowSummary):
    """A workflow with its tasks counted by state."""

    counts = inline_serializer("WorkflowCounts", {state: s.IntegerField() for state in STATES})
