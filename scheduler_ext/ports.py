"""What the engine needs from outside. Each adapter stands in ``apps``; ``slackwater.wiring`` joins them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from scheduler_ext.core.types import NOBODY, Decision, Grant, Kept, Opening, Reason, Snapshot
from scheduler_ext.core.work import (
    Asked,
    Changes,
    Claim,
    Effect,
    Export,
    File,
    Finished,
    Format,
    Lead,
    Lock,
    NodeSpec,
    Saved,
    ScriptWork,
    Started,
    Written,
)
from scheduler_ext.policies.base import SharePolicy


class RoundStore(Protocol):
    """The ledger as the dispatcher uses it."""

    def lead(self, holder: str) -> Lead:
        """Take or renew leadership of the cell by the database's clock."""

    def resign(self, holder: str) -> None:
        """Give leadership up at once."""

    def wake(self, limit: int) -> int:
        """Make scheduled tasks whose time has come ready; returns how many."""

    def promote(self, limit: int) -> Changes:
        """Move tasks near their latest start to their tenant's urgent line, and before all others those past it."""

    def snapshot(self, *, ends: bool = False, kept: Kept = NOBODY) -> Snapshot:
        """The frozen view of this moment, with a bounded number of nominated tasks.

        ``ends``: with the moments at which what runs is expected to end, which only keeping room needs. ``kept``: as
        the round before left it.
        """

    def wants_room(self) -> bool:
        """Whether any task is ready, or little is left of what was given ahead."""

    def unseen(self) -> bool:
        """Whether a task came of a kind to which no round has given room ahead yet."""

    def share(self) -> SharePolicy:
        """The share policy that is chosen for the cell now."""

    def look(self, *, decided: int, more: bool) -> bool:
        """Nominate more or fewer tasks next time, by what came of the last snapshot; True when it will be more."""

    def claim(self, epoch: int, decisions: Sequence[Decision]) -> list[Decision]:
        """Commit claims by compare-and-set under the leader's epoch; returns those that were won."""

    def widen(self, epoch: int, openings: Sequence[Opening]) -> None:
        """Add to the openings under the leader's epoch, and close those of lines of which nothing came lately."""

    def grant(self, epoch: int, grants: Sequence[Grant]) -> None:
        """Let nodes go on with lines by themselves from now on, under the leader's epoch, and no others."""

    def withdraw(self) -> None:
        """Give no room ahead any more: what is claimed of it by now is in flight."""

    def park(self, task_ids: Sequence[str], reason: Reason = Reason.MUTEX) -> int:
        """Take tasks out of the ready lines until their mutex key is free, or their rate allows them."""

    def locks(self) -> list[Lock]:
        """Who holds which mutex key now."""

    def return_queued(self) -> int:
        """Make everything queued ready again (Redis was emptied); returns how many."""

    def next_due_s(self) -> float | None:
        """Seconds until the next scheduled task is due."""


class WorkStore(Protocol):
    """The ledger as a worker uses it."""

    faults: tuple[type[Exception], ...]
    """What its methods raise while the ledger is away."""

    def start(self, node_id: int, claims: Sequence[tuple[str, int]], *, again: bool = False) -> list[Started]:
        """Begin claims (task id, fence) still held by this node; what was cancelled or claimed anew falls out.

        ``again``: a call for the same claims had no answer; what it had started is returned too.
        """

    def record(self, node_id: int, finished: Sequence[Finished]) -> Changes:
        """Record ended attempts by fence, with retries, dead letters and release. Safe to repeat."""

    def record_and_follow(
        self, node_id: int, finished: Finished, claim: tuple[str, int]
    ) -> tuple[Changes, Started | None]:
        """Record a plain success, and begin its only dependant here if it finds room given ahead: then this node holds
        ``claim``. Not repeated here: without an answer, ask ``start`` again, and record."""

    def record_and_go_on(
        self, node_id: int, finished: Sequence[Finished], note: Callable[[Sequence[tuple[str, int]]], None]
    ) -> tuple[Changes, list[Started]]:
        """Record plain successes, and begin as many more of their lines where this node may go on with them.

        ``note`` is given their claims before they have surely begun. Not repeated here: without an answer, ask ``start``
        again for what was noted, and record."""

    def tell_room(self) -> None:
        """Tell the dispatcher of free room, and wait for no answer: what runs next would wait for it too."""

    def hand_back(self, node_id: int, claims: Sequence[tuple[str, int]], *, running: bool, reason: str,
                  alone: bool = False) -> Changes:  # fmt: skip
        """Make claims ready again that have not begun; no attempt is spent."""

    def listened(self) -> bool:
        """Whether any tenant wants to be told of anything."""

    def script(self, task_id: str) -> ScriptWork:
        """What is needed to run a started script."""

    def memory_mb(self, task_id: str) -> int:
        """The memory of a task's tier, in MiB."""

    def script_read(self, task_id: str, fence: int, at: float, sha256: str) -> None:
        """Write into its history what a script read from the tenant's folder was when it ran."""

    def most_written(self, task: Started) -> int:
        """How many bytes of lines an attempt of it may write; what those before it wrote beyond as much goes."""

    def write(self, written: Sequence[Written]) -> None:
        """Store lines of attempts. Safe to repeat."""

    def emit(self, task: Started, chunks: Sequence[tuple[int, str]], total: int) -> None:
        """Store chunks (number, JSON) of a running task's result stream, which has ``total`` bytes with them.

        Safe to repeat. ``StreamTooLarge`` beyond the plan, ``AttemptReplaced`` when this attempt has lost its task.
        """

    def upstream(self, task_id: str) -> dict[str, Any]:
        """The results of a task's parents by name (by id for those without one)."""

    def parents(self, task_id: str) -> dict[str, Any]:
        """The results of a task's parents, each by its name and by its id: what references in the arguments may say."""

    def mutex_fence(self, task_id: str, fence: int) -> int | None:
        """The number of a running task's hold on its mutex key; ``None`` without a key, or when its claim is lost."""

    def progress(self, task_id: str, fence: int, value: str) -> None:
        """Store a running task's progress (JSON)."""

    def backend(self, task: Started) -> TaskBackend:
        """What a running task may ask for beyond its own row: effects, subtasks, secrets."""

    def learn(self, samples: Mapping[tuple[int, str], Sequence[float]]) -> None:
        """Add run times: (tenant, handler or script key) -> seconds of each run."""

    def held(self, node_id: int) -> list[tuple[str, int, int]]:
        """Everything in flight on a node: (task id, fence, state)."""

    def close(self) -> None:
        """Close the connection."""


