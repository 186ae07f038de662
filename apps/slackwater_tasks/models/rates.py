"""Execution rates, what has started under them, and what no node can run."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from slackwater_tasks.models.base import LedgerRow
from slackwater_tasks.models.task import LiveTask

MAX_STARTS = 100_000
MAX_FRAME_S = 31 * 86_400


class RateLimit(models.Model):
    """At most so many starts in a time frame: of a tenant, of a handler, or of the tasks that carry a rate key.

    A handler's limit without a tenant is one limit for all tenants together.
    """

    tenant = models.ForeignKey(
        "slackwater_tenants.Tenant", on_delete=models.CASCADE, null=True, blank=True, related_name="rate_limits",
        help_text="Empty: everyone, together.",
    )  # fmt: skip
    handler = models.ForeignKey(
        "slackwater_resources.Handler", on_delete=models.CASCADE, null=True, blank=True, related_name="rate_limits",
        help_text="Starts of this handler only.",
    )  # fmt: skip
    key = models.CharField(
        "rate key", max_length=150, blank=True, help_text="Starts of the tenant's tasks that carry this key only."
    )
    starts = models.PositiveIntegerField(
        validators=[MinValueValidator(1), MaxValueValidator(MAX_STARTS)], help_text="At most so many …"
    )
    per_s = models.PositiveIntegerField(
        "time frame (s)", validators=[MinValueValidator(1), MaxValueValidator(MAX_FRAME_S)],
        help_text="… in any span of this many seconds.",
    )  # fmt: skip
    own = models.BooleanField(default=False, editable=False, help_text="Set by the tenant itself.")
    of_plan = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="Kept as the tenant's plan says."
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=Q(starts__gte=1, per_s__gte=1), name="slackwater_rate_positive"),
            models.CheckConstraint(
                condition=Q(key="", handler__isnull=False)
                | Q(key="", tenant__isnull=False)
                | (~Q(key="") & Q(tenant__isnull=False, handler__isnull=True)),
                name="slackwater_rate_has_scope",
                violation_error_message="Give a tenant, a handler, both, or a tenant and a rate key.",
            ),
            models.UniqueConstraint(
                fields=["tenant", "handler", "key", "per_s", "of_plan"],
                nulls_distinct=False,
                name="slackwater_rate_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.starts} in {self.per_s} s of {self.subject}"

    @property
    def subject(self) -> str:
        """What it limits, in words."""
        owner = f" of {self.tenant}" if self.tenant_id else ""
        if self.key:
            return f"key {self.key}{owner}"
        return f"handler {self.handler}{owner}" if self.handler_id else f"tenant {self.tenant}"


class RateStart(models.Model):
    """A claim that counts against a limit: open until its start is known, then until the time frame has passed."""

    limit = models.ForeignKey(RateLimit, on_delete=models.CASCADE, related_name="+", db_index=False)
    task_id = models.UUIDField()
    fence = models.IntegerField()
    claimed_at = models.DateTimeField(db_default=Now())
    at = models.DateTimeField(null=True, help_text="When it began; empty: not known yet.")

    class Meta:
        indexes = [
            models.Index(fields=["limit", "at"], name="slackwater_ratestart_limit"),
            models.Index(fields=["id"], name="slackwater_ratestart_open", condition=Q(at__isnull=True)),
        ]


class Impossible(LedgerRow):
    """A waiting task that no registered node can run, since when, and why. It waits parked."""

    task = models.OneToOneField(
        LiveTask, on_delete=models.CASCADE, primary_key=True, related_name="+", db_constraint=False
    )
    reason = models.CharField(max_length=200)
    since = models.DateTimeField(db_default=Now())

    class Meta(LedgerRow.Meta):
        indexes = [models.Index(fields=["since"], name="slackwater_impossible_since")]
        verbose_name_plural = "impossible"
