"""The shadow: calls and runs of tasks that Celery still does, noted beside it to compare."""

from __future__ import annotations

from django.db import models

from slackwater_conf.columns import ArrayField
from slackwater_tasks.models.base import LedgerRow, LooseKey


class ShadowCall(LedgerRow):
    """A message that went to Celery, and what the ledger would have made of it. It holds no arguments."""

    celery_id = models.CharField(max_length=255)
    task = models.CharField(max_length=255)
    tenant = LooseKey("slackwater_tenants.Tenant", null=True)
    watched = models.BooleanField(
        help_text="Its runs are noted; not so of an ordinary task that leads to one in the shadow."
    )
    at = models.DateTimeField(db_index=True)
    due_at = models.DateTimeField(help_text="When it should begin.")
    digest = models.CharField(max_length=16, blank=True, help_text="Of its arguments; empty: JSON cannot hold them.")
    size = models.PositiveIntegerField(help_text="Bytes of its arguments as JSON.")
    fields = models.JSONField(help_text="The fields that its options become.")
    dropped = ArrayField(models.CharField(max_length=63), help_text="Options that would mean nothing.")
    field = models.CharField(max_length=200, blank=True, help_text="What would be refused.")
    why = models.CharField(max_length=300, blank=True, help_text="Why; empty: it would be accepted.")
    missed = models.PositiveIntegerField(help_text="Calls and runs that its process could not note before it.")


class ShadowRun(models.Model):
    """A run of such a task by Celery's worker, as its signals tell."""

    celery_id = models.CharField(max_length=255)
    task = models.CharField(max_length=255)
    retries = models.PositiveIntegerField()
    began_at = models.DateTimeField(db_index=True)
    ended_at = models.DateTimeField(null=True)
    limit_s = models.FloatField(null=True, help_text="Its time limit.")
    outcome = models.CharField(max_length=16, blank=True, help_text="Celery's state; empty: it has not ended.")
    error = models.CharField(max_length=100, blank=True, help_text="The class of what it raised.")
    digest = models.CharField(max_length=16, blank=True, help_text="Of its result.")
    fault = models.CharField(max_length=300, blank=True, help_text="Why JSON cannot hold its result.")

    def __str__(self) -> str:
        return f"{self.task} {self.celery_id} {self.retries}: {self.outcome}"
