"""The past of a task: attempts, logs, events, dead letters; and its edges."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from scheduler_ext.core.states import EdgeOutcome, Outcome, TaskState
from slackwater_conf.columns import ArrayField
from slackwater_tasks.models.base import LedgerRow, LooseKey, choices
from slackwater_tasks.models.task import Task


class Attempt(LedgerRow):
    """One run of a task that began and ended. The fence makes it unique: no run is recorded twice."""

    task = LooseKey(Task, related_name="attempts")
    number = models.SmallIntegerField()
    fence = models.IntegerField()
    node = LooseKey("slackwater_resources.Node", on_delete=models.PROTECT, null=True)
    worker = models.CharField(max_length=120, blank=True, help_text="Slot that ran it.")
    queued_at = models.DateTimeField(null=True)
    running_at = models.DateTimeField(
        null=True, help_text="Since when its state was running; it started after those before it in its batch."
    )
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    outcome = models.SmallIntegerField(choices=choices(Outcome))
    error = models.TextField(blank=True, default="")
    exit_code = models.IntegerField(null=True)
    cpu_ms = models.IntegerField(null=True)
    peak_memory_mb = models.IntegerField(null=True)
    peak_disk_mb = models.IntegerField(null=True)

    class Meta(LedgerRow.Meta):
        ordering = ["task", "fence"]
        constraints = [models.UniqueConstraint(fields=["task", "fence"], name="slackwater_attempt_once")]

    def __str__(self) -> str:
        return f"{self.task_id} #{self.number}"


class AttemptLog(LedgerRow):
    """Some lines that an attempt printed and logged, in order; of releases before, all of one stream."""

    task = LooseKey(Task, related_name="logs")
    fence = models.IntegerField()
    attempt = models.SmallIntegerField(null=True)
    number = models.IntegerField(default=0, db_default=0, help_text="Rises from row to row of an attempt.")
    stream = models.CharField(max_length=8, help_text="Of all its lines; empty: ``marks`` has each line's.")
    text = models.TextField()
    marks = models.JSONField(null=True, help_text="Of each line: milliseconds, stream, level, line breaks in it.")
    truncated = models.BooleanField(default=False)

    class Meta(LedgerRow.Meta):
        ordering = ["task", "fence", "number", "stream"]
        constraints = [
            models.UniqueConstraint(fields=["task", "fence", "number", "stream"], name="slackwater_attempt_log_row")
        ]


class Chunk(LedgerRow):
    """A piece of a task's result stream."""

    pk = models.CompositePrimaryKey("task_id", "fence", "number")
    task_id = models.UUIDField()
    fence = models.IntegerField()
    number = models.IntegerField(help_text="Rises from chunk to chunk of an attempt.")
    attempt = models.SmallIntegerField()
    at = models.DateTimeField(db_default=Now())
    value = models.JSONField()


class TaskEvent(LedgerRow):
    """A change of state, or an edit, that the attempt rows do not tell."""

    task = LooseKey(Task, related_name="events")
    at = models.DateTimeField(db_default=Now())
    from_state = models.PositiveSmallIntegerField(choices=choices(TaskState), null=True)
    to_state = models.PositiveSmallIntegerField(choices=choices(TaskState))
    fence = models.IntegerField(default=0)
    actor = models.CharField(max_length=120, blank=True)
    reason = models.CharField(max_length=300)
    detail = models.JSONField(null=True)

    class Meta(LedgerRow.Meta):
        ordering = ["id"]
        indexes = [models.Index(fields=["task", "id"], name="slackwater_event_task")]

    def __str__(self) -> str:
        return f"{self.task_id}: {self.reason}"


class DeadLetter(LedgerRow):
    """A task whose attempts are used up, until it is retried or removed."""

    task = models.OneToOneField(
        Task, on_delete=models.CASCADE, primary_key=True, related_name="dead_letter", db_constraint=False
    )
    at = models.DateTimeField(db_default=Now())
    outcome = models.PositiveSmallIntegerField(choices=choices(Outcome), null=True)
    reason = models.CharField(max_length=300)
    retries = models.PositiveSmallIntegerField(default=0, help_text="Times it was retried from here by policy.")
    next_retry_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta(LedgerRow.Meta):
        ordering = ["-at"]
        indexes = [models.Index(fields=["tenant", "-at"], name="slackwater_dead_letter_tenant")]

    def __str__(self) -> str:
        return str(self.task_id)


class MapNode(LedgerRow):
    """Beside a task that stands for one task for each element of a parent's result. Others have no such row.

    Its live row waits for one thing more than its parents, so that no end of theirs makes it ready: upkeep ends it.
    """

    task = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="+", db_constraint=False)
    given = models.JSONField(help_text="Over what it maps, and into which arguments.")
    elements = ArrayField(models.UUIDField(), null=True, help_text="Their tasks, in order; empty until they are made.")
    open = models.BooleanField(
        default=True, db_default=True, help_text="It has not ended, or upkeep does not know yet."
    )
    retry_at = models.DateTimeField(null=True, help_text="A limit of the plan was met: its elements are made later.")

    class Meta(LedgerRow.Meta):
        indexes = [models.Index(fields=["task"], name="slackwater_mapnode_open", condition=Q(open=True))]


class Dependency(models.Model):
    """An edge: ``child`` needs ``parent``."""

    pk = models.CompositePrimaryKey("parent", "child")
    parent = LooseKey(Task, related_name="children_edges")
    child = LooseKey(Task, related_name="parent_edges")
    outcome = models.PositiveSmallIntegerField(choices=choices(EdgeOutcome), default=EdgeOutcome.PENDING)

    class Meta:
        verbose_name_plural = "dependencies"
        indexes = [models.Index(fields=["child"], name="slackwater_dependency_child")]
        constraints = [
            models.CheckConstraint(condition=~Q(parent=models.F("child")), name="slackwater_dependency_not_itself")
        ]
