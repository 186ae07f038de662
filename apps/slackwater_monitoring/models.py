"""Subscriptions and deliveries, usage, alerts and their notices, and logins."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now, Upper

from scheduler_ext.core.states import Category
from slackwater_conf.columns import ArrayField
from slackwater_tasks.models import new_id
from slackwater_tenants.scoping import TenantOwned


class Subscription(TenantOwned):
    """A tenant's subscription to some events: at an address of its own, or by e-mail to its owners."""

    class Channel(models.TextChoices):
        WEBHOOK = "webhook"
        EMAIL = "email"
        TASK = "task", "the task's own address"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="subscriptions")
    channel = models.CharField(max_length=8, choices=Channel.choices, default=Channel.WEBHOOK)
    url = models.CharField(max_length=2_000, blank=True, help_text="Where webhooks are sent.")
    description = models.CharField(max_length=200, blank=True)
    events = ArrayField(models.CharField(max_length=32), help_text="Names of events.")
    tags = ArrayField(
        models.CharField(max_length=63), default=list, blank=True, help_text="Only tasks with one of these."
    )
    handlers = ArrayField(models.CharField(max_length=200), default=list, blank=True, help_text="Only these: mail.*")
    include_result = models.BooleanField(
        default=False, db_default=False, help_text="What a task returned goes with its task.succeeded."
    )
    enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=200, blank=True)
    failing_since = models.DateTimeField(null=True, help_text="No delivery has succeeded since.")
    sealed = models.BinaryField(default=b"", help_text="The secret that signs, encrypted.")
    sealed_before = models.BinaryField(default=b"", help_text="The secret before, while it still signs too.")
    before_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=120, blank=True)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta(TenantOwned.Meta):
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(channel__in=["email", "task"], url="") | (Q(channel="webhook") & ~Q(url="")),
                name="slackwater_subscription_has_its_address",
            )
        ]

    def __str__(self) -> str:
        return self.url or f"e-mail to the owners of {self.tenant_id}"


class Delivery(TenantOwned):
    """One event on its way to one subscription. The payload is kept as it is sent, so that a replay is the same."""

    class State(models.TextChoices):
        PENDING = "pending"
        DELIVERED = "delivered"
        FAILED = "failed", "failed: given up"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(
        "slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    event = models.CharField(max_length=32)
    task_id = models.UUIDField(null=True)
    url = models.CharField(max_length=2_000, blank=True, default="", db_default="", help_text="The task's own address.")
    payload = models.TextField(help_text="JSON, as it is sent.")
    state = models.CharField(max_length=9, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    tries_left = models.PositiveSmallIntegerField(help_text="Attempts before it is given up.")
    next_attempt_at = models.DateTimeField(db_default=Now())
    created_at = models.DateTimeField(db_default=Now())
    delivered_at = models.DateTimeField(null=True)
    log = models.JSONField(default=list, help_text="What became of each attempt.")

    class Meta(TenantOwned.Meta):
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        indexes = [
            models.Index(
                fields=["subscription", "next_attempt_at"], name="slackwater_delivery_due", condition=Q(state="pending")
            ),
            models.Index(fields=["subscription", "-id"], name="slackwater_delivery_log"),
        ]

    def __str__(self) -> str:
        return f"{self.event} ({self.pk})"


class Told(TenantOwned):
    """What a tenant was told of, besides its work, so that it is told once."""

    pk = models.CompositePrimaryKey("tenant", "event", "subject")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    event = models.CharField(max_length=32)
    subject = models.CharField(max_length=100)
    at = models.DateTimeField()

    class Meta(TenantOwned.Meta):
        verbose_name_plural = "told"

    def __str__(self) -> str:
        return f"{self.event}: {self.subject}"


class Usage(TenantOwned):
    """A tenant's usage on one day (UTC), by tier and category; upkeep adds it up from attempts."""

    pk = models.CompositePrimaryKey("tenant", "day", "tier", "category")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField()
    tier = models.CharField(max_length=63, help_text="The tier's name: it may be gone by now.")
    category = models.PositiveSmallIntegerField(choices=[(int(c), c.name.lower()) for c in Category])
    attempts = models.BigIntegerField(default=0)
    succeeded = models.BigIntegerField(default=0)
    run_ms = models.BigIntegerField(default=0, help_text="Time that resources were held.")
    cpu_ms = models.BigIntegerField(default=0, help_text="CPU time, where it is measured.")
    price_micros = models.BigIntegerField(default=0, help_text="At the prices of the moment, in millionths.")

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.day}: {self.attempts}"


class OnTime(TenantOwned):
    """How many of a tenant's tasks began, and how many of these by their latest start, on one day (UTC)."""

    pk = models.CompositePrimaryKey("tenant", "day", "tier", "category", "handler")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField()
    tier = models.CharField(max_length=63, help_text="The tier's name: it may be gone by now.")
    category = models.PositiveSmallIntegerField(choices=[(int(c), c.name.lower()) for c in Category])
    handler = models.CharField(max_length=200, help_text="Empty for scripts.")
    started = models.BigIntegerField(default=0)
    on_time = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.day}: {self.on_time} of {self.started}"


