"""The ledger: the wide task, the narrow live row beside it, attempts, edges, events and dead letters.

A task's state stands in its live row while it is not final, and in ``Task.state`` from then on; the live row leaves
with the finish. Foreign keys between the hot tables carry no database constraint: checking one costs as much as the
row itself, and every writer of these tables is in ``queries.py`` (see ``docs/adr/0003-ledger-layout.md``).
"""

from __future__ import annotations

import uuid
from typing import Any

import uuid_utils
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.tenants.scoping import TenantManager
from scheduler_ext.core.states import FINAL, Category, EdgeOutcome, Outcome, RunCondition, TaskState

LIVE_STATES = [state for state in TaskState if state not in FINAL]


def new_id() -> uuid.UUID:
    """A UUIDv7: made without coordination, sortable by time."""
    return uuid.UUID(bytes=uuid_utils.uuid7().bytes)


def _choices(enum: type[Any]) -> list[tuple[int, str]]:
    return [(int(member), member.name.lower().replace("_", " ")) for member in enum]


class OnLate(models.IntegerChoices):
    """What happens when a task's latest start passes."""

    RUN_FIRST = 1, "run first"
    GIVE_UP = 2, "give up"


class Line(models.Model):
    """The ready tasks of one tenant, category and tier, in order."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="lines")
    category = models.PositiveSmallIntegerField(choices=_choices(Category))
    tier = models.ForeignKey("resources.Tier", on_delete=models.PROTECT, related_name="+")
    paused = models.BooleanField(default=False)

    objects = TenantManager()

    class Meta:
        base_manager_name = "_plain"
        constraints = [models.UniqueConstraint(fields=["tenant", "category", "tier"], name="line_unique")]

    _plain = models.Manager()

    def __str__(self) -> str:
        return f"{self.tenant} · {Category(self.category).name.lower()} · {self.tier}"


class Script(models.Model):
    """A file in a tenant's script store, addressed by the SHA-256 of its content."""

    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="scripts")
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
        constraints = [models.UniqueConstraint(fields=["tenant", "sha256"], name="script_unique")]

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]})"