class TaskBackend(Protocol):
    """The platform as one running attempt asks it."""

    def effect_inside(self, key: str) -> AbstractContextManager[Effect]:
        """A transaction on the platform's database that stores the effect's key when it commits."""

    def claim_effect(self, key: str, *, over: Claim | None = None) -> Claim:
        """Claim a key in a transaction of its own; ``over``: take it from that attempt, which did not do it."""

    def settle_effect(self, key: str, result: Any, *, over: Claim | None = None) -> None:
        """Mark a key done that this attempt holds, or that of ``over``. Safe to repeat.

        A late call, whose key another attempt has taken over, changes nothing.
        """

    def free_effect(self, key: str) -> None:
        """Give back a key this attempt holds."""

    def save_artifacts(self, files: Sequence[File]) -> None:
        """Keep named files, all or none, each in place of the one of its name.

        ``ArtifactsTooLarge`` beyond the plan, ``AttemptReplaced`` when this attempt has lost its task.
        """

    def find_upload(self, upload_id: str) -> tuple[int, Callable[[int, int], bytes]]:
        """The size of a whole upload of the task's tenant, and what reads it from a byte up to another.

        ``NotFound`` without one.
        """

    def load_checkpoint(self) -> Saved | None:
        """The latest one that is whole, or ``None``; a damaged one is noted in the task's history."""

    def save_checkpoint(self, kind: Format, content: bytes) -> int:
        """Publish a checkpoint; returns its number.

        ``CheckpointTooLarge`` beyond the plan's limit, ``AttemptReplaced`` when this attempt has lost its task.
        """

    def note_checkpoint(self, reason: str) -> None:
        """Write into the task's history why a checkpoint was not saved."""

    def submit(self, items: Sequence[Mapping[str, Any]], *, join: bool, key: str) -> list[str]:
        """Store tasks of the same tenant, in the task's workflow where it has one; returns their ids."""

    def ports(self) -> int:
        """How many ports the task's tier has."""

    def secret(self, name: str) -> str:
        """A secret of the task's tenant."""

    def trace(self) -> dict[str, str]:
        """W3C headers of the trace the task belongs to; none without one."""


class NodeStore(Protocol):
    """The registry of nodes."""

    faults: tuple[type[Exception], ...]

    def register(self, spec: NodeSpec, exports: Mapping[str, Export]) -> int:
        """Register an incarnation with its handlers; returns its node id. An older one of that name is lost."""

    def activate(self, node_id: int) -> bool:
        """The node's agent is there: it may be given work; False when it was declared lost meanwhile."""

    def renew(self, node_id: int, stats: Mapping[str, Any]) -> str | None:
        """Renew the node's lease; its state, or ``None`` when it was declared lost meanwhile."""

    def asked(self, node_id: int) -> list[Asked]:
        """What is asked of tasks that run on the node, and which of them were paused before."""

    def set_draining(self, node_id: int) -> None:
        """Give the node no more work, and ask what runs there with checkpoints to yield."""

    def leave(self, node_id: int, *, lost: bool = False) -> None:
        """The node has ended, and nothing of it runs any more; ``lost``: nobody told it to."""

    def close(self) -> None:
        """Close the connection."""
