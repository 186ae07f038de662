"""What a running task can ask: who it is, what its parents returned, and how to report progress."""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.ports import Started


class NotInTask(SlackwaterError):
    """This code does not run inside a Slackwater task."""

    code = "not_in_task"


class TaskInterrupted(BaseException):
    """Raised inside a handler that is cancelled or has reached its execution cap. Clean up and let it pass.

    Not an ``Exception``: a handler's ``except Exception`` must not swallow it.
    """


class ContextStore(Protocol):
    """The part of the ledger a task's context uses."""

    def upstream(self, task_id: str) -> dict[str, Any]:
        """The results of a task's parents by name."""
        ...

    def progress(self, task_id: str, fence: int, value: str) -> None:
        """Store a task's progress (JSON)."""
        ...


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The running task."""

    task: Started
    store: ContextStore

    @property
    def task_id(self) -> str:
        """Its id."""
        return self.task.task_id

    @property
    def tenant_id(self) -> int:
        """Its owner."""
        return self.task.tenant_id

    @property
    def attempt(self) -> int:
        """1 for the first run."""
        return self.task.attempt

    @property
    def fence(self) -> int:
        """Number of the claim. A receiver that remembers the highest one it has seen can refuse a late sender."""
        return self.task.fence

    def upstream(self) -> dict[str, Any]:
        """The results of the tasks it depends on, by name (by id for those without one)."""
        return self.store.upstream(self.task.task_id)

    def progress(self, value: Any) -> None:
        """Report progress: any JSON value, for example ``{"done": 3, "of": 10}``; shown with its status."""
        self.store.progress(self.task.task_id, self.task.fence, json.dumps(value, allow_nan=False))


_current: ContextVar[TaskContext | None] = ContextVar("slackwater_task", default=None)


def current() -> TaskContext:
    """The task this code runs in; :class:`NotInTask` outside of one."""
    context = _current.get()
    if context is None:
        raise NotInTask
    return context


def enter(context: TaskContext | None) -> None:
    """Set the running task (the worker's side)."""
    _current.set(context)
