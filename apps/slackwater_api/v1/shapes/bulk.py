"""Shapes of what is done to many tasks at once."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers as s

from slackwater_api.v1.filters import TaskFilter, schema_in_body
from slackwater_api.v1.shapes.common import line
from slackwater_tasks.control.bulk import COUNTED, DEFAULT_LIMIT, MAX_LIMIT


@extend_schema_field(
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": {name: schema_in_body(each) for name, each in TaskFilter.base_filters.items()},
    }
)
class FilterField(s.JSONField):
    """Which tasks: the filters of the list of tasks."""


class BulkIn(s.Serializer[Any]):
    """An operation on many tasks: which tasks, how many at most, or only a count of them."""

    filter = FilterField(help_text="As in the list of tasks; several narrow together; at least one.")
    dry_run = s.BooleanField(required=False, help_text="Change nothing; answer what would be done.")
    limit = s.IntegerField(
        min_value=1, max_value=MAX_LIMIT, required=False, help_text=f"At most so many; {DEFAULT_LIMIT} by default."
    )
    after = s.UUIDField(required=False, help_text="Only tasks beyond this one: what `next` of an answer says.")


class BulkDone(s.Serializer[Any]):
    """The result of an operation on many tasks, or of its dry run."""

    matched = s.IntegerField(help_text="Tasks matched to which it can be done, before this call.")
    matched_is_minimum = s.BooleanField(help_text=f"True when there are more: counting stops at {COUNTED}.")
    dry_run = s.BooleanField()
    more = s.BooleanField(help_text="There are others, and something was done: call again.")
    next = s.UUIDField(
        allow_null=True,
        help_text="Others match beyond this task: send it as `after` to go on there, past what was skipped. "
        "Null: that was all.",
    )
    task_ids = s.ListField(child=s.UUIDField(), help_text="Those it was done to; of a dry run those that come first.")


class BulkCancelled(BulkDone):
    """The tasks that were cancelled."""

    asked_task_ids = s.ListField(child=s.UUIDField(), help_text="Of these: running tasks, which were asked to end.")


class BulkSkipped(s.Serializer[Any]):
    """A task that cannot run again as things are."""

    task_id = s.UUIDField()
    code = s.CharField()
    detail = s.CharField()


class BulkRetried(BulkDone):
    """The tasks that run again."""

    skipped = BulkSkipped(many=True)


class TerminateIn(s.Serializer[Any]):
    """Why all work ends, or only a count of it."""

    dry_run = s.BooleanField(required=False, help_text="Change nothing; answer how much would be done.")
    reason = line(150, 0, required=False, allow_null=True, help_text="Why; the tasks' history tells it.")


class Terminated(s.Serializer[Any]):
    """How much work was ended, or of a dry run would be."""

    dry_run = s.BooleanField()
    cancelled = s.IntegerField(help_text="Tasks that waited; of a dry run without dependants elsewhere that end by it.")
    asked = s.IntegerField(help_text="Running tasks asked to end; they are killed when they do not.")
    dead_letters = s.IntegerField(help_text="Dead letters deleted, so that none is run again.")
    left = s.IntegerField(help_text="Tasks that have not ended yet. Say it again until there are none.")
