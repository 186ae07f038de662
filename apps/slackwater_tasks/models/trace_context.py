"""Where tasks belong to somebody's trace."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from slackwater_tasks.models.base import LedgerRow
from slackwater_tasks.models.task import Task


class TaskTrace(LedgerRow):
    """The trace a task belongs to, and what of it was not sent to the collector yet.

    Few tasks have one, so it stands beside the table; a task without one has no row and costs nothing.
    """

    task = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="+", db_constraint=False)
    trace_id = models.CharField(max_length=32)
    parent_id = models.CharField(
        max_length=16, blank=True, help_text="The client's span; empty where the trace begins with the task."
    )
    sampled = models.BooleanField(help_text="False: its client does not record the trace, so nothing is sent.")
    tracestate = models.CharField(max_length=512, blank=True)
    run = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Rises each time the task runs again after its end."
    )
    since = models.DateTimeField(null=True, help_text="When it began to run again.")
    sent_fence = models.IntegerField(default=0, db_default=0, help_text="Attempts up to here were sent.")
    export_at = models.DateTimeField(
        null=True, help_text="Not before; ahead while somebody is sending it. Empty: there is nothing to send."
    )

    class Meta(LedgerRow.Meta):
        indexes = [models.Index(fields=["task"], name="slackwater_trace_pending", condition=Q(export_at__isnull=False))]

    def __str__(self) -> str:
        return f"{self.task_id}: {self.trace_id}"
