"""What the engine needs from outside. Each adapter stands in ``apps``; ``slackwater.wiring`` joins them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.types import Decision, Reason, Snapshot, WorkKind
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.task.backend import TaskAid
from scheduler_ext.task.handlers import Export


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Leadership of a cell as the store sees it."""

    epoch: int
    leads: bool


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
    """A task a worker has been allowed to begin, with all it needs to run.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptWork:
    """What an agent needs to run a script."""

    content: bytes | None
    """The stored file; ``None`` when it lies in the tenant's mounted folder."""
    folder: str
    """The tenant's mounted folder, empty when it has none."""
    trusted: bool
    """May run without a sandbox."""
    vector: tuple[int, ...]
    """Its tier, in the order of ``core.resources.DIMENSIONS``."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The tenant's secrets, by name."""
    network: bool = False
    """May reach the network."""
    checkpoints: bool = False
    """It saves checkpoints, and yields when it is asked to."""
    max_checkpoint_bytes: int = 0
    used_ms: int = 0
    """Run time of its turns before this one; counts against its cap."""
    mutex_fence: int | None = None
    """Number of its hold on its mutex key."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """W3C headers of the trace it belongs to."""


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
    """Message and, for a handler, its traceback."""
    exit_code: int | None = None
    retry_in_s: float | None = None
    """Set when the code asked for a delay of its own."""
    cpu_ms: int | None = None
    peak_memory_mb: int | None = None
    worker: str = ""
    peak_disk_mb: int | None = None


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
    """What of its tier a script is held to there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a node is to know of a task that runs on it."""

    task_id: str
    fence: int
    outcome: Outcome | None
    """What it is asked for: to end as cancelled, to yield, to make room. ``None``: nothing."""
    used_ms: int
    """Run time of its turns before this one; counts against its cap."""


class RoundStore(Protocol):
    """The ledger as the dispatcher uses it."""

    def lead(self, holder: str) -> Lead:
        """Take or renew leadership of the cell by the database's clock."""
        ...

    def resign(self, holder: str) -> None:
        """Give leadership up at once."""
        ...

    def wake(self, limit: int) -> int:
        """Make scheduled tasks whose time has come ready; returns how many."""
        ...

    def promote(self, limit: int) -> int:
        """Move delayable tasks near their latest start to their tenant's urgent line; returns how many."""
        ...

    def snapshot(self, *, ends: bool = False) -> Snapshot:
        """The frozen view of this moment, with a bounded number of nominated tasks.

        ``ends``: with the moments at which what runs is expected to end, which only keeping room needs.
        """
        ...

    def share(self) -> SharePolicy:
        """The share policy that is chosen for the cell now."""
        ...

    def look(self, *, decided: int, more: bool) -> bool:
        """Nominate more or fewer tasks next time, by what came of the last snapshot; True when it will be more."""
        ...

    def claim(self, epoch: int, decisions: Sequence[Decision]) -> list[Decision]:
        """Commit claims by compare-and-set under the leader's epoch; returns those that were won."""
        ...

    def park(self, task_ids: Sequence[str], reason: Reason = Reason.MUTEX) -> int:
        """Take tasks out of the ready lines until their mutex key is free, or their rate allows them."""
        ...

    def locks(self) -> list[Lock]:
        """Who holds which mutex key now."""
        ...

    def return_queued(self) -> int:
        """Make everything queued ready again (Redis was emptied); returns how many."""
        ...

    def next_due_s(self) -> float | None:
        """Seconds until the next scheduled task is due."""
        ...


Change = tuple[str, int, int, str | None] | tuple[str, int, int, str | None, int]
"""A change of state that was accepted: task id, state, tenant id, workflow id; of an attempt that did not succeed its
outcome too."""
Changes = list[Change]


class WorkStore(Protocol):
    """The ledger as a worker uses it."""

    faults: tuple[type[Exception], ...]
    """What its methods raise while the ledger is away."""

    def start(self, node_id: int, claims: Sequence[tuple[str, int]], *, again: bool = False) -> list[Started]:
        """Begin claims (task id, fence) still held by this node; what was cancelled or claimed anew falls out.

        ``again``: a call for the same claims had no answer; what it had started is returned too.
        """
        ...

    def record(self, node_id: int, finished: Sequence[Finished]) -> Changes:
        """Record ended attempts by fence, with retries, dead letters and release. Safe to repeat."""
        ...

    def hand_back(self, node_id: int, claims: Sequence[tuple[str, int]], *, running: bool, reason: str,
                  alone: bool = False) -> Changes:  # fmt: skip
        """Make claims ready again that have not begun; no attempt is spent."""
        ...

    def listened(self) -> bool:
        """Whether any tenant wants to be told of anything."""
        ...

    def script(self, task_id: str) -> ScriptWork:
        """What is needed to run a started script."""
        ...

    def memory_mb(self, task_id: str) -> int:
        """The memory of a task's tier, in MiB."""
        ...

    def script_read(self, task_id: str, fence: int, at: float, sha256: str) -> None:
        """Write into its history what a script read from the tenant's folder was when it ran."""
        ...

    def log(self, task_id: str, fence: int, streams: Mapping[str, tuple[str, bool]]) -> None:
        """Store what an attempt wrote: stream -> (text, whether it was cut)."""
        ...

    def upstream(self, task_id: str) -> dict[str, Any]:
        """The results of a task's parents by name (by id for those without one)."""
        ...

    def parents(self, task_id: str) -> dict[str, Any]:
        """The same, each by its name and by its id: what a reference in the arguments may say."""
        ...

    def mutex_fence(self, task_id: str, fence: int) -> int | None:
        """The number of a running task's hold on its mutex key."""
        ...

    def progress(self, task_id: str, fence: int, value: str) -> None:
        """Store a running task's progress (JSON)."""
        ...

    def aid(self, task: Started) -> TaskAid:
        """What a running task may ask for beyond its own row: effects, subtasks, secrets."""
        ...

    def learn(self, samples: Mapping[tuple[int, str], tuple[int, float]]) -> None:
        """Add run times: (tenant, handler or script key) -> (count, total seconds)."""
        ...

    def held(self, node_id: int) -> list[tuple[str, int, int]]:
        """Everything in flight on a node: (task id, fence, state)."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class NodeStore(Protocol):
    """The registry of nodes."""

    faults: tuple[type[Exception], ...]

    def register(self, spec: NodeSpec, exports: Mapping[str, Export]) -> int:
        """Register an incarnation with its handlers; returns its node id. An older one of that name is
        lost."""
        ...

    def activate(self, node_id: int) -> bool:
        """The node's agent is there: it may be given work; False when it was declared lost meanwhile."""
        ...

    def renew(self, node_id: int, stats: Mapping[str, Any]) -> str | None:
        """Renew the node's lease; its state, or ``None`` when it was declared lost meanwhile."""
        ...

    def asked(self, node_id: int) -> list[Asked]:
        """What is asked of tasks that run on the node, and which of them were paused before."""
        ...

    def set_draining(self, node_id: int) -> None:
        """Give the node no more work, and ask what runs there with checkpoints to yield."""
        ...

    def leave(self, node_id: int) -> None:
        """The node has ended cleanly."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