class Sizing(TenantOwned):
    """The usage of the last runs of a tenant's handler or script in a tier, newest first; upkeep adds them."""

    pk = models.CompositePrimaryKey("tenant", "kind", "name", "tier")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    kind = models.CharField(max_length=11, choices=[(k, k) for k in ("handler", "script", "script_path")])
    name = models.CharField(max_length=500, help_text="The handler, the script's SHA-256, or its path.")
    tier = models.ForeignKey(
        "slackwater_resources.Tier", on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    runs = models.BigIntegerField(default=0, help_text="All that were measured.")
    exceeded = models.BigIntegerField(default=0, help_text="Of those, ended because they used more than the tier.")
    cpu_milli = ArrayField(models.IntegerField(), help_text="CPU of each run, on the average.")
    memory_mb = ArrayField(models.IntegerField(null=True), help_text="Peak of each run, where it is measured.")
    disk_mb = ArrayField(models.IntegerField(null=True), help_text="Peak of each run, where it is measured.")
    updated_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.name}"


class UsageMark(models.Model):
    """How far attempts have been added up: one row. See ``usage.py`` for why it has two places."""

    done = models.BigIntegerField(default=0, help_text="The last attempt that is in.")
    seen = models.BigIntegerField(default=0, help_text="The next ones go as far as this.")
    seen_by = models.TextField(default="0", help_text="Once this transaction is over, none of them can still appear.")
    events_done = models.BigIntegerField(default=0, db_default=0, help_text="The same of entries of histories.")
    events_seen = models.BigIntegerField(default=0, db_default=0)
    sampled_at = models.DateTimeField(null=True, help_text="When queues and slots were last looked at for the charts.")

    def __str__(self) -> str:
        return str(self.done)


class Rollup(models.Model):
    """What happened in a span of time, of all work or of one key of a dimension: one row, to which upkeep adds."""

    pk = models.CompositePrimaryKey("grain", "at", "dimension", "key")
    grain = models.IntegerField(help_text="Seconds the span is long; 0: since the key was first met.")
    at = models.DateTimeField(help_text="When the span began.")
    dimension = models.PositiveSmallIntegerField(help_text="What the key is: see ``rollups/layout.py``.")
    key = models.CharField(max_length=200, help_text="A handler, a tenant's number, a node's name, a category, a kind.")
    numbers = ArrayField(models.BigIntegerField(), help_text="In the order of ``rollups/layout.py``.")

    def __str__(self) -> str:
        return f"{self.key} at {self.at}"


class Terms(TenantOwned):
    """What holds for what a tenant submits from a moment on: prices and policies."""

    pk = models.CompositePrimaryKey("tenant", "version")
    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    version = models.IntegerField()
    since = models.DateTimeField()
    terms = models.JSONField()

    def __str__(self) -> str:
        return f"{self.tenant_id}: version {self.version}"


class ReceiptKey(models.Model):
    """A key that seals receipts, or has sealed some."""

    id = models.CharField(primary_key=True, max_length=16, help_text="Of the SHA-256 of the public key.")
    public = models.BinaryField()
    sealed = models.BinaryField(help_text="The private key, encrypted.")
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.id


class ReceiptPage(TenantOwned):
    """Receipts of a tenant that were made at once, compressed, with the seal of the last."""

    tenant = models.ForeignKey("slackwater_tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    first = models.BigIntegerField(help_text="The number of its first receipt.")
    last = models.BigIntegerField()
    since = models.DateTimeField(help_text="The earliest end in it.")
    until = models.DateTimeField(help_text="The latest end in it.")
    charged_micros = models.BigIntegerField()
    before = models.BinaryField(help_text="The hash that its first receipt follows.")
    head = models.BinaryField(help_text="The hash of its last receipt.")
    key_id = models.CharField(max_length=16)
    signature = models.BinaryField()
    body = models.BinaryField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta(TenantOwned.Meta):
        ordering = ["tenant", "first"]
        constraints = [models.UniqueConstraint(fields=["tenant", "first"], name="slackwater_receipts_once")]
        indexes = [models.Index(fields=["tenant", "until"], name="slackwater_receipts_until")]

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"


class Pulse(models.Model):
    """The last sign of life of a kind of process in a cell."""

    pk = models.CompositePrimaryKey("kind", "cell")
    kind = models.CharField(max_length=16)
    cell = models.CharField(max_length=63)
    beat_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.kind} of {self.cell}"


