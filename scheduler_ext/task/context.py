"""The context of a running task: its identity, its parents' results, progress, effects, subtasks and more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, BinaryIO, NoReturn

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.work import DEFAULT_CONTENT_TYPE, Effect, File, Started
from scheduler_ext.ports import TaskBackend, WorkStore
from scheduler_ext.task import network_ports, redaction, running
from scheduler_ext.task.checkpoints import Checkpoint, TaskYielded, pausing
from scheduler_ext.task.effects import perform
from scheduler_ext.task.output import output
from scheduler_ext.task.uploads import UploadedFile


class NotInTask(SlackwaterError):
    """This code does not run inside a Slackwater task."""

    code = "not_in_task"


class TaskInterrupted(BaseException):
    """Raised inside a handler that is cancelled or has reached its execution cap. Clean up and let it pass.

    Not an ``Exception``: a handler's ``except Exception`` must not swallow it.
    """


@dataclass(slots=True)
class TaskContext:
    """The running task. Nobody changes one; but a frozen one would take three times as long to make."""

    task: Started
    store: WorkStore
    _calls: count[int] = field(init=False, repr=False, compare=False)
    """Made on first use: most tasks submit nothing."""

    @property
    def _backend(self) -> TaskBackend:
        return self.store.backend(self.task)

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
        """The number of the claim. A receiver that remembers the highest one it has seen can refuse a late sender."""
        return self.task.fence

    @property
    def mutex_fence(self) -> int | None:
        """The number of its hold on its mutex key; ``None`` without one, or when the claim is lost. Asks the ledger.

        It rises with every grant of the key, whichever task gets it: what the key guards can remember the highest one
        it has seen, and refuse a holder that was replaced.
        """
        return self.store.mutex_fence(self.task.task_id, self.task.fence)

    def upstream(self) -> dict[str, Any]:
        """The results of the tasks it depends on, by name (by id for those without one)."""
        return self.store.upstream(self.task.task_id)

    def progress(self, value: Any) -> None:
        """Report progress: any JSON value, for example ``{"done": 3, "of": 10}``; shown with its status."""
        self.store.progress(self.task.task_id, self.task.fence, json.dumps(value, allow_nan=False))

    def emit(self, chunk: Any) -> None:
        """Add a chunk (any JSON value) to the task's result stream: read live or later, in order, none dropped.

        A handler that is a generator does so with each value it yields. ``StreamTooLarge`` beyond the plan,
        ``AttemptReplaced`` when this attempt has lost its task: both are told by the next call, or end the task.
        """
        output.emit(self.task, chunk)

    def once(
        self, key: str, *, outside: bool = False, verify: Callable[[], Any] | None = None
    ) -> AbstractContextManager[Effect]:
        """Let an effect happen once for its key in this tenant, however many tasks and attempts try.

        The body does it when ``effect.first``; ``effect.result`` is kept, and found by all who come later. In the
        platform's own database, the default, key and effect commit together. ``outside``: the key is claimed before
        and settled after the body; where an attempt died in between, ``verify`` says whether the effect happened
        (``None`` or ``False``: it did not; ``True``: it did; any other value: it did, and that is its result).

        Raises ``InDoubt`` when nobody can tell, ``UnderWay`` while another task is at it, ``AttemptReplaced`` when
        this attempt has lost its task.
        """
        return perform(self._backend, key, outside=outside, verify=verify)

    def submit(self, handler: str = "", *args: Any, **fields: Any) -> str:
        """Submit a task of the same tenant, into the same workflow where there is one; returns its id.

        ``fields`` are those of a submission (``kwargs``, ``tier``, ``depends_on`` …). A repeated attempt that makes
        the same calls in the same order submits nothing twice.
        """
        item = {**({"handler": handler} if handler else {}), **({"args": list(args)} if args else {}), **fields}
        return self.subtasks([item], join=False)[0]

    def subtasks(self, items: Sequence[Mapping[str, Any]], *, join: bool = True) -> list[str]:
        """Submit several tasks, all or none, as :meth:`submit` does; returns their ids.

        ``join``: what depends on this task waits for them too, and finds their results beside this one's.
        """
        text = json.dumps([list(items), join], sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        key = f"subtasks:{self.task.task_id}:{self.next_call()}:{digest}"
        return self.hand_in(items, join=join, key=key)

    def hand_in(self, items: Sequence[Mapping[str, Any]], *, key: str, join: bool = False) -> list[str]:
        """Submit tasks under a key of the caller's: what was submitted under it before is not submitted again."""
        return self._backend.submit(items, join=join, key=key)

    def next_call(self) -> int:
        """The number of the next call that submits tasks; the same in a repeated attempt."""
        if not hasattr(self, "_calls"):
            self._calls = count()
        return next(self._calls)

    def save_artifact(self, name: str, content: bytes | str, content_type: str = "") -> None:
        """Leave a named file behind, which clients list and download; the same name again replaces it.

        ``name`` is a relative path; text is stored as UTF-8. ``InvalidInput`` for a name that leads out,
        ``ArtifactsTooLarge`` beyond the plan, ``AttemptReplaced`` when this attempt has lost its task.
        """
        data = content.encode() if isinstance(content, str) else bytes(content)
        kind = content_type or ("text/plain" if isinstance(content, str) else DEFAULT_CONTENT_TYPE)
        self._backend.save_artifacts([File(name=name, content=data, content_type=kind)])

    def open_upload(self, upload_id: str) -> BinaryIO:
        """Open a file that a client of the tenant has uploaded; read any place of it, and close it.

        ``NotFound`` when the tenant has no whole upload of that id. Pieces are read as they are asked for.
        """
        return UploadedFile.opened(*self._backend.find_upload(upload_id))

    @property
    def checkpoint(self) -> Checkpoint:
        """What the task saves to resume from: see :mod:`scheduler_ext.task.checkpoints`."""
        return Checkpoint(self.task, self._backend)

    def should_yield(self) -> bool:
        """True once the task was asked to make room: save, and call :meth:`yield_now`.

        One that does not within the grace (setting ``yield_grace_s``) is ended; what it has saved counts.
        """
        return pausing.asked == (self.task.task_id, self.task.fence)

    def yield_now(self) -> NoReturn:
        """Stop here and go on later from the last checkpoint; spends no attempt. Save first.

        It raises ``TaskYielded``: clean up and let it pass. The task must declare checkpoints.
        """
        raise TaskYielded

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports its tier gives it, which no other task of this machine holds; asks the ledger once.

        ``NoPorts`` when the machine has not as many free.
        """
        return network_ports.of(self.task, self._backend.ports)

    def secret(self, name: str) -> str:
        """A secret of the task's tenant; ``NotFound`` without one of that name.

        It is blotted out of the error the task may fail with and of what it prints and logs, not of what it reports,
        yields or returns.
        """
        return redaction.reveal(self.task.tenant_id, self._backend.secret(name))

    def trace(self) -> dict[str, str]:
        """W3C headers (``traceparent``, ``tracestate``) of the trace the task belongs to; none without one.

        Spans begun under them are children of this attempt's; a request that carries them goes on with the trace.
        Asks the ledger.
        """
        return self._backend.trace()


def current() -> TaskContext:
    """The task this code runs in; :class:`NotInTask` outside a task."""
    context: TaskContext | None = running.task.get()
    if context is None:
        raise NotInTask
    return context


enter: Callable[[TaskContext | None], object] = running.task.set
"""Set the running task (the worker's side)."""


def once(key: str, *, outside: bool = False, verify: Callable[[], Any] | None = None) -> AbstractContextManager[Effect]:
    """:meth:`TaskContext.once` of the running task."""
    return current().once(key, outside=outside, verify=verify)


def checkpoint() -> Checkpoint:
    """:attr:`TaskContext.checkpoint` of the running task."""
    return current().checkpoint
