"""The values that pass through the ports: started and ended attempts, nodes, handlers, effects and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from scheduler_ext.core.states import Outcome, Repeats, TaskState
from scheduler_ext.core.types import WorkKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Leadership of a cell as the store sees it."""

    epoch: int
    leads: bool
    empty: bool = False
    """Whether no task is in the ledger that has not ended."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A hold on a mutex key."""

    key: str
    limit: int
    """How many may hold it at once."""
    task_id: str
    fence: int
    """Rises with every grant."""


@dataclass(slots=True)
class Started:
    """A task that a worker may begin, with all it needs to run.

    Like :class:`Finished` never changed, but not frozen: one of each is made for every task, and a frozen one takes
    three times as long.
    """

    task_id: str
    fence: int
    tenant_id: int
    handler: str
    """Empty for a script."""
    script_sha256: str
    script_path: str
    args: list[Any]
    kwargs: dict[str, Any]
    cap_ms: int
    attempt: int
    """1 for the first run."""
    name: str
    workflow_id: str | None = None
    running_at: float = 0.0
    """Since when it is running, by the ledger; its own code begins after those before it in its batch."""
    before: str | None = None
    """The only task that waits for it, and only for it: its id and fence. What begins ahead of it may go on with that."""
    earlier: int = 0
    """The attempts it had used when it was last run again. They are not taken from those it has since."""

    @property
    def retries(self) -> int:
        """How many attempts went before this one, since it was submitted or last run again."""
        return self.attempt - 1 - self.earlier

    def next_claim(self) -> tuple[str, int] | None:
        """Its only dependant, with the fence of its next claim; ``None``: there is none, or more."""
        if self.before is None:
            return None
        task_id, _, fence = self.before.partition(" ")
        return task_id, int(fence) + 1

    def begun(self) -> Change:
        """What is told of its beginning."""
        return self.task_id, int(TaskState.RUNNING), self.tenant_id, self.workflow_id, None, None, self.running_at


class Line(NamedTuple):
    """A line of output that a task has written."""

    at: float
    """Seconds since the Unix epoch."""
    stream: str
    level: str
    text: str
    """The text; a logged line may hold line breaks."""


class Written(NamedTuple):
    """Lines of one attempt, in order: a row of the ledger."""

    task: Started
    number: int
    """Rises from row to row of an attempt."""
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptWork:
    """What an agent needs to run a script."""

    content: bytes | None
    """The stored file; ``None`` when it lies in the tenant's mounted folder."""
    folder: str
    """The tenant's mounted folder, empty when it has none."""
    trusted: bool
    """Whether it may run without a sandbox."""
    vector: tuple[int, ...]
    """Its tier, in the order of ``core.resources.DIMENSIONS``."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The tenant's secrets, by name."""
    network: bool = False
    """Whether it may reach the network."""
    checkpoints: bool = False
    """Whether it saves checkpoints, and yields when asked to."""
    max_checkpoint_bytes: int = 0
    used_ms: int = 0
    """The run time of its earlier turns; it counts against its cap."""
    mutex_fence: int | None = None
    """Number of its hold on its mutex key."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """W3C headers of the trace it belongs to."""


NEVER_AGAIN = -1.0
SUCCEEDED: Final = Outcome.SUCCEEDED
"""Looked up once: before Python 3.12 that costs more than all else that is asked of each task here."""


@dataclass(slots=True)
class Finished:
    """How one started attempt ended, as its runner saw it. Times are seconds since the Unix epoch."""

    task_id: str
    fence: int
    outcome: Outcome
    started_at: float
    finished_at: float
    result: str | None = None
    """JSON."""
    error: str | None = None
    """The message and, for a handler, its traceback."""
    exit_code: int | None = None
    retry_in_s: float | None = None
    """The delay the code asked for before the next run; ``NEVER_AGAIN``: it is not to be run again."""
    cpu_ms: int | None = None
    peak_memory_mb: int | None = None
    worker: str = ""
    peak_disk_mb: int | None = None

    def is_plain(self) -> bool:
        """Whether it is a handler's success, about which there is nothing more to say than its result."""
        return self.outcome is SUCCEEDED and self.exit_code is None and self.cpu_ms is None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """What a worker offers when it registers."""

    name: str
    hostname: str
    incarnation: str
    cell: str
    capacity: tuple[int, ...]
    slots: Mapping[WorkKind, int]
    labels: tuple[str, ...]
    sandbox: str
    enforced: tuple[str, ...] = ()
    """The limits of a tier that this node enforces on a script."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a node is told of a task it runs."""

    task_id: str
    fence: int
    outcome: Outcome | None
    """What the task is asked for: to end as cancelled, to yield, to make room. ``None``: nothing."""
    used_ms: int
    """The run time of its earlier turns; it counts against its cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A Celery task offered to tenants."""

    name: str
    task: str
    """Name under which Celery knows it."""
    kind: WorkKind = WorkKind.PROCESS
    idempotent: bool = False
    """May be run twice without harm: only such a task is pre-empted."""
    description: str = ""
    checkpoints: bool = False
    """Saves checkpoints, and yields when asked to (see ``scheduler_ext.task.checkpoints``).

    It runs alone in its child.
    """
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of its arguments (see ``scheduler_ext.task.signature``); ``None``: any are accepted."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Default fields of its tasks; a submission overrides them."""
    repeats: Repeats = Repeats.ALWAYS
    rate: tuple[int, int] | None = None
    """The most starts in so many seconds, over all tenants."""


Change = tuple[str, int, int, str | None, int | None, Mapping[str, str] | None, float]
"""A change of state that was accepted: task id, state, tenant id, workflow id; of an attempt that did not succeed its
outcome; of what is near its latest start, late or expired the ``reason``; when, as the ledger has it."""
Changes = list[Change]


@dataclass(slots=True)
class Effect:
    """What ``once`` passes to its body."""

    key: str
    first: bool
    """True when the effect has not happened yet: the body makes it happen."""
    result: Any = None
    """Any JSON value. Whoever makes the effect happen sets it; everybody later reads it."""
    connection: Any = None
    """For an effect in the platform's database: the open psycopg connection, inside the key's transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The ledger's answer to a claim of a key for an effect outside the database."""

    won: bool
    done: bool = False
    result: Any = None
    task_id: str = ""
    """The attempt that holds it."""
    fence: int = 0
    alive: bool = False
    """Whether that attempt still runs."""


DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An artifact to save."""

    name: str
    content: bytes
    content_type: str = DEFAULT_CONTENT_TYPE


class Format(IntEnum):
    """How the content of a checkpoint is written."""

    JSON = 1
    BYTES = 2
    FOLDER = 3
    """The files of a script's ``CHECKPOINT_DIR``; see :mod:`scheduler_ext.sandbox.keeper.checkpoint_folder`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint as it was saved, its checksum verified."""

    number: int
    format: Format
    content: bytes
