"""What comes back of schedules, webhooks and the platform, as in the OpenAPI document. Written by `make docs`."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

ScheduleKind: TypeAlias = Literal["once", "daily", "weekly", "monthly", "annually", "cron", "interval"]
MissedEnum: TypeAlias = Literal["skip", "one", "all", "window"]
OverlapEnum: TypeAlias = Literal["allow", "skip", "queue_one", "cancel_old"]
FireOutcome: TypeAlias = Literal["submitted", "missed", "skipped", "failed"]
HandlerOutKindEnum: TypeAlias = Literal["process", "thread", "coroutine"]
ChannelEnum: TypeAlias = Literal["webhook", "email", "task"]
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
DeliveryOutStateEnum: TypeAlias = Literal["pending", "delivered", "failed"]
Category: TypeAlias = Literal["urgent", "delayable", "periodic", "offpeak"]
UsageHintKindEnum: TypeAlias = Literal["handler", "script", "script_path"]
PausedByEnum: TypeAlias = Literal["organization", "platform"]
NodeState: TypeAlias = Literal["starting", "active", "draining"]
Scope: TypeAlias = Literal["submit", "read", "cancel", "manage", "operate"]
RoleEnum: TypeAlias = Literal["owner", "operator", "viewer"]
TaskState: TypeAlias = Literal[
    "blocked", "scheduled", "ready", "queued", "running", "succeeded", "failed", "cancelled", "expired", "skipped"
]
AttemptOutcome: TypeAlias = Literal[
    "succeeded",
    "failed",
    "retry",
    "cap_exceeded",
    "cancelled",
    "worker_lost",
    "resource_exceeded",
    "handed_back",
    "yielded",
    "preempted",
]
AlgorithmEnum: TypeAlias = Literal["Ed25519"]


class ScheduleSummary(TypedDict):
    """A schedule."""

    id: str
    name: str
    kind: ScheduleKind
    rule: dict[str, Any]
    time_zone: str
    start_at: str | None
    end_at: str | None
    jitter_s: int
    paused: bool
    missed: MissedEnum
    missed_after_s: int
    missed_limit: int
    missed_window_s: int
    overlap: OverlapEnum
    task: dict[str, Any]
    workflow: dict[str, Any] | None
    version: int
    next_firing_at: str | None
    created_at: str
    created_by: str | None
    updated_at: str
    updated_by: str | None


class ScheduleDetail(ScheduleSummary):
    """A schedule with its next firings."""

    next_firings: list[str]


class FiringOut(TypedDict):
    """One time a schedule fired for, or missed."""

    fire_at: str
    due_at: str
    fired_at: str
    late_by_s: float
    outcome: FireOutcome
    task_id: str | None
    workflow_id: str | None
    error: str | None
    backfill: bool
    version: int


class PreviewOut(TypedDict):
    """When it would fire."""

    next_firings: list[str]


class BackfillOut(TypedDict):
    """The tasks that a backfill submitted."""

    workflow_id: str | None
    task_ids: list[str]
    workflow_ids: list[str]


class HandlerOut(TypedDict):
    """A handler that your plan grants."""

    name: str
    description: str | None
    kind: HandlerOutKindEnum
    idempotent: bool
    checkpoints: bool
    paused: bool
    available: bool
    schema: Any
    tier: str
    tiers: list[str]
    max_execution_cap_s: int
    usual_run_s: float | None
    median_run_s: float | None
    long_run_s: float | None
    runs: int


class ScriptSummary(TypedDict):
    """A stored script."""

    sha256: str
    name: str
    size: int
    created_at: str


class ScriptDetail(ScriptSummary):
    """A stored script with its content."""

    content: str


class SecretOut(TypedDict):
    """A secret without its value."""

    name: str
    updated_at: str
    updated_by: str | None


class WebhookOut(TypedDict):
    """A webhook."""

    id: str
    channel: ChannelEnum
    url: str | None
    events: list[EventsEnum]
    tags: list[str]
    handlers: list[str]
    description: str | None
    include_result: bool
    enabled: bool
    disabled_reason: str | None
    failing_since: str | None
    created_at: str
    updated_at: str


class WebhookMade(WebhookOut):
    """A webhook with the secret that signs; it is shown this once."""

    secret: str | None


class DeliveryAttempt(TypedDict):
    """One attempt at a delivery."""

    at: str
    status: int | None
    error: str | None
    duration_s: float


class DeliveryOut(TypedDict):
    """One event on its way to one webhook."""

    id: str
    event: str
    task_id: str | None
    state: DeliveryOutStateEnum
    attempts: int
    created_at: str
    next_attempt_at: str | None
    delivered_at: str | None
    payload: dict[str, Any]
    log: list[DeliveryAttempt]


class UsageSum(TypedDict):
    """Resources that were used."""

    attempts: int
    succeeded: int
    run_s: float
    cpu_s: float
    price_micros: int


class OnTimeRow(TypedDict):
    """How many tasks of a line and handler began, and how many of these by their latest start."""

    tier: str
    category: Category
    handler: str
    started: int
    on_time: int
    rate: float


class UsageRow(UsageSum):
    """Resources used on a day, in a tier and a category."""

    day: str
    tier: str
    category: Category


class UsageOut(TypedDict):
    """Resources used from one day to another (UTC, both included)."""

    since: str
    until: str
    total: UsageSum
    on_time: list[OnTimeRow]
    items: list[UsageRow]
    next_cursor: str | None


class UsedPart(TypedDict):
    """The use that 95 of 100 runs did not exceed; null where it is not measured."""

    cpu_milli: int
    memory_mb: int | None
    disk_mb: int | None


class UsageHint(TypedDict):
    """A smaller tier that would have held what was used."""

    kind: UsageHintKindEnum
    name: str
    tier: str
    suggested_tier: str
    runs: int
    runs_over: int
    p95: UsedPart
    updated_at: str


class Used(TypedDict):
    """The current use of a plan."""

    unfinished: int
    urgent_unfinished: int
    in_flight: int
    submissions_available_now: int


class Rate(TypedDict):
    """The limit of submissions, and where you stand."""

    per_hour: int
    burst: int
    available_now: int
    next_at: str | None
    full_at: str | None


class Prices(TypedDict):
    """Prices of work, in millionths of the unit that is charged."""

    attempt_micros: int
    tier_hour_micros: dict[str, int]
    category_permille: dict[str, int]


class LimitsOut(TypedDict):
    """Your plan's numbers, and what is used of them."""

    plan: str
    limits: dict[str, Any]
    used: Used
    rate: Rate
    prices: Prices


