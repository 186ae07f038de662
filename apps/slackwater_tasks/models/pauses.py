"""Pauses of tenants, lines and handlers."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Pause(models.Model):
    """Since when a tenant, line or handler is paused: that time does not count against tolerances."""

    class Kind(models.TextChoices):
        """What is paused."""

        TENANT = "tenant"
        LINE = "line"
        HANDLER = "handler"

    kind = models.CharField(max_length=8, choices=Kind.choices)
    subject = models.BigIntegerField(help_text="Id of the tenant, line or handler.")
    since = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, help_text="Its tasks are being given the paused time back.")
    reached = models.UUIDField(null=True, help_text="The last of the tasks that has it back.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "subject"], name="slackwater_pause_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"
