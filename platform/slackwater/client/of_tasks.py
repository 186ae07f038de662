"""What comes back of tasks and workflows, as in the OpenAPI document. Written by `make docs`."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

Category: TypeAlias = Literal["urgent", "delayable", "periodic", "offpeak"]
TaskStatus: TypeAlias = Literal["waiting", "in_progress", "done", "failed"]
TaskState: TypeAlias = Literal[
    "blocked", "scheduled", "ready", "queued", "running", "succeeded", "failed", "cancelled", "expired", "skipped"
]
TaskKind: TypeAlias = Literal["handler", "script"]
OnLate: TypeAlias = Literal["run_first", "give_up"]
MutexScopeEnum: TypeAlias = Literal["both", "dependent", "independent"]
RunCondition: TypeAlias = Literal["all_succeeded", "all_done", "any_failed", "none_failed"]
BlockerOutKindEnum: TypeAlias = Literal[
    "dependency",
    "start_time",
    "back_off",
    "position",
    "share",
    "tenant_in_flight",
    "hard_share",
    "mutex",
    "rate",
    "peak",
    "paused",
    "no_slot",
    "no_resource",
    "reserved",
    "yielded",
    "never_fits",
    "no_labels",
    "no_node",
    "dispatcher",
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
StreamEnum: TypeAlias = Literal["stdout", "stderr", "log", "platform"]
LevelEnum: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]


class Submitted(TypedDict):
    """The ids of the stored tasks."""

    id: str
    task_ids: list[str]
    created: bool


class WorkflowSubmitted(TypedDict):
    """The ids of a stored workflow."""

    id: str
    task_ids: list[str]
    created: bool


class TaskSummary(TypedDict):
    """A task as lists show it."""

    name: str | None
    handler: str | None
    script: str | None
    script_path: str | None
    tier: str
    category: Category
    start_at: str | None
    priority: int
    tags: list[str]
    metadata: dict[str, str]
    id: str
    workflow_id: str | None
    status: TaskStatus
    state: TaskState
    kind: TaskKind
    submitted_at: str
    not_before: str | None
    latest_start: str | None
    started_at: str | None
    finished_at: str | None
    attempts: int
    cancel_requested: bool
    progress: Any
    reason: str | None


class RetryIn(TypedDict):
    """Back-off between attempts; a value that is not given is the platform's."""

    base_s: float
    factor: float
    max_s: float
    jitter: float


class MapIn(TypedDict):
    """Over what a task is mapped: one is made for each element of a list."""

    over: str
    path: str | None
    item: str | None
    index: str | None


class CheckpointOut(TypedDict):
    """The last checkpoint of a task, from which it would continue."""

    number: int
    size: int
    saved_at: str
    attempt: int | None


class TaskDetail(TaskSummary):
    """A task with all that is known of it."""

    args: list[Any]
    kwargs: dict[str, Any]
    expires_at: str | None
    require_labels: list[str]
    prefer_labels: list[str]
    delay_tolerance_s: float
    on_late: OnLate
    execution_cap_s: float
    total_attempts: int
    retry: RetryIn | None
    mutex_key: str | None
    mutex_limit: int
    mutex_scope: MutexScopeEnum
    rate_key: str | None
    checkpoints: bool
    depends_on: list[str]
    map: MapIn | None
    condition: RunCondition
    webhook: str | None
    waiting_for: int
    late_by_s: float | None
    checkpoint: CheckpointOut | None
    submitted_by: str | None
    copied_from: str | None
    admitted_by: int | None
    scheduling_type: str | None
    node: str | None
    result: Any
    error: str | None


class TaskStatusOut(TypedDict):
    """Where a task stands."""

    id: str
    status: TaskStatus
    state: TaskState
    cancel_requested: bool
    finished_at: str | None


class BlockerOut(TypedDict):
    """One thing that keeps a task from starting."""

    kind: BlockerOutKindEnum
    detail: str
    clears: str
    at: str | None
    task_ids: list[str]
    ahead: int | None


class PredictedStart(TypedDict):
    """When it will likely start: the present state, run forward in the simulator with the live policies."""

    earliest: str
    likely: str
    latest: str


class Explanation(TypedDict):
    """Why a task waits."""

    task_id: str
    state: TaskState
    waiting: bool
    summary: str
    blockers: list[BlockerOut]
    place: list[str]
    latest_start: str | None
    predicted_start: PredictedStart | None
    not_predicted: str | None
    hit_rate: float | None
    forecasts_checked: int
    as_of: str


