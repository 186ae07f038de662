"""What a submission brings beside its tasks: workflows, scripts, idempotency keys."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler_ext.core.states import ClientStatus
from slackwater_conf.columns import ArrayField
from slackwater_tasks.models.base import new_id
from slackwater_tenants.scoping import TenantOwned

ENDED = (ClientStatus.DONE, ClientStatus.FAILED)


class Workflow(TenantOwned):
    """A graph of tasks submitted as one."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="workflows")
    name = models.CharField(max_length=200, blank=True)
    task_count = models.PositiveIntegerField(default=0)
    edge_count = models.PositiveIntegerField(default=0)
    submitted_at = models.DateTimeField()
    detail = models.JSONField(default=dict, blank=True)
    tags = ArrayField(models.CharField(max_length=63), default=list, db_default=[], blank=True)
    metadata = models.JSONField(null=True, blank=True, help_text="What its submitter notes beside it.")
    max_running = models.PositiveIntegerField(null=True, help_text="Of its tasks, with nodes at a time.")
    share_weight = models.PositiveSmallIntegerField(
        null=True, help_text="As a member of its tenant's share: its weight; empty: it is none."
    )
    # Written by upkeep once all its tasks have ended, emptied when one runs again or is added.
    status = models.SmallIntegerField(
        null=True, choices=[(int(s), s.label) for s in ENDED], help_text="How it ended; empty while it has not."
    )
    finished_at = models.DateTimeField(null=True)

    class Meta(TenantOwned.Meta):
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="slackwater_workflow_tenant"),
            models.Index(fields=["id"], name="slackwater_workflow_open", condition=Q(status__isnull=True)),
        ]

    def __str__(self) -> str:
        return self.name or str(self.id)


class WorkflowTemplate(TenantOwned):
    """A version of a workflow with parameters, stored under a name. Versions never change."""

    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="workflow_templates")
    name = models.CharField(max_length=100)
    version = models.PositiveIntegerField()
    description = models.CharField(max_length=500, blank=True)
    parameters = models.JSONField(help_text="JSON Schema of the object of parameters.")
    workflow = models.JSONField(help_text='What is submitted; {"$param": NAME} stands for a parameter.')
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=120, blank=True)

    class Meta(TenantOwned.Meta):
        ordering = ["name", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name", "version"], name="slackwater_template_version")
        ]

    def __str__(self) -> str:
        return f"{self.name}, version {self.version}"


class Script(TenantOwned):
    """A file in a tenant's script store, addressed by the SHA-256 of its content."""

    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="scripts")
    sha256 = models.CharField(max_length=64)
    name = models.CharField(max_length=200)
    content = models.BinaryField()
    size = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantOwned.Meta):
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["tenant", "sha256"], name="slackwater_script_unique")]

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]})"


class IdempotencyKey(models.Model):
    """The first answer to a change that carried this key: of a submission its ids, of any other the answer itself."""

    pk = models.CompositePrimaryKey("tenant", "key")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=200)
    body_hash = models.CharField(max_length=64)
    task_id = models.UUIDField(null=True)
    workflow_id = models.UUIDField(null=True)
    task_ids = ArrayField(models.UUIDField(), null=True, help_text="Of several submitted without a workflow.")
    answer = models.BinaryField(null=True, help_text="Sealed; of a change that is no submission.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="slackwater_idempotency_age")]
