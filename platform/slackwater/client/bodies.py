"""What is sent, as in the OpenAPI document. Written by `make docs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict

Category: TypeAlias = Literal["urgent", "delayable", "periodic", "offpeak"]
OnLate: TypeAlias = Literal["run_first", "give_up"]
MutexScopeEnum: TypeAlias = Literal["both", "dependent", "independent"]
RunCondition: TypeAlias = Literal["all_succeeded", "all_done", "any_failed", "none_failed"]
ScheduleKind: TypeAlias = Literal["once", "daily", "weekly", "monthly", "annually", "cron", "interval"]
MissedEnum: TypeAlias = Literal["skip", "one", "all", "window"]
OverlapEnum: TypeAlias = Literal["allow", "skip", "queue_one", "cancel_old"]
EventsEnum: TypeAlias = Literal[
    "*",
    "task.*",
    "workflow.*",
    "schedule.*",
    "quota.*",
    "key.*",
    "task.started",
    "task.succeeded",
    "task.failed",
    "task.retrying",
    "task.cap_exceeded",
    "task.resource_exceeded",
    "task.impossible",
    "task.late",
    "task.expired",
    "task.dead_lettered",
    "task.cancelled",
    "task.skipped",
    "workflow.succeeded",
    "workflow.failed",
    "schedule.failed",
    "quota.warning",
    "quota.exhausted",
    "key.expiring",
]
ChannelEnum: TypeAlias = Literal["webhook", "email", "task"]


class RetryIn(TypedDict, total=False):
    """Back-off between attempts; a value that is not given is the platform's."""

    base_s: float
    factor: float
    max_s: float
    jitter: float


class PatchedTaskChange(TypedDict, total=False):
    """The fields of a waiting task that can be changed."""

    name: str | None
    args: Sequence[Any]
    kwargs: dict[str, Any]
    tier: str
    category: Category
    start_at: str | datetime | None
    start_in_s: float | None
    expires_at: str | datetime | None
    expires_in_s: float | None
    require_labels: Sequence[str]
    prefer_labels: Sequence[str]
    priority: int
    delay_tolerance_s: float | None
    on_late: OnLate
    execution_cap_s: float | None
    total_attempts: int
    retry: RetryIn | None
    mutex_key: str | None
    mutex_limit: int
    mutex_scope: MutexScopeEnum
    rate_key: str | None
    tags: Sequence[str]
    metadata: dict[str, str]


class ResourcesIn(TypedDict, total=False):
    """Amounts in place of those of the tier."""

    cpu_milli: int
    memory_mb: int
    disk_mb: int
    iops: int
    bandwidth_kbps: int
    ports: int


class MapIn(TypedDict, total=False):
    """Over what a task is mapped: one is made for each element of a list."""

    over: str
    path: str | None
    item: str | None
    index: str | None


class TaskIn(PatchedTaskChange, total=False):
    """A task to run: exactly one of `handler`, `script` and `script_path`."""

    handler: str | None
    script: str | None
    script_path: str | None
    resources: ResourcesIn
    checkpoints: bool
    depends_on: Sequence[str]
    map: MapIn | None
    condition: RunCondition
    idempotency_key: str | None
    webhook: str | None


class ScheduledTask(TypedDict, total=False):
    """The task that is submitted each time."""

    name: str | None
    handler: str | None
    script: str | None
    script_path: str | None
    args: Sequence[Any]
    kwargs: dict[str, Any]
    tier: str
    resources: ResourcesIn
    category: Category
    expires_in_s: float | None
    require_labels: Sequence[str]
    prefer_labels: Sequence[str]
    priority: int
    delay_tolerance_s: float | None
    on_late: OnLate
    execution_cap_s: float | None
    total_attempts: int
    retry: RetryIn | None
    mutex_key: str | None
    mutex_limit: int
    mutex_scope: MutexScopeEnum
    rate_key: str | None
    checkpoints: bool
    tags: Sequence[str]
    metadata: dict[str, str]
    webhook: str | None


class ScheduledTaskAmong(ScheduledTask, total=False):
    """A task of the workflow that is submitted each time."""

    depends_on: Sequence[str]
    map: MapIn | None
    condition: RunCondition


class ScheduledWorkflow(TypedDict, total=False):
    """The workflow that is submitted each time."""

    name: str | None
    tags: Sequence[str]
    metadata: dict[str, Any] | None
    max_running: int | None
    share_weight: int | None
    tasks: Sequence[ScheduledTaskAmong]


