"""What stands beside the tasks: lines, scripts, workflows, keys, run times, leaders."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from scheduler_ext.core.states import Category
from slackwater_tasks.models.base import choices, new_id
from slackwater_tenants.scoping import TenantManager


class Line(models.Model):
    """The ready tasks of one tenant, category and tier, in order."""

    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="lines")
    category = models.PositiveSmallIntegerField(choices=choices(Category))
    tier = models.ForeignKey("slackwater_resources.Tier", on_delete=models.PROTECT, related_name="+")
    paused = models.BooleanField(default=False)
    paused_by_itself = models.BooleanField(
        default=False, db_default=False, help_text="By its tenant, which may end the pause."
    )
    serving = models.IntegerField(
        default=0, db_default=0, help_text="With time slices: the cycle being served, which a newcomer joins."
    )
    pool = models.ForeignKey(
        "slackwater_tenants.Pool",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="lines",
        help_text="Where it stands; empty: where its tenant does.",
    )

    objects = TenantManager()

    class Meta:
        base_manager_name = "_plain"
        constraints = [models.UniqueConstraint(fields=["tenant", "category", "tier"], name="slackwater_line_unique")]

    _plain = models.Manager()

    def __str__(self) -> str:
        return f"{self.tenant} · {Category(self.category).name.lower()} · {self.tier}"


class Script(models.Model):
    """A file in a tenant's script store, addressed by the SHA-256 of its content."""

    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="scripts")
    sha256 = models.CharField(max_length=64)
    name = models.CharField(max_length=200)
    content = models.BinaryField()
    size = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        base_manager_name = "_plain"
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["tenant", "sha256"], name="slackwater_script_unique")]

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]})"


class Workflow(models.Model):
    """A graph of tasks handed in as one."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="workflows")
    name = models.CharField(max_length=200, blank=True)
    task_count = models.PositiveIntegerField(default=0)
    edge_count = models.PositiveIntegerField(default=0)
    submitted_at = models.DateTimeField()
    detail = models.JSONField(default=dict, blank=True)

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        base_manager_name = "_plain"
        ordering = ["-id"]
        indexes = [models.Index(fields=["tenant", "-id"], name="slackwater_workflow_tenant")]

    def __str__(self) -> str:
        return self.name or str(self.id)


class IdempotencyKey(models.Model):
    """The first answer to a submission that carried this key."""

    pk = models.CompositePrimaryKey("tenant", "key")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=200)
    body_hash = models.CharField(max_length=64)
    task_id = models.UUIDField(null=True)
    workflow_id = models.UUIDField(null=True)
    task_ids = ArrayField(models.UUIDField(), null=True, help_text="Of several handed in without a workflow.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="slackwater_idempotency_age")]

    def __str__(self) -> str:
        return f"{self.tenant_id}:{self.key}"


class RunTime(models.Model):
    """What is known of how long a handler (or script) of a tenant runs."""

    pk = models.CompositePrimaryKey("tenant", "key")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=200)
    samples = models.BigIntegerField(default=0)
    mean_us = models.FloatField(default=0.0)
    updated_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.key}: {self.mean_us:.0f} µs"


class Leader(models.Model):
    """Who dispatches for a cell. Every claim checks the epoch, so one who was replaced can claim nothing."""

    cell = models.CharField(max_length=63, primary_key=True)
    holder = models.CharField(max_length=120)
    epoch = models.BigIntegerField(default=0)
    renewed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    grace_until = models.DateTimeField(
        null=True, help_text="No node is declared lost before: the database itself had been away."
    )

    def __str__(self) -> str:
        return f"{self.cell}: {self.holder} ({self.epoch})"
