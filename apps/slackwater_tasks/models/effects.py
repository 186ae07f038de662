"""What tasks use beside the ledger of work: keys of effects, secrets, pauses."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from slackwater_tenants.scoping import TenantManager


class Effect(models.Model):
    """An effect that happens once for its key, over all attempts and workers: ``runtime/effects.py``."""

    class State(models.IntegerChoices):
        """Where an effect stands."""

        CLAIMED = 1, "claimed"
        """Begun outside of this database; whether it happened is known only when it is done."""
        DONE = 2, "done"

    pk = models.CompositePrimaryKey("tenant", "key")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=200)
    state = models.PositiveSmallIntegerField(choices=State.choices)
    task_id = models.UUIDField(help_text="The task that claimed it last.")
    fence = models.IntegerField(help_text="The claim of that task's attempt.")
    claimed_at = models.DateTimeField(db_default=Now())
    done_at = models.DateTimeField(null=True)
    result = models.JSONField(null=True)

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        base_manager_name = "_plain"
        indexes = [models.Index(fields=["done_at"], name="slackwater_effect_age", condition=Q(done_at__isnull=False))]
        constraints = [
            models.CheckConstraint(
                condition=Q(state=1, done_at__isnull=True) | Q(state=2, done_at__isnull=False),
                name="slackwater_effect_done_when_done",
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}:{self.key}"


class Secret(models.Model):
    """A tenant's secret, sealed: only its own tasks get to read it (see ``apps/slackwater_tasks/control/secrets.py``)."""

    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=63)
    sealed = models.BinaryField()
    updated_at = models.DateTimeField(db_default=Now())
    updated_by = models.CharField(max_length=120, blank=True)

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        base_manager_name = "_plain"
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="slackwater_secret_unique")]

    def __str__(self) -> str:
        return f"{self.tenant_id}:{self.name}"


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
