"""Checkpoints: what a long task saves so that it can be paused, and resumed after its worker died.

    @handler(name="films.encode", checkpoints=True)
    def encode(film):
        task = current()
        state = task.checkpoint.load() or {"frame": 0}
        while state["frame"] < frames(film):
            state["frame"] = work_on(state["frame"])
            task.checkpoint.save(state)
            if task.should_yield():
                task.yield_now()

A checkpoint is published whole or not at all, carries a checksum, and lies in the ledger, where any node finds it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.work import Format, Started
from scheduler_ext.ports import TaskBackend


class CheckpointTooLarge(SlackwaterError):
    """The checkpoint is larger than the plan allows."""

    code = "checkpoint_too_large"


class TaskYielded(BaseException):
    """Raised by ``current().yield_now()``: the task stops here and goes on later. Let it pass.

    Not an ``Exception``: a handler's ``except Exception`` must not swallow it.
    """


def digest(content: bytes) -> str:
    """The checksum of a checkpoint: SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@dataclass(slots=True)
class Pausing:
    """The state of this process; a task that declares checkpoints runs alone, in the main thread."""

    asked: tuple[str, int] | None = None
    """The claim that was asked to yield."""
    resumed: str = ""
    """The task that resumed from a checkpoint: its run time says nothing of a whole run."""


pausing = Pausing()


class Checkpoint:
    """What a handler saves and finds again: ``current().checkpoint``."""

    __slots__ = ("_backend", "_task")

    def __init__(self, task: Started, backend: TaskBackend) -> None:
        """``task`` is the running attempt, whose backend this is."""
        self._task = task
        self._backend = backend

    def load(self) -> Any:
        """The checkpoint saved last, by this attempt or an earlier one on any node; ``None`` without one.

        A damaged checkpoint is passed over: the one before it is returned, and the task's history says so.
        """
        saved = self._backend.load_checkpoint()
        if saved is None:
            return None
        pausing.resumed = self._task.task_id
        return json.loads(saved.content) if saved.format is Format.JSON else saved.content

    def save(self, value: Any) -> int:
        """Publish ``value`` (anything JSON can hold, or bytes) as the newest checkpoint; returns its number.

        When it returns, the checkpoint is stored for good. ``TypeError`` or ``ValueError`` for what JSON cannot hold,
        ``CheckpointTooLarge`` beyond the plan's limit, ``AttemptReplaced`` when this attempt has lost its task: then
        stop, for another one has it.
        """
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._backend.save_checkpoint(Format.BYTES, bytes(value))
        return self._backend.save_checkpoint(Format.JSON, json.dumps(value, allow_nan=False).encode())
