"""Holds handlers to their tier's memory, by how much a child has grown since it began its task.

What the child held before (the interpreter, the application, what earlier tasks left) is the worker's, not the task's:
the child itself notes it in the journal, for by the time that another process looks a task may hold all it ever will.
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
RETRY_S = 5.0
ALL = 1 << 40
"""Larger than any memory: pages are then counted without looking which are shared."""


@dataclass(slots=True)
class _Task:
    """The task a child was last seen with."""

    key: tuple[str, int]
    base_mb: int
    """What is not its own; negative: nobody knows."""
    look_at: float
    allowed_mb: int | None = None


class HeldMemory:
    """The account of each pool child, kept by the process that looks at them from time to time."""

    def __init__(self, allowed_mb: Callable[[str], int]) -> None:
        """``allowed_mb`` returns the memory of a task's tier; it is asked once per long-running task."""
        self._allowed_mb = allowed_mb
        self._tasks: dict[int, _Task] = {}

    def is_over(self, pid: int, task_id: str, fence: int, *, began: float, base_mb: int) -> bool:
        """Whether the running task has come to hold more memory than its tier has.

        ``began``: when it did, by the monotonic clock. ``base_mb``: MiB that its child held then; negative: it is not
        known, and what is held when the task is first looked at counts for it.
        """
        task = self._tasks.get(pid)
        if task is None or task.key != (task_id, fence):
            task = self._tasks[pid] = _Task((task_id, fence), base_mb, began + MIN_RUN_S)
        now = time.monotonic()
        if task.base_mb < 0:
            task.base_mb = process_tree.memory_mb([pid], ALL)
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

    def has_company(self, pid: int, task_id: str, fence: int) -> None:
        """Note that others run in the child of this task: what they leave behind is not its own."""
        self._tasks[pid] = _Task((task_id, fence), -1, 0.0)

    def forget(self, pid: int) -> None:
        self._tasks.pop(pid, None)
