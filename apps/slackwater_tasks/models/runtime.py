"""What running tasks save and use: checkpoints, artifacts, keys of effects, secrets."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler_ext.core.states import EffectState, Outcome
from scheduler_ext.core.work import Format
from slackwater_conf.columns import ArrayField
from slackwater_tasks.models.base import LedgerRow, LooseKey, choices, new_id
from slackwater_tenants.scoping import TenantOwned


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


class Artifact(LedgerRow):
    """A named file of a task. A later attempt that saves the same name replaces it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    task = LooseKey("slackwater_tasks.Task", related_name="artifacts")
    name = models.CharField(max_length=200)
    content_type = models.CharField(max_length=100, default="application/octet-stream")
    size = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    content = models.BinaryField(null=True, help_text="Empty where it lies as an object outside of the database.")
    key = models.CharField(max_length=200, default="", db_default="", help_text="The object that has its content.")
    fence = models.IntegerField(help_text="The claim that saved it.")
    saved_at = models.DateTimeField(db_default=Now())

    class Meta(LedgerRow.Meta):
        ordering = ["task", "name"]
        constraints = [models.UniqueConstraint(fields=["task", "name"], name="slackwater_artifact_name")]

    def __str__(self) -> str:
        return self.name


class Upload(TenantOwned):
    """A file that a client hands over in pieces, for tasks to read: ``runtime/uploads.py``."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=200)
    content_type = models.CharField(max_length=100, default="application/octet-stream")
    size = models.BigIntegerField(help_text="As announced.")
    received = models.BigIntegerField(default=0, help_text="Bytes that are here.")
    sha256 = models.CharField(max_length=64, default="", help_text="Once it is whole.")
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True, help_text="When it is deleted; never, where the plan keeps all.")

    class Meta(TenantOwned.Meta):
        ordering = ["-id"]
        indexes = [models.Index(fields=["expires_at"], name="slackwater_upload_expiry")]

    def __str__(self) -> str:
        return self.name


class UploadPart(LedgerRow):
    """A piece of an upload."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    upload = models.ForeignKey(Upload, on_delete=models.CASCADE, related_name="parts", db_index=False)
    start = models.BigIntegerField()
    size = models.PositiveIntegerField()
    content = models.BinaryField(null=True)
    key = models.CharField(max_length=200, default="")

    class Meta(LedgerRow.Meta):
        constraints = [models.UniqueConstraint(fields=["upload", "start"], name="slackwater_upload_part")]


class EmptiedFolder(models.Model):
    """A folder of objects whose owner is gone: its objects go soon."""

    path = models.CharField(max_length=200, primary_key=True)
    at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.path


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
