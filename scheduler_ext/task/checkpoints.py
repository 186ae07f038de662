"""Checkpoints: what a long task saves, so that it can be paused, and goes on after its worker died.

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
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from scheduler_ext.core.errors import SlackwaterError


class Format(IntEnum):
    """How the content of a checkpoint is written."""

    JSON = 1
    BYTES = 2
    FOLDER = 3
    """The files of a script's ``CHECKPOINT_DIR``: see :mod:`scheduler_ext.sandbox.keeper.checkpoint_folder`."""


class CheckpointTooLarge(SlackwaterError):
    """The checkpoint is larger than the plan allows."""

    code = "checkpoint_too_large"


class TaskYielded(BaseException):
    """Raised by ``current().yield_now()``: the task stops here and goes on later. Let it pass.

    Not an ``Exception``: a handler's ``except Exception`` must not swallow it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint as it was saved, its checksum verified."""

    number: int
    format: Format
    content: bytes


class CheckpointStore(Protocol):
    """The checkpoints of one running attempt."""

    def load(self) -> Saved | None:
        """The latest one that is whole, or ``None``; a damaged one is noted in the task's history."""
        ...

    def save(self, kind: Format, content: bytes) -> int:
        """Publish a checkpoint; returns its number.

        ``CheckpointTooLarge`` beyond the plan's limit, ``AttemptReplaced`` when this attempt has lost its task.
        """
        ...

    def note(self, reason: str) -> None:
        """Write into the task's history why something was not saved."""
        ...


def digest(content: bytes) -> str:
    """The checksum of a checkpoint: SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


class Checkpoint:
    """What a handler saves and finds again: ``current().checkpoint``."""

    __slots__ = ("_store",)

    def __init__(self, store: Callable[[], CheckpointStore]) -> None:
        """``store`` is asked for on first use."""
        self._store = store

    def load(self) -> Any:
        """What was saved last, by this attempt or one before it, on whatever node; ``None`` when nothing was.

        A damaged checkpoint is passed over: the one before it is returned, and the task's history says so.
        """
        saved = self._store().load()
        if saved is None:
            return None
        return json.loads(saved.content) if saved.format is Format.JSON else saved.content

    def save(self, value: Any) -> int:
        """Publish ``value`` (anything JSON can hold, or bytes) as the newest checkpoint; returns its number.

        When it returns, the checkpoint is stored for good. ``TypeError`` or ``ValueError`` for what JSON cannot hold,
        ``CheckpointTooLarge`` beyond the plan's limit, ``AttemptReplaced`` when this attempt has lost its task: then
        stop, for another one has it.
        """
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._store().save(Format.BYTES, bytes(value))
        return self._store().save(Format.JSON, json.dumps(value, allow_nan=False).encode())
