"""Acts on many tasks that upkeep carries out in the background."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from slackwater_conf.columns import ArrayField
from slackwater_tasks.models.base import new_id


class BulkOperation(models.Model):
    """Something that an operator does to many tasks, whosever they are, with how far it has come."""

    class Kind(models.TextChoices):
        """What is done."""

        CANCEL = "cancel", "cancel"
        RETRY = "retry", "run again"

    class Status(models.TextChoices):
        """How far it is."""

        OPEN = "open", "in progress"
        DONE = "done", "done"
        STOPPED = "stopped", "stopped"

    id: models.UUIDField[uuid.UUID, uuid.UUID] = models.UUIDField(primary_key=True, default=new_id, editable=False)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    what = models.CharField("which", max_length=300, help_text="Which tasks, in words.")
    reason = models.CharField(max_length=150)
    actor = models.CharField(max_length=120)
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.OPEN, db_default=Status.OPEN)
    total = models.PositiveIntegerField(default=0, help_text="Tasks that matched when it began.")
    done = models.PositiveIntegerField(default=0, help_text="Tasks it was done to.")
    asked = models.PositiveIntegerField(default=0, help_text="Of these: running tasks, which were asked to end.")
    passed = models.PositiveIntegerField(
        default=0, help_text="Tasks that were looked at and left: ended meanwhile, or refused."
    )
    first = models.PositiveIntegerField(
        default=0, help_text="So many go first, and the rest only if all of them succeed."
    )
    note = models.CharField(
        max_length=300, blank=True, help_text="What it waits for, why it stopped, or what was refused last."
    )
    created_at = models.DateTimeField(db_default=Now())
    moved_at = models.DateTimeField(db_default=Now(), help_text="Operations take turns by it.")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["moved_at"], name="slackwater_bulk_open", condition=Q(status="open")),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.what}"


class BulkPart(models.Model):
    """Some tasks of one tenant that an operation takes in one transaction."""

    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, related_name="parts")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    ids = ArrayField(models.UUIDField())
    first = models.BooleanField(default=False)
    done = models.BooleanField(default=False, db_default=False)
    retry_at = models.DateTimeField(null=True, help_text="A limit of its tenant's plan was met: it goes on later.")

    class Meta:
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return f"{len(self.ids)} of {self.operation_id}"
