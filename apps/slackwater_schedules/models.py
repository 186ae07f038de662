"""Schedules, and a row for every time one of them fired, was late, or was missed."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from slackwater_schedules.occurrences import Missed
from slackwater_schedules.recurrence import Kind
from slackwater_tasks.models import new_id
from slackwater_tenants.scoping import TenantOwned

MAX_MISSED_LIMIT = 1_000
MAX_JITTER_S = 86_400


class Schedule(TenantOwned):
    """A task that runs again and again. Written by :mod:`slackwater_schedules.services` only."""

    class Overlap(models.TextChoices):
        """The treatment of a firing whose schedule's last task has not ended."""

        ALLOW = "allow", "run both"
        SKIP = "skip", "skip this firing"
        QUEUE_ONE = "queue_one", "let one wait for the other's end"
        CANCEL_OLD = "cancel_old", "cancel the old one"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="schedules")
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=16, choices=[(str(kind), kind.title()) for kind in Kind])
    rule = models.JSONField(default=dict, blank=True, help_text='Parameters of its kind: {"times": ["07:30"]}.')
    time_zone = models.CharField(max_length=63, default="UTC")
    start_at = models.DateTimeField(null=True, blank=True, help_text="No firing before.")
    end_at = models.DateTimeField(null=True, blank=True, help_text="No firing after.")
    jitter_s = models.PositiveIntegerField(
        "jitter (s)",
        default=0,
        validators=[MaxValueValidator(MAX_JITTER_S)],
        help_text="Each firing is delayed by a fixed part of this, so that many do not come at once.",
    )
    paused = models.BooleanField(default=False)
    missed = models.CharField(max_length=16, choices=Missed.choices, default=Missed.ONE)
    missed_after_s = models.PositiveIntegerField(
        "missed after (s)", default=60, help_text="A firing this late is a missed one; before, it is only late."
    )
    missed_limit = models.PositiveIntegerField(
        default=100, validators=[MinValueValidator(1), MaxValueValidator(MAX_MISSED_LIMIT)]
    )
    missed_window_s = models.PositiveIntegerField("missed window (s)", default=3_600)
    overlap = models.CharField(max_length=16, choices=Overlap.choices, default=Overlap.ALLOW)
    task = models.JSONField(help_text="What is submitted: the fields of a task; {} where it is a workflow.")
    workflow = models.JSONField(null=True, blank=True, help_text="What is submitted: the fields of a workflow.")
    version = models.PositiveIntegerField(default=1, help_text="Rises with every change.")
    anchor_at = models.DateTimeField(help_text="What an interval counts from when it has no start.")
    next_fire_at = models.DateTimeField(
        null=True, blank=True, help_text="The time it fires for; empty when there is none."
    )
    next_due_at = models.DateTimeField(null=True, blank=True, help_text="The same with its jitter; empty while paused.")
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=120, blank=True)
    updated_at = models.DateTimeField(db_default=Now())
    updated_by = models.CharField(max_length=120, blank=True)

    class Meta(TenantOwned.Meta):
        ordering = ["name"]
        indexes = [
            models.Index(
                fields=["next_due_at", "tenant"], name="slackwater_schedule_due", condition=Q(next_due_at__isnull=False)
            )
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="slackwater_schedule_name_unique"),
            models.CheckConstraint(condition=Q(kind__in=[str(kind) for kind in Kind]), name="slackwater_schedule_kind"),
            models.CheckConstraint(
                condition=Q(next_due_at__isnull=True) | Q(next_due_at__gte=models.F("next_fire_at")),
                name="slackwater_schedule_due_after_fire",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ScheduleFire(TenantOwned):
    """One time that a schedule fires for. Unique, so any number of beats make it once."""

    class Outcome(models.TextChoices):
        SUBMITTED = "submitted"
        MISSED = "missed"
        SKIPPED = "skipped", "skipped: the last one still runs"
        FAILED = "failed", "could not be submitted"

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="fires", db_index=False)
    tenant = models.ForeignKey(
        "slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    fire_at = models.DateTimeField()
    due_at = models.DateTimeField(help_text="The same with its jitter.")
    fired_at = models.DateTimeField(help_text="When it was decided.")
    lateness_ms = models.BigIntegerField(help_text="From due to fired.")
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    task_id = models.UUIDField(null=True)
    workflow_id = models.UUIDField(null=True)
    error = models.CharField(max_length=500, blank=True, default="")
    backfill = models.BooleanField(default=False)
    version = models.PositiveIntegerField(help_text="Of the schedule, when it fired.")

    class Meta(TenantOwned.Meta):
        ordering = ["-fire_at"]
        constraints = [models.UniqueConstraint(fields=["schedule", "fire_at"], name="slackwater_fire_once")]
        indexes = [
            models.Index(
                fields=["schedule", "-fire_at"], name="slackwater_fire_tasks", condition=Q(task_id__isnull=False)
            ),
            models.Index(fields=["fired_at"], name="slackwater_fire_age"),
            models.Index(fields=["fired_at"], name="slackwater_fire_failed", condition=Q(outcome="failed")),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} @ {self.fire_at.isoformat()}"

    @property
    def late_by_s(self) -> float:
        """Seconds from due to fired."""
        return self.lateness_ms / 1000
