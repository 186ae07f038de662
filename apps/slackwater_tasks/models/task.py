"""The wide task, and the narrow live row beside it.

Their small numbers are plain ones: for each statement that writes a row PostgreSQL reads every check of its table anew,
which for a batch of two tasks was a sixth of the cost. What the checks here hold is more than a sign.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Least

from scheduler_ext.core.states import FINAL, Category, LateMark, RunCondition, TaskState
from slackwater_conf.columns import ArrayField, GinIndex
from slackwater_tasks.models.base import LIVE_STATES, LooseKey, MutexScope, OnLate, choices, new_id
from slackwater_tasks.models.dispatch import Line
from slackwater_tasks.models.submission import Workflow
from slackwater_tenants.scoping import TenantManager, TenantOwned


class Task(TenantOwned):
    """A tenant's unit of work, as it was submitted, and how it ended."""

    class Kind(models.IntegerChoices):
        """The two kinds of work."""

        HANDLER = 1, "Celery task"
        SCRIPT = 2, "script"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = LooseKey("slackwater_tenants.Tenant", related_name="tasks")
    workflow = LooseKey(Workflow, null=True, blank=True, related_name="tasks")
    name = models.CharField(max_length=200, blank=True)
    kind = models.SmallIntegerField(choices=Kind.choices)
    handler = models.CharField(max_length=200, blank=True)
    script_sha256 = models.CharField(max_length=64, blank=True)
    script_path = models.CharField(max_length=500, blank=True, help_text="Path within the tenant's mounted folder.")
    args = models.JSONField(default=list)
    kwargs = models.JSONField(default=dict)
    category = models.SmallIntegerField(choices=choices(Category))
    tier = LooseKey("slackwater_resources.Tier", on_delete=models.PROTECT)
    priority = models.SmallIntegerField(default=0, help_text="0 to 1000, larger first within its line.")
    delay_tolerance_ms = models.BigIntegerField(help_text="How long its start may be delayed.")
    on_late = models.SmallIntegerField(choices=OnLate.choices, default=OnLate.RUN_FIRST)
    cap_ms = models.BigIntegerField("execution cap (ms)", help_text="Counted from the moment a resource is allocated.")
    total_attempts = models.SmallIntegerField(default=3)
    retry = models.JSONField(null=True, blank=True, help_text="Back-off of its own: base_s, factor, max_s, jitter.")
    mutex_key = models.CharField(max_length=200, blank=True)
    mutex_limit = models.SmallIntegerField(default=1)
    mutex_scope = models.SmallIntegerField(
        choices=MutexScope.choices, default=MutexScope.BOTH, db_default=MutexScope.BOTH
    )
    rate_key = models.CharField(max_length=150, blank=True, default="", db_default="")
    condition = models.SmallIntegerField(choices=choices(RunCondition), default=RunCondition.ALL_SUCCEEDED)
    require_labels = ArrayField(
        models.CharField(max_length=63), null=True, blank=True, help_text="What a node must have. Empty for most."
    )
    prefer_labels = ArrayField(models.CharField(max_length=63), null=True, blank=True)
    tags = ArrayField(models.CharField(max_length=63), default=list, blank=True)
    submitted_at = models.DateTimeField()
    submitted_by = models.CharField(
        max_length=120, blank=True, help_text="Key, user, schedule or code that submitted it."
    )
    admitted_by = models.IntegerField(
        null=True, blank=True, help_text="The component that admitted it. No reference: components are forgotten."
    )
    start_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Not started by then, it expires.")
    metadata = models.JSONField(null=True, blank=True, help_text="Names and texts of its submitter's.")
    copied_from = models.UUIDField(null=True, blank=True, help_text="The ended task it was made from, edited.")
    # From here on: written when the task becomes final, and emptied when it runs again.
    state = models.SmallIntegerField(choices=choices(TaskState), null=True, help_text="Final state; empty while live.")
    finished_at = models.DateTimeField(null=True)
    latest_start = models.DateTimeField(null=True, blank=True, help_text="Until when it was to start.")
    attempts_used = models.SmallIntegerField(default=0)
    result = models.JSONField(null=True)
    error = models.TextField(blank=True, default="")
    reason = models.CharField(
        max_length=200, blank=True, default="", help_text="Why it ended as it did, where it did not succeed."
    )
    release_pending = models.BooleanField(default=False, help_text="Its dependants have not been told yet.")

    class Meta(TenantOwned.Meta):
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="slackwater_task_tenant"),
            models.Index(fields=["workflow"], name="slackwater_task_workflow", condition=Q(workflow__isnull=False)),
            models.Index(fields=["id"], name="slackwater_task_release", condition=Q(release_pending=True)),
            GinIndex(fields=["tags"], name="slackwater_task_tags", condition=~Q(tags=[])),
            GinIndex(
                fields=["metadata"],
                name="slackwater_task_metadata",
                opclasses=["jsonb_path_ops"],
                condition=Q(metadata__isnull=False),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__isnull=True) | Q(state__in=sorted(int(s) for s in FINAL)),
                name="slackwater_task_final_state",
            ),
            models.CheckConstraint(
                condition=Q(state__isnull=True, finished_at__isnull=True)
                | Q(state__isnull=False, finished_at__isnull=False),
                name="slackwater_task_finished_when_final",
            ),
            models.CheckConstraint(condition=Q(cap_ms__gt=0), name="slackwater_task_cap_positive"),
            models.CheckConstraint(condition=Q(total_attempts__gte=1), name="slackwater_task_attempts_positive"),
            models.CheckConstraint(
                condition=Q(delay_tolerance_ms__gte=0), name="slackwater_task_tolerance_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return self.name or str(self.id)


class LiveTask(models.Model):
    """The narrow row of a task that is not final: what deciding and running read and write."""

    task = models.OneToOneField(
        Task, on_delete=models.CASCADE, primary_key=True, related_name="live", db_constraint=False
    )
    tenant = LooseKey("slackwater_tenants.Tenant")
    line = LooseKey(Line)
    state = models.SmallIntegerField(choices=choices(TaskState))
    phase = models.GeneratedField(
        expression=Least("state", int(TaskState.QUEUED)),
        output_field=models.SmallIntegerField(),
        db_persist=True,
        help_text="The state, QUEUED and RUNNING in one. Indexes go by it, so that a start changes none of them.",
    )
    rank_group = models.IntegerField(default=0)
    rank = models.BigIntegerField()
    kind = models.SmallIntegerField(choices=Task.Kind.choices)
    handler = LooseKey("slackwater_resources.Handler", on_delete=models.PROTECT, null=True)
    priority = models.SmallIntegerField(default=0)
    fence = models.IntegerField(default=0, help_text="Rises with every claim.")
    attempts = models.SmallIntegerField(default=0, help_text="Attempts that began and ended.")
    total_attempts = models.SmallIntegerField()
    pending = models.IntegerField(default=0, help_text="Parents that are not final.")
    condition = models.SmallIntegerField(default=RunCondition.ALL_SUCCEEDED)
    has_children = models.BooleanField(default=False)
    alone = models.BooleanField(default=False, help_text="Never shares a batch.")
    batch = models.SmallIntegerField(default=0, help_text="How many were started with it.")
    cancel_requested = models.BooleanField(default=False)
    mutex_key = models.CharField(max_length=200, null=True)  # noqa: DJ001 - its partial index leaves out what has none
    mutex_limit = models.SmallIntegerField(default=1)
    mutex_fence = models.BigIntegerField(
        null=True, help_text="Number of its hold on the key: rises with every grant, whichever task gets it."
    )
    rate_key = models.CharField(max_length=150, null=True)  # noqa: DJ001 - most tasks have none
    parked = models.IntegerField(
        null=True, help_text="Why it is blocked: the rate limit it waits for, or -1: no node can run it."
    )
    tolerance_ms = models.BigIntegerField()
    on_late = models.SmallIntegerField(default=OnLate.RUN_FIRST)
    not_before = models.DateTimeField(null=True)
    latest_start = models.DateTimeField(null=True)
    promote_at = models.DateTimeField(null=True, help_text="When it becomes urgent; empty when it is, or never does.")
    expires_at = models.DateTimeField(null=True, help_text="Not started by then, it expires; empty once it started.")
    node = LooseKey("slackwater_resources.Node", on_delete=models.PROTECT, null=True)
    last_node = models.IntegerField(null=True, help_text="Where its last attempt failed, or its claim was taken back.")
    slot_milli = models.SmallIntegerField(default=1000, help_text="Thousandths of a slot its claim takes.")
    queued_at = models.DateTimeField(null=True)
    claim_expires_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    path_us = models.BigIntegerField(null=True, help_text="Of a graph: the longest way from its start to an end.")
    work_us = models.BigIntegerField(null=True, help_text="Of a graph: all the work that it brought.")
    progress = models.JSONField(null=True)

    _plain = models.Manager()
    objects = TenantManager()

    class Meta:
        base_manager_name = "_plain"
        indexes = [
            models.Index(
                fields=["line", "rank_group", "rank", "task"],
                name="slackwater_live_ready",
                condition=Q(phase=TaskState.READY),
            ),
            models.Index(fields=["node"], name="slackwater_live_in_flight", condition=Q(phase=TaskState.QUEUED)),
            models.Index(fields=["not_before"], name="slackwater_live_due", condition=Q(phase=TaskState.SCHEDULED)),
            models.Index(
                fields=["promote_at"],
                name="slackwater_live_promote",
                condition=Q(phase=TaskState.READY, promote_at__isnull=False),
            ),
            models.Index(
                fields=["latest_start"],
                name="slackwater_live_late",
                condition=Q(
                    on_late__in=[LateMark.GIVE_UP, LateMark.TELL],
                    phase__in=[TaskState.BLOCKED, TaskState.SCHEDULED, TaskState.READY],
                ),
            ),
            models.Index(fields=["expires_at"], name="slackwater_live_expires", condition=Q(expires_at__isnull=False)),
            models.Index(
                fields=["mutex_key", "phase"], name="slackwater_live_mutex", condition=Q(mutex_key__isnull=False)
            ),
            models.Index(
                fields=["parked", "line", "rank_group", "rank", "task"],
                name="slackwater_live_parked",
                condition=Q(parked__isnull=False, phase=TaskState.BLOCKED),
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=[int(s) for s in LIVE_STATES]), name="slackwater_live_state"),
            models.CheckConstraint(
                condition=~Q(state__in=[TaskState.QUEUED, TaskState.RUNNING]) | Q(node__isnull=False),
                name="slackwater_live_claimed_has_node",
            ),
            models.CheckConstraint(condition=Q(pending__gte=0), name="slackwater_live_pending_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.task_id}: {TaskState(self.state).name}"
