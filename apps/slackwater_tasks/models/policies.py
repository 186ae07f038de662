"""Which policies hold where, and what becomes of the ranks when an order is changed."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class PolicyChoice(models.Model):
    """A policy chosen while the platform runs, for a cell, a pool, a tenant or a line.

    The nearest choice holds: line, tenant, pool, the pools above it, cell, and then the configuration.
    """

    class Kind(models.TextChoices):
        ORDER = "order", "order inside a line"
        SHARE = "share", "share between lines"
        SHADOW = "shadow", "a second share that decides beside, and does nothing"

    kind = models.CharField(max_length=8, choices=Kind.choices)
    cell = models.CharField(max_length=63, default="default")
    pool = models.ForeignKey(
        "slackwater_tenants.Pool", on_delete=models.CASCADE, null=True, blank=True, related_name="choices"
    )
    tenant = models.ForeignKey(
        "slackwater_tenants.Tenant", on_delete=models.CASCADE, null=True, blank=True, related_name="policy_choices"
    )
    line = models.ForeignKey(
        "slackwater_tasks.Line", on_delete=models.CASCADE, null=True, blank=True, related_name="policy_choices"
    )
    policy = models.CharField(max_length=63)
    parameters = models.JSONField(default=dict, blank=True)
    chosen_at = models.DateTimeField(db_default=Now())
    chosen_by = models.CharField(max_length=120, blank=True)

    class Meta:
        ordering = ["cell", "kind", "pool", "tenant", "line"]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "cell", "pool", "tenant", "line"], nulls_distinct=False, name="slackwater_choice_unique"
            ),
            models.CheckConstraint(
                condition=Q(pool__isnull=True, tenant__isnull=True)
                | Q(pool__isnull=True, line__isnull=True)
                | Q(tenant__isnull=True, line__isnull=True),
                name="slackwater_choice_one_subject",
            ),
            models.CheckConstraint(
                condition=Q(kind="order")
                | Q(kind="share", tenant__isnull=True, line__isnull=True)
                | Q(kind="shadow", pool__isnull=True, tenant__isnull=True, line__isnull=True),
                name="slackwater_choice_subject_of_kind",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.pool or self.tenant or self.line or self.cell}: {self.policy}"


class RankSweep(models.Model):
    """Ranks of a cell that upkeep brings to the order chosen now: the policy epoch, and how far it has come."""

    cell = models.CharField(max_length=63, primary_key=True)
    fingerprint = models.CharField(
        max_length=64, default="", help_text="Of the orders in force: when they change, an epoch begins."
    )
    epoch = models.BigIntegerField(default=0, help_text="Rises with every change of an order.")
    cursor = models.UUIDField(null=True, help_text="The last task looked at.")
    passes = models.PositiveSmallIntegerField(
        default=0, help_text="Times it has still to go through what waits; 0: every rank is of this epoch."
    )
    changed_at = models.DateTimeField(db_default=Now())
    moved = models.BigIntegerField(default=0, help_text="Ranks changed in this epoch.")

    class Meta:
        ordering = ["cell"]

    def __str__(self) -> str:
        return f"{self.cell}: epoch {self.epoch}"


class PastUse(models.Model):
    """What a tenant or a pool has used lately, as the leading dispatcher last wrote it down; it fades from then on."""

    pk = models.CompositePrimaryKey("cell", "name")
    cell = models.CharField(max_length=63)
    name = models.CharField(max_length=400, help_text="Like 'tenant 7' or 'pool org/team'.")
    amount = models.FloatField(help_text="Cell-seconds: the whole cell, held for a second, is one.")
    at = models.DateTimeField(db_default=Now())


class ShadowUse(models.Model):
    """What a second policy would have changed for one tenant: sums over the rounds in which both decided."""

    pk = models.CompositePrimaryKey("cell", "first", "second", "tenant")
    cell = models.CharField(max_length=63)
    first = models.CharField(max_length=63)
    second = models.CharField(max_length=63)
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    started = models.BigIntegerField(default=0)
    waited_s = models.FloatField(default=0.0)
    sooner = models.BigIntegerField(default=0)
    sooner_s = models.FloatField(default=0.0)
    later = models.BigIntegerField(default=0)
    later_s = models.FloatField(default=0.0)
    since = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
