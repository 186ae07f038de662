"""Tasks that can be paused: how much of their time they have used, and what they saved."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Format
from slackwater_tasks.models.base import LedgerRow, choices


class Resumable(LedgerRow):
    """Beside a task that declares checkpoints, or that was asked to make room: its turns. Others have no such row."""

    task = models.OneToOneField(
        "slackwater_tasks.Task",
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="resumable",
        db_constraint=False,
    )
    declared = models.BooleanField(default=True, help_text="It saves checkpoints, and yields when it is asked to.")
    level = models.IntegerField(
        default=0, db_default=0, help_text="Time slices used up: its cycle of round robin, its level of feedback."
    )
    used_ms = models.BigIntegerField(
        default=0, db_default=0, help_text="Run time of the turns before this one; counts against its cap."
    )
    attempt = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Attempts spent when ``used_ms`` was counted; with the next it starts anew."
    )
    asked = models.PositiveSmallIntegerField(
        choices=choices(Outcome), null=True, help_text="What the claim ``asked_fence`` was asked for."
    )
    asked_fence = models.IntegerField(null=True)
    asked_at = models.DateTimeField(null=True)
    lets_by = ArrayField(
        models.UUIDField(), null=True, help_text="The tasks it was asked to make room for: it starts after them."
    )

    def __str__(self) -> str:
        return f"{self.task_id}: {self.used_ms} ms"


class Checkpoint(LedgerRow):
    """What a task saved to go on from. The latest two are kept: where one is damaged, the one before is used."""

    pk = models.CompositePrimaryKey("task_id", "number")
    task_id = models.UUIDField()
    number = models.IntegerField(help_text="Rises with every save.")
    fence = models.IntegerField(help_text="The claim that saved it.")
    format = models.PositiveSmallIntegerField(choices=choices(Format))
    content = models.BinaryField()
    sha256 = models.CharField(max_length=64)
    size = models.PositiveIntegerField()
    saved_at = models.DateTimeField(db_default=Now())

    class Meta(LedgerRow.Meta):
        constraints = [models.CheckConstraint(condition=Q(number__gte=1), name="slackwater_checkpoint_number")]

    def __str__(self) -> str:
        return f"{self.task_id} checkpoint {self.number}"