class PriceOut(TypedDict):
    """A price, in millionths of the unit that is charged."""

    expected_micros: int | None
    most_micros: int


class QuoteItem(TypedDict):
    """Tasks of a submission that are alike, with all that was left open filled in."""

    tasks: int
    handler: str | None
    script: str | None
    category: Category
    tier: str
    delay_tolerance_s: float
    execution_cap_s: float
    attempts: int
    attempt_micros: int
    hour_micros: int
    expected_run_s: float | None
    price: PriceOut
    predicted_start: PredictedStart | None


class Patience(TypedDict):
    """What the same would cost with another category or tolerance, and when its first task would start."""

    category: Category
    delay_tolerance_s: float
    price: PriceOut
    predicted_start: PredictedStart | None


class LimitsLeft(TypedDict):
    """What your plan would still allow after the submission."""

    submissions_now: int
    waiting: int
    in_flight: int


class Quote(TypedDict):
    """What a submission would do. Nothing of it was stored."""

    created: bool
    tasks: int
    price: PriceOut
    items: list[QuoteItem]
    predicted_start: PredictedStart | None
    patience: list[Patience]
    limits_left: LimitsLeft
    as_of: str


HistoryEntry = TypedDict(
    "HistoryEntry",
    {
        "at": "str",
        "to": "TaskState",
        "reason": "str",
        "actor": "str | None",
        "node": "str | None",
        "attempt": "int | None",
        "detail": "Any",
        "from": "TaskState | None",
    },
)


class AttemptOut(TypedDict):
    """One run that began and ended."""

    number: int
    fence: int
    outcome: AttemptOutcome
    node: str | None
    worker: str | None
    queued_at: str | None
    started_at: str
    finished_at: str
    duration_s: float
    error: str | None
    exit_code: int | None
    cpu_s: float | None
    peak_memory_mb: int | None
    peak_disk_mb: int | None


class LogLine(TypedDict):
    """A line that a task printed or logged."""

    place: str
    task_id: str
    at: str | None
    attempt: int | None
    fence: int
    stream: StreamEnum
    level: LevelEnum
    text: str


class ChunkOut(TypedDict):
    """A piece of a task's result stream."""

    place: str
    at: str
    attempt: int
    fence: int
    value: Any


class ArtifactOut(TypedDict):
    """A file that a task left behind."""

    name: str
    content_type: str
    size: int
    sha256: str
    saved_at: str


class CriticalPathOut(TypedDict):
    """The way that takes longest."""

    task_ids: list[str]
    expected_s: float | None


class TaskGraphOut(TypedDict):
    """What a task waits for and what waits for it, directly or not."""

    task_id: str
    workflow_id: str | None
    depth: int
    ancestors: list[str]
    descendants: list[str]
    topological_order: list[str]
    critical_path: CriticalPathOut


class BulkCancelled(TypedDict):
    """The tasks that were cancelled."""

    matched: int
    matched_is_minimum: bool
    dry_run: bool
    more: bool
    next: str | None
    task_ids: list[str]
    asked_task_ids: list[str]


class BulkSkipped(TypedDict):
    """A task that cannot run again as things are."""

    task_id: str
    code: str
    detail: str


class BulkRetried(TypedDict):
    """The tasks that run again."""

    matched: int
    matched_is_minimum: bool
    dry_run: bool
    more: bool
    next: str | None
    task_ids: list[str]
    skipped: list[BulkSkipped]


class WorkflowSummary(TypedDict):
    """A workflow as lists show it."""

    id: str
    name: str | None
    task_count: int
    edge_count: int
    max_running: int | None
    share_weight: int | None
    submitted_at: str
    finished_at: str | None
    status: TaskStatus
    tags: list[str]
    metadata: dict[str, Any]


class WorkflowCounts(TypedDict):
    """WorkflowCounts"""

    blocked: int
    scheduled: int
    ready: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int
    skipped: int


class WorkflowDetail(WorkflowSummary):
    """A workflow with its tasks counted by state."""

    counts: WorkflowCounts


class WorkflowCancelled(TypedDict):
    """How many tasks a cancellation reached."""

    cancelled: int
    asked: int


class WorkflowRetried(TypedDict):
    """The tasks that run again."""

    task_ids: list[str]


class DeadLetterOut(TypedDict):
    """A task whose attempts are used up."""

    task_id: str
    name: str | None
    handler: str | None
    script: str | None
    at: str
    outcome: AttemptOutcome | None
    reason: str
    retries: int
    next_retry_at: str | None
