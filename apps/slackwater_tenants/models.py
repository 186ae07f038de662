"""Tenants, plans, keys, and the counter row that makes admission exact."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.postgres.functions import RandomUUID
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler_ext.core.labels import FORM
from slackwater_conf import SLUG_FORM
from slackwater_conf.columns import ArrayField

SLUG = RegexValidator(SLUG_FORM, "Lower-case letters, digits and dashes, at most 63.")
LABEL = RegexValidator(rf"^{FORM.pattern}$", "NAME or NAME=VALUE, without spaces and commas.")


def default_tolerances() -> dict[str, int]:
    """Delay tolerance by category in seconds, where a task names none."""
    return {"urgent": 5, "delayable": 300, "periodic": 300, "offpeak": 86_400}


def default_price_permille() -> dict[str, int]:
    """The price of each category, in thousandths of its tier's price."""
    return {"urgent": 1_000, "delayable": 1_000, "periodic": 1_000, "offpeak": 1_000}


def all_tiers() -> list[str]:
    """The shared tiers a new plan allows."""
    return ["basic", "regular", "premium"]


def all_handlers() -> list[str]:
    """A new plan grants every exported handler."""
    return ["*"]


def default_largest_tier() -> dict[str, int]:
    """The largest tier of its own that a client may make, by resource."""
    return {
        "cpu_milli": 4_000,
        "memory_mb": 16_384,
        "disk_mb": 102_400,
        "iops": 10_000,
        "bandwidth_kbps": 1_000_000,
        "ports": 16,
    }


