"""Keys of effects that happen once."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler_ext.core.states import EffectState
from slackwater_tasks.models.base import choices
from slackwater_tenants.scoping import TenantOwned


class Effect(TenantOwned):
    """An effect that happens once for its key, over all attempts and workers: ``runtime/effects.py``."""

    pk = models.CompositePrimaryKey("tenant", "key")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=200)
    state = models.PositiveSmallIntegerField(choices=choices(EffectState))
    task_id = models.UUIDField(help_text="The task that claimed it last.")
    fence = models.IntegerField(help_text="The claim of that task's attempt.")
    claimed_at = models.DateTimeField(db_default=Now())
    done_at = models.DateTimeField(null=True)
    result = models.JSONField(null=True)

    class Meta(TenantOwned.Meta):
        indexes = [models.Index(fields=["done_at"], name="slackwater_effect_age", condition=Q(done_at__isnull=False))]
        constraints = [
            models.CheckConstraint(
                condition=Q(state=EffectState.CLAIMED, done_at__isnull=True)
                | Q(state=EffectState.DONE, done_at__isnull=False),
                name="slackwater_effect_done_when_done",
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}:{self.key}"
