"""What a running task may ask of the platform beyond its own row: effects, subtasks, secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from scheduler_ext.task.artifacts import ArtifactStore
from scheduler_ext.task.checkpoints import CheckpointStore
from scheduler_ext.task.effects import EffectStore


class TaskAid(Protocol):
    """The platform as one running attempt asks it."""

    @property
    def effects(self) -> EffectStore:
        """Keys of effects that happen once."""
        ...

    @property
    def artifacts(self) -> ArtifactStore:
        """Files the task leaves behind."""
        ...

    @property
    def checkpoints(self) -> CheckpointStore:
        """What the task saved to go on from."""
        ...

    def submit(self, items: Sequence[Mapping[str, Any]], *, join: bool, key: str) -> list[str]:
        """Store tasks of the same tenant, in the task's workflow where it has one; returns their ids."""
        ...

    def ports(self) -> int:
        """How many ports the task's tier has."""
        ...

    def secret(self, name: str) -> str:
        """A secret of the task's tenant."""
        ...

    def trace(self) -> dict[str, str]:
        """W3C headers of the trace the task belongs to; none without one."""
        ...
