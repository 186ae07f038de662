"""Tiers of resources, and the nodes that offer them."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from scheduler_ext.core.states import Repeats
from slackwater_conf.columns import ArrayField
from slackwater_tenants.models import SLUG


class Tier(models.Model):
    """A vector of resources a task asks for by name; without a tenant it is everyone's."""

    slug = models.CharField(max_length=63, validators=[SLUG])
    tenant = models.ForeignKey(
        "slackwater_tenants.Tenant", on_delete=models.CASCADE, null=True, blank=True, related_name="tiers"
    )
    cpu_milli = models.PositiveIntegerField("CPU (thousandths)", validators=[MinValueValidator(1)])
    memory_mb = models.PositiveIntegerField("memory (MiB)", validators=[MinValueValidator(1)])
    disk_mb = models.PositiveIntegerField("disk (MiB)", default=0)
    iops = models.PositiveIntegerField("IOPS", default=0)
    bandwidth_kbps = models.PositiveIntegerField("network bandwidth (kbit/s)", default=0)
    ports = models.PositiveIntegerField(default=0)
    default_cap_s = models.PositiveIntegerField("execution cap (s)", default=600, validators=[MinValueValidator(1)])
    retired_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Since then it can be named no more; the tasks that have it keep it.",
    )
    derived = models.BooleanField(
        default=False, db_default=False, editable=False,
        help_text="Made of another for tasks that named other resources; no list shows it.",
    )  # fmt: skip
    price_micros_per_hour = models.PositiveBigIntegerField(
        "price of an hour (millionths)", default=0, help_text="In millionths of the unit you charge in."
    )

    class Meta:
        ordering = ["cpu_milli", "slug"]
        constraints = [
            models.UniqueConstraint(fields=["slug", "tenant"], nulls_distinct=False, name="slackwater_tier_unique"),
            models.CheckConstraint(condition=Q(cpu_milli__gte=1, memory_mb__gte=1), name="slackwater_tier_not_empty"),
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def vector(self) -> tuple[int, ...]:
        """Its resources in the order of ``scheduler_ext.core.resources.DIMENSIONS``."""
        return (self.cpu_milli, self.memory_mb, self.disk_mb, self.iops, self.bandwidth_kbps, self.ports)


class Handler(models.Model):
    """A registered function that some worker has exported."""

    name = models.CharField(max_length=200, unique=True)
    kind = models.CharField(max_length=16, default="process")
    idempotent = models.BooleanField(default=False)
    checkpoints = models.BooleanField(
        default=False, db_default=False, help_text="Its tasks save checkpoints, and yield when they are asked to."
    )
    defaults = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="Fields of its tasks, unless their submission says otherwise.",
    )
    repeats = models.PositiveSmallIntegerField(
        default=0, db_default=0, choices=[(each.value, each.name.lower()) for each in Repeats],
        help_text="After which ends of a run it may be run again.",
    )  # fmt: skip
    awaited = models.BooleanField(
        default=False, db_default=False, editable=False,
        help_text="Declared by who submits, and exported by no worker yet: its tasks wait for the first.",
    )  # fmt: skip
    rate = models.JSONField(null=True, editable=False, help_text="The execution rate it declares: starts, seconds.")
    description = models.TextField(blank=True)
    schema = models.JSONField(null=True, help_text="Of its arguments, as its workers publish it; empty: anything.")
    paused = models.BooleanField(default=False)
    first_seen_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


NODE_LIVES = ["starting", "active", "draining"]


class Node(models.Model):
    """One worker machine or container in one incarnation. Its claims point to it, so one row renews them all."""

    class State(models.TextChoices):
        STARTING = "starting", "starting: its agent is not there yet"
        ACTIVE = "active"
        DRAINING = "draining", "draining: finishes, gets nothing new"
        LEFT = "left"
        LOST = "lost"

    name = models.CharField(max_length=200)
    hostname = models.CharField(max_length=200)
    incarnation = models.UUIDField(unique=True)
    cell = models.CharField(max_length=63, default="default")
    state = models.CharField(max_length=16, choices=State.choices, default=State.ACTIVE)
    capacity = ArrayField(
        models.BigIntegerField(), size=6, help_text="CPU ‰, memory MiB, disk MiB, IOPS, kbit/s, ports"
    )
    slots = models.JSONField(default=dict, help_text="How many tasks of each kind it runs at once.")
    labels = ArrayField(models.CharField(max_length=63), default=list, blank=True)
    handlers = ArrayField(models.BigIntegerField(), default=list, blank=True)
    sandbox = models.CharField(max_length=32, default="process")
    enforced = ArrayField(
        models.CharField(max_length=16), default=list, db_default=[], blank=True,
        help_text="What of its tier a script is held to there.",
    )  # fmt: skip
    stats = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    lease_expires_at = models.DateTimeField()

    class Meta:
        ordering = ["-started_at"]
        indexes = [models.Index(fields=["cell"], name="slackwater_node_live", condition=Q(state__in=NODE_LIVES))]
        constraints = [
            models.UniqueConstraint(
                fields=["cell", "name"],
                condition=Q(state__in=NODE_LIVES),
                name="slackwater_node_one_incarnation",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"


class Component(models.Model):
    """A process of the platform itself, as it last reported; nodes have a table of their own."""

    class Kind(models.TextChoices):
        SUBMITTER = "submitter"
        DISPATCHER = "dispatcher"
        UPKEEP = "upkeep"
        BEAT = "beat"

    id = models.AutoField(primary_key=True)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    cell = models.CharField(max_length=63)
    hostname = models.CharField(max_length=200)
    pid = models.IntegerField("process")
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField("last heard")
    left_at = models.DateTimeField("left", null=True, help_text="It said that it ends.")

    class Meta:
        ordering = ["kind", "cell", "-id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.hostname}:{self.pid}"
