"""What is told to the outside: who listens for what, what has happened, and the traces that tasks belong to."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.models.base import LedgerRow, LooseKey, choices
from slackwater_tasks.models.task import Task


class Listener(models.Model):
    """A tenant that wants to be told of something. The statements that change states join this small table."""

    tenant = models.OneToOneField(
        "slackwater_tenants.Tenant", on_delete=models.CASCADE, primary_key=True, related_name="+", db_constraint=False
    )
    events = models.PositiveIntegerField(help_text="What its subscriptions ask for, together.")
    tells_tasks = models.BooleanField(
        default=False, db_default=False, help_text="Its tasks may name an address of their own."
    )


class TaskWebhook(LedgerRow):
    """Where a task's own events go, besides who is subscribed. Few tasks have one, so it stands beside the table."""

    task = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="+", db_constraint=False)
    url = models.CharField(max_length=2_000)


class Outbox(LedgerRow):
    """Something to tell, in the transaction that made it so; upkeep turns it into deliveries and deletes it."""

    task = LooseKey(Task)
    events = models.PositiveIntegerField(help_text="What happened, as far as the tenant listens for it.")
    state = models.PositiveSmallIntegerField(choices=choices(TaskState))
    outcome = models.PositiveSmallIntegerField(choices=choices(Outcome), null=True)
    fence = models.IntegerField()
    attempt = models.PositiveSmallIntegerField()
    at = models.DateTimeField(db_default=Now())
    retry_at = models.DateTimeField(null=True, help_text="When the task's next attempt begins.")
    reason = models.CharField(max_length=300, blank=True, default="")

    class Meta(LedgerRow.Meta):
        ordering = ["id"]
        verbose_name_plural = "outbox"


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