class Workflow(models.Model):
    """A graph of tasks handed in as one."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="workflows")
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
        indexes = [models.Index(fields=["tenant", "-id"], name="workflow_tenant")]

    def __str__(self) -> str:
        return self.name or str(self.id)


class Task(models.Model):
    """A tenant's unit of work, as it was handed in, and how it ended."""

    class Kind(models.IntegerChoices):
        """The two kinds of work."""

        HANDLER = 1, "Celery task"
        SCRIPT = 2, "script"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(
        "tenants.Tenant", on_delete=models.CASCADE, related_name="tasks", db_constraint=False, db_index=False
    )
    workflow = models.ForeignKey(
        Workflow,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="tasks",
        db_constraint=False,
        db_index=False,
    )
    name = models.CharField(max_length=200, blank=True)
    kind = models.PositiveSmallIntegerField(choices=Kind.choices)
    handler = models.CharField(max_length=200, blank=True)
    script_sha256 = models.CharField(max_length=64, blank=True)
    script_path = models.CharField(
        max_length=500, blank=True, help_text="Path within the tenant's mounted folder."
    )
    args = models.JSONField(default=list)
    kwargs = models.JSONField(default=dict)
    category = models.PositiveSmallIntegerField(choices=_choices(Category))
    tier = models.ForeignKey(
        "resources.Tier", on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    priority = models.SmallIntegerField(default=0, help_text="0 to 1000, larger first within its line.")
    delay_tolerance_ms = models.BigIntegerField(help_text="How long its start may be delayed.")
    on_late = models.PositiveSmallIntegerField(choices=OnLate.choices, default=OnLate.RUN_FIRST)
    cap_ms = models.BigIntegerField(
        "execution cap (ms)", help_text="Counted from the moment a resource is allocated."
    )
    total_attempts = models.PositiveSmallIntegerField(default=3)
    retry = models.JSONField(
        null=True, blank=True, help_text="Back-off of its own: base_s, factor, max_s, jitter."
    )
    mutex_key = models.CharField(max_length=200, blank=True)
    mutex_limit = models.PositiveSmallIntegerField(default=1)
    condition = models.PositiveSmallIntegerField(
        choices=_choices(RunCondition), default=RunCondition.ALL_SUCCEEDED
    )
    tags = ArrayField(models.CharField(max_length=63), default=list, blank=True)
    submitted_at = models.DateTimeField()
    submitted_by = models.CharField(
        max_length=120, blank=True, help_text="Key, user, schedule or code that submitted it."
    )
    start_at = models.DateTimeField(null=True, blank=True)
    # From here on: written when the task becomes final, and emptied when it runs again.
    state = models.PositiveSmallIntegerField(
        choices=_choices(TaskState), null=True, help_text="Final state; empty while live."
    )
    finished_at = models.DateTimeField(null=True)
    attempts_used = models.PositiveSmallIntegerField(default=0)
    result = models.JSONField(null=True)
    error = models.TextField(blank=True, default="")
    reason = models.CharField(
        max_length=200, blank=True, default="", help_text="Why it ended as it did, where it did not succeed."
    )
    release_pending = models.BooleanField(default=False, help_text="Its dependants have not been told yet.")

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        base_manager_name = "_plain"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="task_tenant"),
            models.Index(fields=["workflow"], name="task_workflow", condition=Q(workflow__isnull=False)),
            models.Index(fields=["id"], name="task_release", condition=Q(release_pending=True)),
            GinIndex(fields=["tags"], name="task_tags", condition=~Q(tags=[])),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__isnull=True) | Q(state__in=[int(s) for s in FINAL]),
                name="task_final_state",
            ),
            models.CheckConstraint(
                condition=Q(state__isnull=True, finished_at__isnull=True)
                | Q(state__isnull=False, finished_at__isnull=False),
                name="task_finished_when_final",
            ),
            models.CheckConstraint(condition=Q(cap_ms__gt=0), name="task_cap_positive"),
            models.CheckConstraint(condition=Q(total_attempts__gte=1), name="task_attempts_positive"),
            models.CheckConstraint(
                condition=Q(delay_tolerance_ms__gte=0), name="task_tolerance_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return self.name or str(self.id)


class LiveTask(models.Model):
    """The narrow row of a task that is not final: what deciding and running read and write."""

    task = models.OneToOneField(
        Task, on_delete=models.CASCADE, primary_key=True, related_name="live", db_constraint=False
    )
    tenant = models.ForeignKey(
        "tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    line = models.ForeignKey(
        Line, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    state = models.PositiveSmallIntegerField(choices=_choices(TaskState))
    rank_group = models.IntegerField(default=0)
    rank = models.BigIntegerField()
    kind = models.PositiveSmallIntegerField(choices=Task.Kind.choices)
    handler = models.ForeignKey(
        "resources.Handler",
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    priority = models.SmallIntegerField(default=0)
    fence = models.IntegerField(default=0, help_text="Rises with every claim.")
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Attempts that began and ended.")
    total_attempts = models.PositiveSmallIntegerField()
    pending = models.IntegerField(default=0, help_text="Parents that are not final.")
    condition = models.PositiveSmallIntegerField(default=RunCondition.ALL_SUCCEEDED)
    has_children = models.BooleanField(default=False)
    alone = models.BooleanField(default=False, help_text="Never shares a batch.")
    batch = models.PositiveSmallIntegerField(default=0, help_text="How many were started with it.")
    cancel_requested = models.BooleanField(default=False)
    mutex_key = models.CharField(max_length=200, null=True)
    mutex_limit = models.PositiveSmallIntegerField(default=1)
    tolerance_ms = models.BigIntegerField()
    on_late = models.PositiveSmallIntegerField(default=OnLate.RUN_FIRST)
    not_before = models.DateTimeField(null=True)
    latest_start = models.DateTimeField(null=True)
    promote_at = models.DateTimeField(
        null=True, help_text="When it becomes urgent; empty when it is, or never does."
    )
    node = models.ForeignKey(
        "resources.Node",
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    last_node = models.IntegerField(null=True, help_text="Where its last attempt failed.")
    slot_milli = models.PositiveSmallIntegerField(
        default=1000, help_text="Thousandths of a slot its claim takes."
    )
    queued_at = models.DateTimeField(null=True)
    claim_expires_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    progress = models.JSONField(null=True)

    _plain = models.Manager()
    objects = TenantManager()

    class Meta:
        base_manager_name = "_plain"
        indexes = [
            models.Index(
                fields=["line", "rank_group", "rank", "task"],
                name="live_ready",
                condition=Q(state=TaskState.READY),
            ),
            models.Index(
                fields=["node", "state"],
                name="live_in_flight",
                condition=Q(state__in=[TaskState.QUEUED, TaskState.RUNNING]),
            ),
            models.Index(fields=["not_before"], name="live_due", condition=Q(state=TaskState.SCHEDULED)),
            models.Index(
                fields=["promote_at"],
                name="live_promote",
                condition=Q(state=TaskState.READY, promote_at__isnull=False),
            ),
            models.Index(
                fields=["latest_start"],
                name="live_give_up",
                condition=Q(
                    on_late=OnLate.GIVE_UP,
                    state__in=[TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.READY],
                ),
            ),
            models.Index(
                fields=["mutex_key", "state"], name="live_mutex", condition=Q(mutex_key__isnull=False)
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=[int(s) for s in LIVE_STATES]), name="live_state"),
            models.CheckConstraint(
                condition=~Q(state__in=[TaskState.QUEUED, TaskState.RUNNING]) | Q(node__isnull=False),
                name="live_claimed_has_node",
            ),
            models.CheckConstraint(condition=Q(pending__gte=0), name="live_pending_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.task_id}: {TaskState(self.state).name}"


class Attempt(models.Model):
    """One run of a task that began and ended. The fence makes it unique: no run is recorded twice."""

    task = models.ForeignKey(
        Task, on_delete=models.CASCADE, related_name="attempts", db_constraint=False, db_index=False
    )
    tenant = models.ForeignKey(
        "tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    number = models.PositiveSmallIntegerField()
    fence = models.IntegerField()
    node = models.ForeignKey(
        "resources.Node",
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    worker = models.CharField(max_length=120, blank=True, help_text="Slot that ran it.")
    queued_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    outcome = models.PositiveSmallIntegerField(choices=_choices(Outcome))
    error = models.TextField(blank=True, default="")
    exit_code = models.IntegerField(null=True)
    cpu_ms = models.IntegerField(null=True)
    peak_memory_mb = models.IntegerField(null=True)

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        base_manager_name = "_plain"
        ordering = ["task", "fence"]
        constraints = [models.UniqueConstraint(fields=["task", "fence"], name="attempt_once")]

    def __str__(self) -> str:
        return f"{self.task_id} #{self.number}"


class AttemptLog(models.Model):
    """What an attempt wrote, capped, by stream."""

    task = models.ForeignKey(
        Task, on_delete=models.CASCADE, related_name="logs", db_constraint=False, db_index=False
    )
    tenant = models.ForeignKey(
        "tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    fence = models.IntegerField()
    stream = models.CharField(max_length=8)
    text = models.TextField()
    truncated = models.BooleanField(default=False)

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        base_manager_name = "_plain"
        ordering = ["task", "fence", "stream"]
        constraints = [models.UniqueConstraint(fields=["task", "fence", "stream"], name="attempt_log_once")]

    def __str__(self) -> str:
        return f"{self.task_id} {self.stream}"


class Dependency(models.Model):
    """An edge: ``child`` needs ``parent``."""

    pk = models.CompositePrimaryKey("parent", "child")
    parent = models.ForeignKey(
        Task, on_delete=models.CASCADE, related_name="children_edges", db_constraint=False, db_index=False
    )
    child = models.ForeignKey(
        Task, on_delete=models.CASCADE, related_name="parent_edges", db_constraint=False, db_index=False
    )
    outcome = models.PositiveSmallIntegerField(choices=_choices(EdgeOutcome), default=EdgeOutcome.PENDING)

    class Meta:
        verbose_name_plural = "dependencies"
        indexes = [models.Index(fields=["child"], name="dependency_child")]
        constraints = [
            models.CheckConstraint(condition=~Q(parent=models.F("child")), name="dependency_not_itself")
        ]

    def __str__(self) -> str:
        return f"{self.parent_id} -> {self.child_id}"


class TaskEvent(models.Model):
    """A change of state, or an edit, that the attempt rows do not tell."""

    task = models.ForeignKey(
        Task, on_delete=models.CASCADE, related_name="events", db_constraint=False, db_index=False
    )
    tenant = models.ForeignKey(
        "tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    at = models.DateTimeField(db_default=Now())
    from_state = models.PositiveSmallIntegerField(choices=_choices(TaskState), null=True)
    to_state = models.PositiveSmallIntegerField(choices=_choices(TaskState))
    fence = models.IntegerField(default=0)
    actor = models.CharField(max_length=120, blank=True)
    reason = models.CharField(max_length=300)
    detail = models.JSONField(null=True)

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        base_manager_name = "_plain"
        ordering = ["id"]
        indexes = [models.Index(fields=["task", "id"], name="event_task")]

    def __str__(self) -> str:
        return f"{self.task_id}: {self.reason}"


class DeadLetter(models.Model):
    """A task whose attempts are used up, until it is requeued or removed."""

    task = models.OneToOneField(
        Task, on_delete=models.CASCADE, primary_key=True, related_name="dead_letter", db_constraint=False
    )
    tenant = models.ForeignKey(
        "tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    at = models.DateTimeField(db_default=Now())
    outcome = models.PositiveSmallIntegerField(choices=_choices(Outcome), null=True)
    reason = models.CharField(max_length=300)
    retries = models.PositiveSmallIntegerField(
        default=0, help_text="Times it was retried from here by policy."
    )
    next_retry_at = models.DateTimeField(null=True, blank=True, db_index=True)

    objects = TenantManager()
    _plain = models.Manager()

    class Meta:
        base_manager_name = "_plain"
        ordering = ["-at"]
        indexes = [models.Index(fields=["tenant", "-at"], name="dead_letter_tenant")]

    def __str__(self) -> str:
        return str(self.task_id)


class IdempotencyKey(models.Model):
    """The first answer to a submission that carried this key."""

    pk = models.CompositePrimaryKey("tenant", "key")
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=200)
    body_hash = models.CharField(max_length=64)
    task_id = models.UUIDField(null=True)
    workflow_id = models.UUIDField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="idempotency_age")]

    def __str__(self) -> str:
        return f"{self.tenant_id}:{self.key}"


class RunTime(models.Model):
    """What is known of how long a handler (or script) of a tenant runs."""

    pk = models.CompositePrimaryKey("tenant", "key")
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="+", db_index=False)
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