class Plan(models.Model):
    """The limits of a tenant. Changes take effect with the next submission and the next round."""

    slug = models.CharField(max_length=63, unique=True, validators=[SLUG])
    name = models.CharField(max_length=120)
    tasks_per_hour = models.PositiveIntegerField(default=100_000, help_text="Submissions an hour, in the long run.")
    burst = models.PositiveIntegerField(
        default=20_000, help_text="Submissions at once; each task of a graph is one, so the largest must fit."
    )
    max_waiting = models.PositiveIntegerField(default=1_000_000, help_text="Tasks accepted and not finished.")
    max_in_flight = models.PositiveIntegerField(default=10_000, help_text="Tasks claimed or running.")
    rate_starts = models.PositiveIntegerField(
        "execution rate: starts",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(100_000)],
        help_text="At most so many of a tenant's tasks start in any span of the seconds beside it; empty: any.",
    )
    rate_per_s = models.PositiveIntegerField(
        "execution rate: seconds",
        default=60,
        db_default=60,
        validators=[MinValueValidator(1), MaxValueValidator(31 * 86_400)],
        help_text="Exact over all nodes. Each tenant of the plan has the rate for itself.",
    )
    tiers = ArrayField(models.CharField(max_length=63), default=all_tiers, help_text="Names of tiers allowed.")
    max_artifact_bytes = models.PositiveIntegerField(
        "artifacts (bytes)", default=16_777_216, db_default=16_777_216, help_text="Of one task, together."
    )
    max_upload_bytes = models.PositiveBigIntegerField(
        "uploads (bytes)", default=1_073_741_824, db_default=1_073_741_824, help_text="Of one tenant, together."
    )
    max_own_tiers = models.PositiveIntegerField(
        "own tiers", default=10, help_text="How many tiers of its own a client may have."
    )
    largest_tier = models.JSONField(
        "largest own tier",
        default=default_largest_tier,
        blank=True,
        help_text="By resource; one not named may not be had.",
    )
    max_cap_s = models.PositiveIntegerField("longest execution cap (s)", default=86_400)
    max_payload_bytes = models.PositiveIntegerField(default=262_144)
    max_dag_tasks = models.PositiveIntegerField(default=20_000)
    max_dag_edges = models.PositiveIntegerField(default=100_000)
    max_dag_depth = models.PositiveIntegerField(default=1_000)
    max_urgent_permille = models.PositiveSmallIntegerField(
        "urgent work (‰)",
        default=1_000,
        validators=[MaxValueValidator(1_000)],
        help_text="Thousandths of the tenant's unfinished tasks that may be urgent, beyond the first hundred.",
    )
    weight = models.PositiveIntegerField(
        default=1, validators=[MinValueValidator(1)], help_text="Share between tenants."
    )
    guaranteed_permille = models.PositiveSmallIntegerField(default=0, validators=[MaxValueValidator(1_000)])
    maximum_permille = models.PositiveSmallIntegerField(default=1_000, validators=[MaxValueValidator(1_000)])
    handlers = ArrayField(
        models.CharField(max_length=200), default=all_handlers, help_text="Patterns of handler names granted: mail.*"
    )
    scripts = models.BooleanField(default=True, help_text="May run scripts.")
    require_labels = ArrayField(
        models.CharField(max_length=63, validators=[LABEL]),
        default=list,
        db_default=[],
        blank=True,
        help_text="Its tasks run only on nodes with all of these labels: pool=shared. From the next submission on.",
    )
    prefer_labels = ArrayField(
        models.CharField(max_length=63, validators=[LABEL]),
        default=list,
        db_default=[],
        blank=True,
        help_text="Of the nodes with room, those that have most of them come first.",
    )
    refuse_impossible = models.BooleanField(
        "refuse what no node can run",
        default=False,
        db_default=False,
        help_text="At once, when it is submitted; otherwise it waits for a node and is given up after a while.",
    )
    refuse_late = models.BooleanField(
        "refuse what would start late",
        default=False,
        db_default=False,
        help_text="When the tenant's own work ahead takes longer than the start may be delayed.",
    )
    script_network = models.BooleanField(
        "network for scripts",
        default=False,
        help_text="Its scripts reach the network of the nodes they run on, with all that answers there.",
    )
    max_checkpoint_bytes = models.PositiveIntegerField(
        default=16_777_216, db_default=16_777_216, help_text="Largest checkpoint a task may save."
    )
    max_log_bytes = models.PositiveIntegerField(
        "output (bytes)", default=1_048_576, db_default=1_048_576, help_text="Of what an attempt prints and logs."
    )
    max_stream_bytes = models.PositiveIntegerField(
        "result stream (bytes)", default=67_108_864, db_default=67_108_864, help_text="Of what an attempt yields."
    )
    dead_letter_retries = models.PositiveSmallIntegerField(
        default=0, help_text="How often a dead letter is retried by itself."
    )
    dead_letter_after_s = models.PositiveIntegerField(default=3_600, help_text="Time before such a retry.")
    delay_tolerance_s = models.JSONField(default=default_tolerances, help_text="By category, in seconds.")
    handler_defaults = models.JSONField(
        "defaults by handler",
        default=dict,
        db_default={},
        blank=True,
        help_text='By pattern of names: {"mail.*": {"category": "urgent", "delay_tolerance_s": 5}}. They go before what '
        "the handler declares; of several that match the last holds, and what a submission says goes before all.",
    )
    price_micros_per_attempt = models.PositiveBigIntegerField(
        "price of an attempt (millionths)", default=0, help_text="In millionths of the unit you charge in."
    )
    price_permille = models.JSONField(
        "price by category (‰)",
        default=default_price_permille,
        help_text="What an hour of a tier costs in this category, in thousandths of the tier's price.",
    )
    retention_days = models.PositiveIntegerField(
        "retention (days)", default=30, help_text="How long finished tasks are kept; 0: for ever."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.CheckConstraint(condition=Q(weight__gte=1), name="slackwater_plan_weight_positive"),
            models.CheckConstraint(
                condition=Q(guaranteed_permille__lte=models.F("maximum_permille")),
                name="slackwater_plan_guaranteed_within_maximum",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse tiers that there are not, patterns that match nothing, defaults that no task could have, and more
        guaranteed than there may be."""
        from slackwater_tenants import plan_rules  # of all processes only one that edits plans needs it

        found = {
            "tiers": plan_rules.fault_of_tiers(self.tiers or ()),
            "handlers": plan_rules.fault_of_patterns(self.handlers or ()),
            "guaranteed_permille": plan_rules.fault_of_share(self.guaranteed_permille, self.maximum_permille),
            "handler_defaults": plan_rules.fault_of_defaults(self.handler_defaults, default_tolerances()),
        }
        if faults := {field: fault for field, fault in found.items() if fault}:
            raise ValidationError(faults)


class Pool(models.Model):
    """A pool (or queue) that tenants and lines stand in; pools may stand in pools. Share policies go by them."""

    class Inside(models.TextChoices):
        """How the fair policy serves the tenants of a pool."""

        FAIR = "fair", "fair: by weight"
        FIFO = "fifo", "fifo: by rank, whoever's it is"

    cell = models.CharField(max_length=63, default="default", validators=[SLUG])
    parent = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="children", help_text="Empty: on top."
    )
    slug = models.CharField(max_length=63, validators=[SLUG])
    weight = models.PositiveIntegerField(
        default=1, validators=[MinValueValidator(1)], help_text="Its part of what is shared out beside it."
    )
    guaranteed = models.FloatField(
        "guaranteed (%)",
        default=0.0,
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text="Of what the pool above is guaranteed (of the cell, on top): the soft limit, or minimum share.",
    )
    maximum = models.FloatField(
        "maximum (%)",
        default=100.0,
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text="Of what the pool above may have at most: the hard limit.",
    )
    lends = models.FloatField(
        "lends (%)",
        default=100.0,
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text="How much of its idle guarantee others may use; the rest is kept free for it.",
    )
    inside = models.CharField(max_length=8, choices=Inside.choices, default=Inside.FAIR)

    class Meta:
        ordering = ["cell", "slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["cell", "parent", "slug"], nulls_distinct=False, name="slackwater_pool_unique"
            ),
            models.CheckConstraint(condition=Q(weight__gte=1), name="slackwater_pool_weight_positive"),
            models.CheckConstraint(
                condition=Q(guaranteed__gte=0, maximum__lte=100, lends__gte=0, lends__lte=100)
                & Q(guaranteed__lte=models.F("maximum")),
                name="slackwater_pool_shares_in_order",
            ),
        ]

    def __str__(self) -> str:
        return self.path

    @property
    def path(self) -> str:
        """The slugs from the top, with slashes."""
        return f"{self.parent.path}/{self.slug}" if self.parent is not None else self.slug


class Tenant(models.Model):
    """A client organisation."""

    slug = models.CharField(max_length=63, unique=True, validators=[SLUG])
    name = models.CharField(max_length=200)
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="tenants")
    cell = models.CharField(max_length=63, default="default", validators=[SLUG], help_text="Where its tasks run.")
    pool = models.ForeignKey(
        Pool,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="tenants",
        help_text="Where its lines stand, unless a line has a pool of its own; empty: beside the pools.",
    )
    client = models.CharField(
        max_length=63,
        blank=True,
        default="",
        db_default="",
        validators=[SLUG],
        help_text="Whose it is, where a client has several: tenants without a pool that name one client share as "
        "one tenant.",
    )
    trusted = models.BooleanField(default=False, help_text="Its scripts may run without a sandbox.")
    paused = models.BooleanField(default=False, help_text="Tasks are accepted, none is started.")
    paused_by_itself = models.BooleanField(
        default=False, db_default=False, help_text="By its owner, who may end the pause."
    )
    script_root = models.CharField(
        max_length=500, blank=True, help_text="Folder mounted on the workers in which its script paths lie."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug

    def clean(self) -> None:
        """Refuse a relative folder: it would be another one on each worker."""
        if self.script_root and not self.script_root.startswith("/"):
            raise ValidationError({"script_root": "must be an absolute path, for example /srv/acme"})


class TenantCounter(models.Model):
    """The row that admission changes last and conditionally: it makes rate and quota exact on any number of nodes.

    :class:`CurrentCounter` has how many tasks are unfinished now.
    """

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="counter")
    unfinished = models.BigIntegerField(default=0, help_text="Less the ended tasks that were taken in.")
    urgent_unfinished = models.BigIntegerField(default=0)
    ended = models.BigIntegerField(default=0, db_default=0, help_text="The ended tasks that were taken in.")
    urgent_ended = models.BigIntegerField(default=0, db_default=0)
    submitted = models.BigIntegerField(default=0, db_default=0, help_text="All that were ever accepted, or run again.")
    theoretical_arrival = models.DateTimeField(
        default=None, null=True, help_text="When the rate's bucket is full again (generic cell rate algorithm)."
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(unfinished__gte=0), name="slackwater_counter_not_negative")]

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.unfinished}"


class EndCounter(models.Model):
    """How many of a tenant's tasks have ever ended, in a few parts of which each recorder raises its own.

    Apart from the row that admission raises: who ends tasks and who submits them do not wait for each other's commit.
    """

    pk = models.CompositePrimaryKey("tenant", "part")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    part = models.SmallIntegerField()
    tasks = models.BigIntegerField()
    urgent = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.tasks}"


class CurrentCounter(models.Model):
    """A tenant's counter as it stands, with all that has ended: a view."""

    tenant = models.OneToOneField(Tenant, on_delete=models.DO_NOTHING, primary_key=True, related_name="current_counter")
    unfinished = models.BigIntegerField()
    urgent_unfinished = models.BigIntegerField()
    submitted = models.BigIntegerField()
    theoretical_arrival = models.DateTimeField(null=True)

    class Meta:
        managed = False

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.unfinished}"


class Team(models.Model):
    """A group of users under a tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="teams")
    slug = models.CharField(max_length=63, validators=[SLUG])
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["slug"]
        constraints = [models.UniqueConstraint(fields=["tenant", "slug"], name="slackwater_team_unique")]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A user's role in a tenant."""

    class Role(models.TextChoices):
        OWNER = "owner"
        OPERATOR = "operator"
        VIEWER = "viewer"

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    team = models.ForeignKey(Team, on_delete=models.SET_NULL, null=True, blank=True, related_name="memberships")
    public_id = models.UUIDField(
        unique=True, editable=False, db_default=RandomUUID(), help_text="What clients call it: it tells of no other."
    )
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["tenant", "user"], name="slackwater_membership_unique")]

    def __str__(self) -> str:
        return f"{self.user} in {self.tenant}"


