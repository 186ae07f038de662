"""Holds handlers to their tier's memory, by how much a child has grown since it began its task.

What the child held before (the interpreter, the application, what earlier tasks left) is the worker's, not the task's.
Tasks that share a child cannot be told apart, so only one that has its child to itself is held to anything; and only
after :data:`MIN_RUN_S`, for a look at a process and its children costs more than a short task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from scheduler_ext.sandbox.keeper import process_tree

MIN_RUN_S = 0.25
POLL_S = 0.25
IDLE_POLL_S = 1.0
RETRY_S = 5.0
ALL = 1 << 40
"""Larger than any memory: pages are then counted without looking which are shared."""


@dataclass(slots=True)
class _Task:
    """The task a child was last seen with."""

    key: tuple[str, int]
    base_mb: int
    look_at: float
    allowed_mb: int | None = None


class HeldMemory:
    """The account of each pool child, kept by the process that looks at them from time to time."""

    def __init__(self, allowed_mb: Callable[[str], int]) -> None:
        """``allowed_mb`` returns the memory of a task's tier; it is asked once per long-running task."""
        self._allowed_mb = allowed_mb
        self._tasks: dict[int, _Task] = {}
        self._rest: dict[int, tuple[float, int]] = {}
        """When a child was last seen idle and what it held then; kept until it is seen with a task."""

    def rests(self, pid: int) -> None:
        """Note that the child runs nothing: what it holds now is its own."""
        if self.is_due(pid):
            self._rest[pid] = time.monotonic(), process_tree.memory_mb([pid], ALL)

    def is_due(self, pid: int) -> bool:
        """Whether it is time to see again what a child that runs nothing holds."""
        return pid not in self._rest or time.monotonic() - self._rest[pid][0] > IDLE_POLL_S

    def is_over(self, pid: int, task_id: str, fence: int, began: float) -> bool:
        """Whether the running task has come to hold more memory than its tier has."""
        task = self._tasks.get(pid)
        if task is None or task.key != (task_id, fence):
            # It may hold some already; what another one left since the child was idle is not its own.
            base = process_tree.memory_mb([pid], ALL)
            if (rest := self._rest.pop(pid, None)) is not None:
                base = min(base, rest[1])
            self._tasks[pid] = _Task((task_id, fence), base, began + MIN_RUN_S)
            return False
        now = time.monotonic()
        if now < task.look_at:
            return False
        if task.allowed_mb is None:
            task.look_at = now + RETRY_S  # for the case that nobody answers
            task.allowed_mb = self._allowed_mb(task_id)
        task.look_at = now + POLL_S
        most = task.base_mb + task.allowed_mb
        below = process_tree.below(pid)
        return process_tree.memory_mb([pid], ALL) > most or (
            bool(below) and process_tree.memory_mb([pid, *below], most) > most
        )

    def forget(self, pid: int) -> None:
        self._tasks.pop(pid, None)
        self._rest.pop(pid, None)
