"""Celery's results of tasks of the ledger: ``get``, ``state``, ``revoke``, ``children`` and ``forget`` ask it.

What is no task of the ledger is asked of the application's own backend, as before.
"""

from __future__ import annotations

import builtins
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Final, Protocol

from celery import Celery, states
from celery.exceptions import (
    ChordError,
    TaskRevokedError,
    TimeLimitExceeded,
    TimeoutError,  # noqa: A004 - Celery's
    WorkerLostError,
)
from celery.result import AsyncResult, GroupResult, ResultSet
from celery.utils.serialization import create_exception_cls

from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.task import celery_json
from scheduler_ext.task.running import task as running_task

log = logging.getLogger(__name__)
FIRST_LOOK_S: Final = 0.02
LAST_LOOK_S: Final = 0.5
"""Seconds between two looks for a result that is waited for: at first, and later."""
LED: Final = "SLACKWATER"
"""The state in Celery's own backend of a message that became a task of the ledger: its result there is the task's id."""
OF_OUTCOMES: Final[Mapping[str, type[Exception]]] = {
    Outcome.WORKER_LOST.name: WorkerLostError,
    Outcome.CAP_EXCEEDED.name: TimeLimitExceeded,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A task as the ledger has it."""

    task_id: str
    handler: str
    state: TaskState
    attempts: int
    result: Any
    error: str
    reason: str
    progress: Any
    finished_at: datetime | None
    args: list[Any]
    kwargs: dict[str, Any]
    cap_ms: int = 0
    earlier: int = 0
    """Those of its attempts that it had used when it was last run again; 0 once it has ended."""


class Results(Protocol):
    """The port that results are read through."""

    def look(self, task_id: str) -> Seen | None:
        """The task; ``None`` if there is none of that id."""

    def children(self, task_id: str) -> Sequence[str]:
        """The tasks that a task has submitted through Celery's calls."""

    def cancel(self, task_id: str, *, running: bool) -> bool:
        """Cancel a task, one that runs only with ``running``; False if there is none of that id."""

    def forget(self, task_id: str) -> bool:
        """Take a task's result away; False if there is none of that id."""

    def unreachable(self, task_id: str) -> bool:
        """Whether the caller's own open transaction submits the task, so that it cannot have run yet."""

    def linger(self, task_id: str, pause_s: float, most_s: float) -> None:
        """Let time pass until the next look at a task that is waited for: ``most_s`` seconds at most."""
        time.sleep(min(pause_s, most_s))


def install(app: Celery, ledger: Results) -> None:
    """Let ``app`` read results from the ledger, and revoke there, where the tasks are the ledger's."""
    get_backend: Any = app._get_backend  # type: ignore[attr-defined]  # not in the stubs
    vars(app)["_get_backend"] = lambda: LedgerBackend(get_backend(), ledger)
    vars(app)["_backend"] = None

    class Result(AsyncResult):  # type: ignore[type-arg]  # generic only since Celery 5.7
        """A result whose children the ledger knows."""

        @property
        def supports_native_join(self) -> Any:
            """Whether a group may ask the backend for all its results at once: not for the ledger's."""
            return not is_ledger_id(self.id) and super().supports_native_join

        @property
        def children(self) -> Any:
            """The tasks it has submitted; ``None`` if none."""
            if not is_ledger_id(self.id):
                return super().children
            return [self.app.AsyncResult(one) for one in ledger.children(self.id)] or None

        def forget(self) -> None:
            """Take its result away; those of its parents stay, which other tasks may still be given."""
            if not is_ledger_id(self.id):
                super().forget()
                return
            vars(self)["_cache"] = None
            self.backend.forget(self.id)

        def _maybe_reraise_parent_error(self) -> None:
            """Raise the error for which it cannot come. Its parents are looked at once it has ended without a run."""
            if not is_ledger_id(self.id):
                super()._maybe_reraise_parent_error()  # type: ignore[misc]  # not in the stubs
            elif (vars(self)["_cache"] or {}).get("status") == states.REVOKED:
                _raise_lost(self.parent)

    vars(app)["GroupResult"] = app.subclass_with_self(Gathered, name="GroupResult", reverse="GroupResult")
    vars(app)["AsyncResult"] = app.subclass_with_self(Result, name="AsyncResult")
    _lead_revoke(app, ledger)


def _lead_revoke(app: Celery, ledger: Results) -> None:
    """Cancel in the ledger what ``app`` revokes there."""
    control: Any = app.control
    revoke = control.revoke

    @wraps(revoke)
    def revoke_or_cancel(
        task_id: Any, destination: Any = None, terminate: bool = False, *args: Any, **options: Any
    ) -> Any:
        given = [task_id] if isinstance(task_id, str) else list(task_id)
        others = [one for one in given if not (is_ledger_id(one) and ledger.cancel(one, running=bool(terminate)))]
        if not others:
            return None
        return revoke(task_id if isinstance(task_id, str) else others, destination, terminate, *args, **options)

    control.revoke = revoke_or_cancel


class Gathered(GroupResult):
    """The results of a group: those that cannot come because of what it follows raise why."""

    def join(self, *args: Any, **options: Any) -> Any:
        """As in Celery."""
        try:
            return super().join(*args, **options)
        except TaskRevokedError:
            _raise_lost(self.parent)
            raise


def lost(result: Any) -> BaseException | None:
    """Why a result cannot come: the error of the first, of it and its parents, that has not succeeded.

    ``None`` if there is none. Of a group, as in Celery of a chord's header, a ``ChordError`` that names it.
    """
    nodes: list[Any] = []
    while result is not None:
        nodes.append(result)
        result = result.parent
    for node in reversed(nodes):
        if not isinstance(node, ResultSet):
            if node.state in states.PROPAGATE_STATES:
                error: BaseException = node.result
                return error
            continue
        for member in node.results or ():
            found = lost(member)
            if found is not None:
                of_chord = isinstance(found, ChordError)
                return found if of_chord else ChordError(f"Dependency {member.id} raised {found!r}")
    return None


def _raise_lost(result: Any) -> None:
    error = lost(result)
    if error is not None:
        raise error from None


def lead_to(app: Celery, task_id: str, own_id: str) -> None:
    """Let the results of a message, which its caller has, be those of the task that it was submitted as.

    The application's own backend keeps this. Where it has none, or one that sends results as messages (``rpc://``), nobody
    can ask for it.
    """
    backend: Any = app.backend
    try:
        if backend.keeps:
            backend.store_result(task_id, own_id, LED)
    except Exception:  # a backend that is away holds up no task
        log.exception("the result of the message %s cannot be found by its id: it is that of %s", task_id, own_id)


def is_ledger_id(task_id: Any) -> bool:
    """Whether the id may be one of the ledger, whose ids are UUIDs of version 7; Celery's are of version 4."""
    return isinstance(task_id, str) and len(task_id) == 36 and task_id[14] == "7"


class LedgerBackend:
    """A backend of results that asks the ledger first."""

    def __init__(self, other: Any, ledger: Results) -> None:
        """``other``: the application's own backend, for its other tasks."""
        self._other = other
        self._ledger = ledger
        self.keeps = bool(getattr(type(other), "persistent", True))
        """Whether the other can be asked again for what it was told."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)

    def _look(self, task_id: Any) -> Seen | None:
        return self._ledger.look(task_id) if is_ledger_id(task_id) else None

    def own_id(self, task_id: Any) -> str | None:
        """The id in the ledger of a task, also where it is asked for by that of the message it was submitted from."""
        if is_ledger_id(task_id):
            return str(task_id)
        if not self.keeps:
            return None
        try:
            meta = self._other.get_task_meta(task_id)
        except (NotImplementedError, AttributeError):  # there is no backend
            return None
        return str(meta["result"]) if meta.get("status") == LED else None

    def store_result(self, task_id: Any, result: Any, state: str, *args: Any, **options: Any) -> Any:
        """Keep what ``update_state`` says of the running task as its progress."""
        running = running_task.get()
        if running is None or task_id != running.task_id:
            return self._other.store_result(task_id, result, state, *args, **options)
        value = celery_json.dumps({"state": state, "meta": result})
        running.store.progress(running.task_id, running.fence, value)
        return result

    def get_task_meta(self, task_id: Any, *args: Any, **options: Any) -> Any:
        """What is known of a task, in Celery's words."""
        seen = self._look(task_id)
        if seen is not None:
            return meta_of(seen)
        meta = self._other.get_task_meta(task_id, *args, **options)
        seen = self._look(meta["result"]) if meta.get("status") == LED else None
        return meta if seen is None else {**meta_of(seen), "task_id": task_id}

    def meta_from_decoded(self, meta: dict[str, Any]) -> Any:
        """As it is: what :meth:`get_task_meta` returns needs no decoding."""
        return meta if is_ledger_id(meta.get("task_id")) else self._other.meta_from_decoded(meta)

    def add_pending_result(self, result: Any, *args: Any, **options: Any) -> Any:
        """Does nothing: the ledger's results are polled."""
        return None if is_ledger_id(result.id) else self._other.add_pending_result(result, *args, **options)

    def wait_for_pending(self, result: Any, timeout: float | None = None, interval: float | None = None,
                         on_interval: Any = None, callback: Any = None, propagate: bool = True,
                         **options: Any) -> Any:  # fmt: skip
        """Wait for the end of a task; ``TimeoutError`` if it does not end within ``timeout`` seconds."""
        own_id = self.own_id(result.id)
        if self._look(own_id) is None:
            return self._other.wait_for_pending(
                result, timeout=timeout, interval=interval, on_interval=on_interval, callback=callback,
                propagate=propagate, **options,
            )  # fmt: skip
        assert own_id is not None
        if self._ledger.unreachable(own_id) and not result.ready():
            raise RuntimeError(
                f"the task {result.id} runs once this transaction has committed: it cannot be waited for"
            )
        give_up = time.monotonic() + timeout if timeout is not None else float("inf")
        pause = FIRST_LOOK_S
        while not result.ready():
            if time.monotonic() >= give_up:
                raise TimeoutError("The operation timed out.")
            self._ledger.linger(own_id, interval or pause, max(0.0, give_up - time.monotonic()))
            pause = min(LAST_LOOK_S, pause * 1.5)
            if on_interval is not None:
                on_interval()
        if propagate and on_interval is not None and result.state == states.REVOKED:
            on_interval()  # Celery's own look at the parents, if they are to be looked at
        return result.maybe_throw(propagate=propagate, callback=callback)

    def ensure_chords_allowed(self) -> None:
        """A running task may go on as a chord without a backend of Celery's."""
        if running_task.get() is None:
            self._other.ensure_chords_allowed()

    def forget(self, task_id: Any) -> Any:
        """Take a result away."""
        return None if is_ledger_id(task_id) and self._ledger.forget(task_id) else self._other.forget(task_id)


def meta_of(seen: Seen) -> dict[str, Any]:
    """A task of the ledger in Celery's words."""
    status, result = _status(seen)
    return {
        "task_id": seen.task_id, "status": status, "result": result,
        "traceback": seen.error if status == states.FAILURE else None,
        "children": [], "name": seen.handler, "args": seen.args,
        "kwargs": seen.kwargs, "retries": max(0, seen.attempts - seen.earlier - (status in states.READY_STATES)),
        "date_done": seen.finished_at, "parent_id": None,
    }  # fmt: skip


def _status(seen: Seen) -> tuple[str, Any]:
    match seen.state:
        case TaskState.SUCCEEDED:
            return states.SUCCESS, celery_json.revived(seen.result)
        case TaskState.FAILED:
            return states.FAILURE, raised(seen)
        case TaskState.CANCELLED | TaskState.EXPIRED | TaskState.SKIPPED:
            return states.REVOKED, TaskRevokedError(seen.reason or "revoked")
        case TaskState.RUNNING:
            progress = seen.progress
            if isinstance(progress, dict) and progress.keys() == {"state", "meta"}:
                return progress["state"], celery_json.revived(progress["meta"])
            return states.STARTED, progress
        case _:
            return (states.RETRY if seen.attempts > seen.earlier else states.PENDING), None


def raised(seen: Seen) -> BaseException:
    """The exception that a task ended with, as far as its text tells."""
    of_outcome = OF_OUTCOMES.get(seen.reason.split(":")[0].upper().replace(" ", "_"))
    if of_outcome is not None:
        return of_outcome(seen.error)
    lines = seen.error.rstrip().splitlines()
    frames = [n for n, line in enumerate(lines) if line.startswith("  ")]
    last = "\n".join(lines[frames[-1] + 1 :] if frames else lines)
    kind, _, message = last.partition(":")
    module, _, name = kind.strip().rpartition(".")
    if not kind.strip().replace(".", "_").isidentifier():
        return RuntimeError(last)
    found = getattr(sys.modules.get(module, builtins) if module else builtins, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(message.strip())
        except TypeError:  # it is made of something else
            pass
    made: Any = create_exception_cls(name, module or "builtins")
    error: BaseException = made(message.strip())
    return error