class ApiKey(models.Model):
    """A key of a tenant. Only its hash is kept; the key itself is shown once."""

    class Scope(models.TextChoices):
        SUBMIT = "submit"
        READ = "read"
        CANCEL = "cancel"
        MANAGE = "manage"
        OPERATE = "operate"
        """The platform's nodes, with any tenant's work: given by the platform's operators, never by a tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16, unique=True, help_text="Visible part of the key.")
    secret_hash = models.CharField(max_length=64, editable=False)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope.choices), default=list)
    member = models.ForeignKey(
        Membership,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="api_keys",
        help_text="Whose it is: it can do no more than this member's role allows, and goes with the member.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    origins = ArrayField(
        models.CharField(max_length=200),
        default=list,
        db_default=[],
        blank=True,
        help_text="Origins whose pages may read what it is answered, for example https://app.example.org.",
    )

    class Meta:
        ordering = ["tenant", "name"]
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.tenant_id}:{self.prefix}"


class Identity(models.Model):
    """Who a user is at the provider that people log in by (OpenID Connect): nothing else of it names somebody for good."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="slackwater_identity_unique")]
        verbose_name_plural = "identities"

    def __str__(self) -> str:
        return f"{self.user} at {self.issuer}"


class StreamTicket(models.Model):
    """Opens one live stream once, with the rights of a key. Only its hash is kept."""

    digest = models.CharField(max_length=64, primary_key=True)
    key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, related_name="tickets")
    path = models.CharField(max_length=200)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.key_id}: {self.path}"


def plan_numbers(plan: Plan) -> dict[str, Any]:
    """The numbers of a plan by name, as the API's ``limits`` shows them."""
    names = (
        "tasks_per_hour burst max_waiting max_in_flight tiers max_cap_s max_payload_bytes max_dag_tasks max_dag_edges "
        "max_dag_depth max_artifact_bytes max_upload_bytes max_own_tiers largest_tier max_urgent_permille weight "
        "guaranteed_permille maximum_permille handlers require_labels "
        "prefer_labels scripts script_network delay_tolerance_s rate_starts rate_per_s "
        "refuse_impossible handler_defaults refuse_late max_checkpoint_bytes max_log_bytes max_stream_bytes dead_letter_retries "
        "dead_letter_after_s retention_days"
    )
    return {{"rate_per_s": "rate_window_s"}.get(name, name): getattr(plan, name) for name in names.split()}