class QueueOut(TypedDict):
    """One of your lines: the tasks of one category and tier."""

    category: Category
    tier: str
    paused: bool
    paused_by: PausedByEnum | None
    ready: int
    ready_is_minimum: bool
    queued: int
    running: int
    earliest_latest_start: str | None


class TierOut(TypedDict):
    """A tier that your plan lets you name."""

    cpu_milli: int
    memory_mb: int
    disk_mb: int
    iops: int
    bandwidth_kbps: int
    ports: int
    name: str
    own: bool
    default_execution_cap_s: int
    price_micros_per_hour: int


class Resources(TypedDict):
    """A vector of resources."""

    cpu_milli: int
    memory_mb: int
    disk_mb: int
    iops: int
    bandwidth_kbps: int
    ports: int


class NodeOut(TypedDict):
    """A node of your cell, with your own tasks on it."""

    id: str
    name: str
    state: NodeState
    capacity: Resources
    slots: dict[str, int]
    labels: list[str]
    sandbox: str
    enforced: list[str]
    started_at: str
    heartbeat_at: str
    handlers: list[str]
    own_queued: int
    own_running: int


class OrganizationOut(TypedDict):
    """Your organisation, and the rights of the key you use."""

    slug: str
    name: str
    plan: str
    cell: str
    paused: bool
    paused_by: PausedByEnum | None
    created_at: str
    scopes: list[Scope]
    member_id: str | None
    role: RoleEnum | None


class Promised(TypedDict):
    """What was promised when the task was submitted."""

    submitted_at: str
    latest_start: str | None
    attempt_micros: int
    hour_micros: int
    terms: int
    order: str
    share: str


class Before(TypedDict):
    """How many tasks started while it waited, by the rule that let them: of those known then."""

    order: int
    category: int
    share: int


class Kept(TypedDict):
    """What became of it."""

    started_at: str | None
    late_by_s: float
    held_s: float
    cpu_milli: int
    memory_mb: int
    disk_mb: int
    cpu_s: float | None
    peak_memory_mb: int | None
    peak_disk_mb: int | None
    before: Before | None


class Seal(TypedDict):
    """A signature of the chain up to here."""

    tenant: str
    key_id: str
    signature: str


class ReceiptOut(TypedDict):
    """A receipt: of an attempt, or of a task that ended without one."""

    number: int
    task_id: str
    attempt: int | None
    state: TaskState | None
    outcome: AttemptOutcome | None
    ended_at: str
    tier: str
    category: Category
    promised: Promised
    kept: Kept
    charged_micros: int
    previous: str
    hash: str
    seal: Seal | None


class ReceiptKeyOut(TypedDict):
    """A public key that seals receipts, or has."""

    id: str
    algorithm: AlgorithmEnum
    public_key: str
    created_at: str