class ScheduledTemplate(TypedDict, total=False):
    """The template of a workflow that is submitted each time, and its use."""

    version: int | None
    parameters: dict[str, Any] | None
    name: str | None
    tags: Sequence[str] | None
    metadata: dict[str, Any] | None
    template: str


class PatchedScheduleChange(TypedDict, total=False):
    """The fields of a schedule that can be changed."""

    name: str
    kind: ScheduleKind
    rule: dict[str, Any]
    time_zone: str
    start_at: str | datetime | None
    end_at: str | datetime | None
    jitter_s: int
    paused: bool
    missed: MissedEnum
    missed_after_s: int
    missed_limit: int
    missed_window_s: int
    overlap: OverlapEnum
    task: ScheduledTask
    workflow: ScheduledWorkflow | ScheduledTemplate
    version: int | None


class ScheduleIn(TypedDict, total=False):
    """A task or a workflow that is to run again and again."""

    name: str
    kind: ScheduleKind
    rule: dict[str, Any]
    time_zone: str
    start_at: str | datetime | None
    end_at: str | datetime | None
    jitter_s: int
    paused: bool
    missed: MissedEnum
    missed_after_s: int
    missed_limit: int
    missed_window_s: int
    overlap: OverlapEnum
    task: ScheduledTask
    workflow: ScheduledWorkflow | ScheduledTemplate


class PreviewIn(TypedDict, total=False):
    """The times of a schedule."""

    kind: ScheduleKind
    rule: dict[str, Any]
    time_zone: str
    start_at: str | datetime | None
    end_at: str | datetime | None
    count: int


class PatchedWebhookChange(TypedDict, total=False):
    """The fields of a webhook that can be changed."""

    url: str
    events: Sequence[EventsEnum]
    tags: Sequence[str]
    handlers: Sequence[str]
    description: str | None
    include_result: bool
    enabled: bool


class WebhookIn(PatchedWebhookChange, total=False):
    """A webhook to make."""

    channel: ChannelEnum


class DeadLetterFilter(TypedDict, total=False):
    """What narrows the list, and its order."""

    at_after: str | datetime
    at_before: str | datetime
    handler: str | Sequence[str]
    handler_pattern: str | Sequence[str]
    name: str | Sequence[str]
    name_pattern: str | Sequence[str]
    outcome: str | Sequence[str]
    sort: str | Sequence[str]
    tag: str | Sequence[str]


class ReceiptFilter(TypedDict, total=False):
    """What narrows the list, and its order."""

    ended_after: str | datetime
    ended_before: str | datetime
    task_id: str | Sequence[str]


class ScheduleFilter(TypedDict, total=False):
    """What narrows the list, and its order."""

    handler: str | Sequence[str]
    kind: str | Sequence[str]
    name: str | Sequence[str]
    name_pattern: str | Sequence[str]
    paused: str | Sequence[str]
    sort: str | Sequence[str]


class TaskFilter(TypedDict, total=False):
    """What narrows the list, and its order."""

    admitted_by: int
    category: str | Sequence[str]
    error: str | Sequence[str]
    handler: str | Sequence[str]
    handler_pattern: str | Sequence[str]
    id: str | Sequence[str]
    metadata: Mapping[str, str]
    name: str | Sequence[str]
    name_pattern: str | Sequence[str]
    node: str | Sequence[str]
    schedule: str | Sequence[str]
    scheduling_type: str | Sequence[str]
    sort: str | Sequence[str]
    state: str | Sequence[str]
    status: str | Sequence[str]
    submitted_after: str | datetime
    submitted_before: str | datetime
    submitted_by: str | Sequence[str]
    tag: str | Sequence[str]
    tier: str | Sequence[str]
    within_ms: int
    workflow_id: str | Sequence[str]


class DeliveryFilter(TypedDict, total=False):
    """What narrows the list, and its order."""

    created_after: str | datetime
    created_before: str | datetime
    event: str | Sequence[str]
    sort: str | Sequence[str]
    state: str | Sequence[str]
    task_id: str | Sequence[str]


class WorkflowFilter(TypedDict, total=False):
    """What narrows the list, and its order."""

    metadata: Mapping[str, str]
    name: str | Sequence[str]
    name_pattern: str | Sequence[str]
    sort: str | Sequence[str]
    status: str | Sequence[str]
    submitted_after: str | datetime
    submitted_before: str | datetime
    tag: str | Sequence[str]
