"""What the dispatcher uses beside the tasks: lines, run times, leaders, pauses."""

from __future__ import annotations

from django.db import models
from django.db.models import Value
from django.db.models.functions import Now

from scheduler_ext.core.states import Category
from slackwater_conf.columns import ArrayField
from slackwater_tasks.models.base import LooseKey, choices
from slackwater_tenants.scoping import TenantOwned


class Line(TenantOwned):
    """The ready tasks of one tenant, category and tier that ask for the same labels of nodes, in order.

    A workflow with a share of its own has lines of its own, which are deleted some time after its end.
    """

    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="lines")
    category = models.PositiveSmallIntegerField(choices=choices(Category))
    tier = models.ForeignKey("slackwater_resources.Tier", on_delete=models.PROTECT, related_name="+")
    require_labels = ArrayField(models.CharField(max_length=63), default=list, db_default=[], blank=True)
    prefer_labels = ArrayField(models.CharField(max_length=63), default=list, db_default=[], blank=True)
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

    workflow = models.CharField(
        max_length=36,
        blank=True,
        default="",
        db_default="",
        help_text="The workflow with a share of its own, by its id.",
    )

    class Meta(TenantOwned.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "category", "tier", "require_labels", "prefer_labels", "workflow"],
                name="slackwater_line_alike",
            )
        ]

    def __str__(self) -> str:
        labels = " ".join([*self.require_labels, *(f"({label})" for label in self.prefer_labels)])
        workflow = f"workflow {self.workflow}" if self.workflow else ""
        return " · ".join(
            filter(None, (str(self.tenant), Category(self.category).name.lower(), str(self.tier), labels, workflow))
        )


class RunTime(models.Model):
    """What is known of the run times of a tenant's handler (or script)."""

    pk = models.CompositePrimaryKey("tenant", "key")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=200)
    samples = models.BigIntegerField(default=0)
    mean_us = models.FloatField(default=0.0)
    long_us = models.FloatField(null=True, help_text="What nine in ten runs do not exceed.")
    buckets = models.JSONField(default=dict, db_default=Value({}, models.JSONField()), help_text="Runs by length.")
    updated_at = models.DateTimeField(db_default=Now())


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
    stolen = models.BigIntegerField(
        default=0, db_default=0, help_text="Claims that were taken back from a busy node because another idled."
    )
    rounds = models.JSONField(null=True, help_text="How much rounds could claim lately, did, and why not more.")

    def __str__(self) -> str:
        return f"{self.cell}: {self.holder} ({self.epoch})"


class Opening(models.Model):
    """Room at a node that the dispatcher has decided on ahead, for the next tasks of a line and handler.

    Whoever stores such a task claims it there in the same statement. Its table is not logged: openings may vanish.
    """

    pk = models.CompositePrimaryKey("line", "handler", "alone")
    line = LooseKey(Line)
    handler = LooseKey("slackwater_resources.Handler")
    alone = models.BooleanField(help_text="For tasks that never share a batch.")
    cell = models.CharField(max_length=63)
    epoch = models.BigIntegerField(help_text="Of the leader who decided on it: it ends with that leadership.")
    node = LooseKey("slackwater_resources.Node")
    kind = models.CharField(max_length=10)
    queue = models.CharField(max_length=10)
    slot_milli = models.SmallIntegerField(help_text="Thousandths of a slot that each task takes.")
    expected_us = models.IntegerField(help_text="The expected run time; 0: a child takes each by itself.")
    places = models.IntegerField(help_text="So many tasks may still come; below zero: more came, and it is closed.")
    given = models.IntegerField(help_text="The places there were when it was last widened.")


class Grant(models.Model):
    """A node goes on with the short tasks of a line and handler by itself, while nothing changes what waits in its cell.

    Whoever records some there begins as many more in the same statement. Its table is not logged: grants may vanish.
    """

    pk = models.CompositePrimaryKey("node", "line")
    node = LooseKey("slackwater_resources.Node")
    line = LooseKey(Line)
    cell = models.CharField(max_length=63)
    epoch = models.BigIntegerField(help_text="Of the leader who decided on it: it ends with that leadership.")
    handler = LooseKey("slackwater_resources.Handler")
    slot_milli = models.SmallIntegerField(help_text="Thousandths of a slot that each task takes.")


class Pause(models.Model):
    """Since when a tenant, line or handler is paused: that time does not count against tolerances."""

    class Kind(models.TextChoices):
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


class Forecast(models.Model):
    """A predicted start that was shown and is not checked yet: the first of each task that waits."""

    task_id = models.UUIDField(primary_key=True)
    cell = models.CharField(max_length=63, db_index=True)
    fence = models.IntegerField(help_text="The task's then: a start has a higher one.")
    earliest = models.DateTimeField()
    latest = models.DateTimeField()
    shown_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return str(self.task_id)


class ForecastRecord(models.Model):
    """How the forecasts of a cell have held lately, and by what their two sides are widened for it."""

    cell = models.CharField(max_length=63, primary_key=True)
    hits = models.FloatField(default=0, db_default=0)
    early = models.FloatField(default=0, db_default=0)
    late = models.FloatField(default=0, db_default=0)
    early_factor = models.FloatField(default=1, db_default=1)
    late_factor = models.FloatField(default=1, db_default=1)

    def __str__(self) -> str:
        return self.cell
