"""Secrets of tenants."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from slackwater_tenants.scoping import TenantOwned


class Secret(TenantOwned):
    """A tenant's secret, sealed: only its own tasks get to read it (see ``apps/slackwater_tasks/runtime/sealed.py``)."""

    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=63)
    sealed = models.BinaryField()
    updated_at = models.DateTimeField(db_default=Now())
    updated_by = models.CharField(max_length=120, blank=True)

    class Meta(TenantOwned.Meta):
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="slackwater_secret_unique")]

    def __str__(self) -> str:
        return f"{self.tenant_id}:{self.name}"
