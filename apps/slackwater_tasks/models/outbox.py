"""What clients are to be told: who listens for what, and what has happened, written with the change itself."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.models.base import LedgerRow, choices
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

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.events}"


class TaskWebhook(LedgerRow):
    """Where a task's own events go, besides who is subscribed. Few tasks have one, so it stands beside the table."""

    task = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="+", db_constraint=False)
    url = models.CharField(max_length=2_000)

    def __str__(self) -> str:
        return self.url


class Outbox(LedgerRow):
    """Something to tell, in the transaction that made it so; upkeep turns it into deliveries and deletes it."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False)
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

    def __str__(self) -> str:
        return f"{self.task_id}: {self.events}"