class Alert(models.Model):
    """A condition of the platform itself. One that is not raised yet may still pass."""

    rule = models.CharField(max_length=32)
    cell = models.CharField(max_length=63, blank=True)
    subject = models.CharField(max_length=200, blank=True, help_text="The node, the category, the part.")
    detail = models.CharField(max_length=300, blank=True)
    since = models.DateTimeField(help_text="It has been wrong without a break since then.")
    last_seen_at = models.DateTimeField(help_text="It was wrong when it was looked at then.")
    raised_at = models.DateTimeField(null=True)
    quiet_since = models.DateTimeField(null=True, help_text="It has not been wrong since then.")
    cleared_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=120, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "cell", "subject"], condition=Q(cleared_at=None), name="slackwater_alert_open_once"
            )
        ]

    def __str__(self) -> str:
        return " ".join(part for part in (self.rule, self.subject, f"in {self.cell}" if self.cell else "") if part)


class AlertNotice(models.Model):
    """One change of an alert on its way to the administrators."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="notices")
    event = models.CharField(max_length=8, choices=[("raised", "raised"), ("cleared", "cleared")])
    channel = models.CharField(max_length=8, choices=[("email", "e-mail"), ("webhook", "webhook")])
    tries = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["alert", "event", "channel"], name="slackwater_alert_told_once")]
        indexes = [models.Index(fields=["channel", "due_at"], name="slackwater_notice_due", condition=Q(done_at=None))]

    def __str__(self) -> str:
        return f"{self.event}: {self.alert_id} by {self.channel}"


class Scaling(models.Model):
    """The last call to whoever starts and stops workers, for a cell and a set of labels."""

    pk = models.CompositePrimaryKey("cell", "labels")
    cell = models.CharField(max_length=63)
    labels = models.CharField(max_length=1000, help_text="Comma-separated; empty: all workers.")
    fewer_since = models.DateTimeField(null=True, help_text="It has had more workers than it wants since then.")
    called_at = models.DateTimeField(null=True)
    action = models.CharField(max_length=5, default="", db_default="")
    wanted = models.IntegerField(default=0, db_default=0)
    have = models.IntegerField(default=0, db_default=0)
    calls = models.BigIntegerField(default=0, db_default=0)
    failures = models.BigIntegerField(default=0, db_default=0, help_text="Calls that failed.")
    error = models.CharField(max_length=300, default="", db_default="", help_text="Of the last call.")

    def __str__(self) -> str:
        return f"{self.cell} {self.labels}: {self.action}"


class TraceSending(models.Model):
    """The state of sending traces to the collector: one row, which the metrics read."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    sent = models.BigIntegerField(default=0, db_default=0, help_text="Tasks whose spans were sent.")
    refused = models.BigIntegerField(default=0, db_default=0, help_text="Tasks the collector did not take.")
    dropped = models.BigIntegerField(default=0, db_default=0, help_text="Tasks given up beyond the backlog.")
    backlog = models.IntegerField(default=0, db_default=0, help_text="Ended tasks not sent yet, when last looked.")
    failing_since = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, blank=True, default="", db_default="")

    class Meta:
        verbose_name_plural = "trace sending"
        constraints = [models.CheckConstraint(condition=Q(id=1), name="slackwater_trace_sending_once")]

    def __str__(self) -> str:
        return f"{self.sent} sent, {self.backlog} waiting"


class Login(models.Model):
    """A login attempt in the admin, with its outcome."""

    class Outcome(models.TextChoices):
        SUCCEEDED = "succeeded"
        FAILED = "failed", "failed: wrong name or password, or not allowed in"
        REFUSED = "refused", "refused: too many failures before"
        LEFT = "left", "logged out"

    at = models.DateTimeField(db_default=Now())
    username = models.CharField(max_length=150)
    address = models.CharField(max_length=64, blank=True)
    outcome = models.CharField(max_length=9, choices=Outcome.choices)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["address", "at"], name="slackwater_login_address"),
            models.Index(Upper("username"), "at", name="slackwater_login_name"),
        ]

    def __str__(self) -> str:
        return f"{self.username} {self.outcome}"
