"""Shapes of graphs, of what is done to whole workflows, and of secrets."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from slackwater_api.v1.shapes.common import line
from slackwater_api.v1.shapes.tasks import TaskAmong, TaskRerun


class CriticalPathOut(s.Serializer[Any]):
    """The way that takes longest."""

    task_ids = s.ListField(child=s.UUIDField(), help_text="First to last.")
    expected_s = s.FloatField(
        allow_null=True, help_text="Expected run time of all on it, by what was learnt; null while nothing was."
    )


class TaskGraphOut(s.Serializer[Any]):
    """What a task waits for and what waits for it, directly or not."""

    task_id = s.UUIDField()
    workflow_id = s.UUIDField(allow_null=True)
    depth = s.IntegerField(help_text="Tasks on the longest way that ends with it; 1: it needs nothing.")
    ancestors = s.ListField(child=s.UUIDField(), help_text="In topological order.")
    descendants = s.ListField(child=s.UUIDField(), help_text="In topological order.")
    topological_order = s.ListField(
        child=s.UUIDField(), help_text="Ancestors, the task itself, descendants: each after what it needs."
    )
    critical_path = CriticalPathOut()


class WorkflowGrowth(s.Serializer[Any]):
    """Tasks to add to a workflow."""

    tasks = s.ListField(
        child=TaskAmong(), min_length=1, help_text="``depends_on``: names in the workflow or in this call, or ids."
    )


class WorkflowCancel(s.Serializer[Any]):
    """How to cancel."""

    reason = line(150, 0, required=False, allow_null=True, help_text="Why; the tasks' history tells it.")


class WorkflowCancelled(s.Serializer[Any]):
    """How many tasks a cancellation reached."""

    cancelled = s.IntegerField(help_text="Waiting tasks that are cancelled now.")
    asked = s.IntegerField(help_text="Running tasks that were asked to end; they are killed when they do not.")


class WorkflowRetry(s.Serializer[Any]):
    """From where to run again."""

    task_id = s.UUIDField(
        required=False, help_text="This task and all that follows. Not given: from the tasks that failed."
    )
    changes = TaskRerun(required=False, help_text="What of that task is to differ, a merge patch. Needs task_id.")


class WorkflowRetried(s.Serializer[Any]):
    """The tasks that run again."""

    task_ids = s.ListField(child=s.UUIDField())


class SecretIn(s.Serializer[Any]):
    """A secret to keep."""

    name = s.RegexField(r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")
    value = s.CharField(min_length=8, max_length=16_384, help_text="Never shown again.")


class SecretOut(s.Serializer[Any]):
    """A secret without its value."""

    name = s.CharField()
    updated_at = s.DateTimeField()
    updated_by = s.CharField(allow_null=True)
