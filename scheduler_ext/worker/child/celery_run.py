"""A handler as Celery knows it: its task, the hooks of its class, the signals of its runs, its soft time limit.

Hooks and signals come in the order in which Celery's own tracer has them. A task whose class overrides no hook costs
nothing of this while nobody listens to a signal.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from billiard.einfo import ExceptionInfo
from celery import _state, signals, states
from celery.app.task import Context, Task
from celery.app.trace import task_has_custom
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError
from celery.utils.functional import arity_greater
from kombu.exceptions import EncodeError

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Export, Started
from scheduler_ext.task.celery_json import CALL, TYPED, revived
from scheduler_ext.task.celery_options import soft_limit
from scheduler_ext.task.results import Seen, raised

log = logging.getLogger(__name__)

HOOKS: Final = ("before_start", "on_success", "on_failure", "on_retry", "after_return")
SIGNALS: Final = (
    signals.task_prerun, signals.task_postrun, signals.task_success, signals.task_failure, signals.task_retry,
    signals.task_revoked,
)  # fmt: skip
_tasks: Any = vars(_state)["_task_stack"]
push_task, pop_task = _tasks.push, _tasks.pop
"""The task for ``celery.current_task``."""
NO_HEADERS: Final[dict[str, Any]] = {}
"""Headers for Celery's request, which would otherwise search all its fields for custom ones: half its cost."""
_DEAF: Final = {"celery.fixups.django", "slackwater.shadow"}
"""Receivers that need no run of ours: the loader closes Django's connections around each message, which we do once per
slice; the shadow watches tasks that stay Celery's."""


def listened() -> bool:
    """Whether anybody listens to the signals of runs."""
    return any(_home(receiver) not in _DEAF for signal in SIGNALS for _, receiver in signal.receivers or ())


def _home(receiver: Any) -> str | None:
    target = receiver() if isinstance(receiver, weakref.ReferenceType) else receiver
    return getattr(target, "__module__", None)


class Handler:
    """A handler of this process and what its task says, looked up once."""

    __slots__ = ("call", "carried", "hooked", "request", "soft_s", "standing", "task")

    def __init__(self, task: Any, export: Export, hostname: str = "") -> None:
        """``task``: the Celery task. ``hostname``: the worker's name, as Celery gives it."""
        self.task = task
        self.carried = bool(export.repeats)
        # Not by task_has_custom: a worker replaces Celery's own __call__ (its "stack protection"), which is no hook.
        called = task.__class__.__call__ is not Task.__call__
        self.hooked = called or any(task_has_custom(task, hook) for hook in HOOKS)
        self.call: Callable[..., Any] = task if called else task.run
        self.soft_s = soft_limit(task)
        self.standing: Context | None = None
        """The request that stands on its task's stack in the main thread, once it has run there."""
        delivery = {"exchange": "", "routing_key": export.name, "priority": None, "redelivered": False}
        self.request: dict[str, Any] = {
            "called_directly": False, "is_eager": False, "delivery_info": delivery, "hostname": hostname,
            "headers": NO_HEADERS,
        }  # fmt: skip
        """What ``self.request`` tells of every run."""


def told(started: Started) -> tuple[Started, Mapping[str, Any]]:
    """A task with its arguments as they were given, and the options of its call."""
    kwargs = dict(started.kwargs)
    found = kwargs.pop(CALL)
    call = found if isinstance(found, dict) else {}
    args, kwargs = (revived(started.args), revived(kwargs)) if call.get(TYPED) else (started.args, kwargs)
    return replace(started, args=args, kwargs=kwargs), call


def of_failure(task: Any, failed: Seen) -> list[Any]:
    """What an errback is given before its own arguments, as Celery gives it: by how many it takes."""
    header = getattr(task, "__header__", None)
    if header is None or isinstance(header, partial) or not arity_greater(header, 1):
        return [failed.task_id]
    task_id = failed.task_id
    request = Context(
        id=task_id, root_id=task_id, correlation_id=task_id, task=failed.handler, args=revived(failed.args),
        kwargs=revived({name: value for name, value in failed.kwargs.items() if name != CALL}),
        retries=max(0, failed.attempts - 1), called_directly=False,
    )  # fmt: skip
    return [request, raised(failed), failed.error]


class SoftLimit:
    """The soft time limit of this process's run, watched by a timer signal four times a second."""

    __slots__ = ("at", "seconds")

    def __init__(self) -> None:
        """``None``: no limit is set."""
        self.at: float | None = None
        self.seconds = 0.0

    def set(self, seconds: float | None) -> None:
        """Set the limit from now on; ``None`` removes it."""
        self.seconds, self.at = (seconds, time.monotonic() + seconds) if seconds else (0.0, None)

    def remind(self) -> None:
        """Raise ``SoftTimeLimitExceeded`` once the time has come."""
        if self.at is not None and time.monotonic() >= self.at:
            self.at = None
            raise SoftTimeLimitExceeded(self.seconds)


class Told:
    """One run, reported to the hooks of its task and to signal receivers. Its request is on the task's stack."""

    __slots__ = ("args", "began", "kwargs", "request", "retval", "state", "task")

    def __init__(self, task: Any, request: Any) -> None:
        """Begin a run."""
        self.task, self.request, self.args, self.kwargs = task, request, request.args, request.kwargs
        self.state: str | None = None
        self.retval: Any = None
        self.began = time.monotonic()

    def before(self) -> None:
        """Report that it begins; an exception of ``before_start`` is the run's own end."""
        task = self.task
        signals.task_prerun.send(
            sender=task, task_id=self.request.id, task=task, args=self.args, kwargs=self.kwargs
        )  # fmt: skip
        task.before_start(self.request.id, self.args, self.kwargs)

    def returned(self, value: Any, error: str | None) -> None:
        """Report that it has returned; ``error`` says why its result cannot be kept."""
        if error is not None:
            self.raised(_thrown(EncodeError(error)))
            return
        self.state, self.retval = states.SUCCESS, value
        self._hook("on_success", value, self.request.id, self.args, self.kwargs)
        signals.task_success.send(sender=self.task, result=value, runtime=time.monotonic() - self.began)

    def raised(self, error: BaseException) -> None:
        """Report that it has raised; for interruptions see :meth:`interrupted`."""
        task = self.task
        einfo = ExceptionInfo((type(error), error, error.__traceback__))
        if isinstance(error, Retry):
            self.state, self.retval = states.RETRY, error
            self._hook("on_retry", error.exc, self.request.id, self.args, self.kwargs, einfo)
            signals.task_retry.send(sender=task, request=self.request, reason=error, einfo=einfo)
        elif isinstance(error, (Ignore, Reject)):
            self.state, self.retval = states.REJECTED if isinstance(error, Reject) else states.IGNORED, error
        else:
            self._failed(error, einfo)

    def interrupted(self, outcome: Outcome | None, cap_s: float) -> None:
        """Report that it was ended: by its cap, because it was cancelled, or to make room."""
        if outcome is Outcome.CAP_EXCEEDED:
            self.raised(_thrown(TimeLimitExceeded(cap_s)))
        elif outcome is Outcome.RESOURCE_EXCEEDED:
            self.raised(_thrown(MemoryError("it came to hold more than its tier has")))
        elif outcome is Outcome.CANCELLED:
            self.state = states.REVOKED
            signals.task_revoked.send(
                sender=self.task, request=self.request, terminated=True, signum=None, expired=False
            )  # fmt: skip
        else:
            self.state = states.IGNORED

    def killed(self, outcome: Outcome, cap_s: float) -> None:
        """Its process was killed, or has died: told by another, to which nobody has told its beginning."""
        if outcome is Outcome.WORKER_LOST:
            self.raised(_thrown(WorkerLostError("its worker process died while it ran")))
        else:
            self.interrupted(outcome, cap_s)
        if self.state == states.FAILURE:
            self._hook("after_return", self.state, self.retval, self.request.id, self.args, self.kwargs, None)

    def after(self) -> None:
        """Report that it is over."""
        task = self.task
        if self.state in (states.SUCCESS, states.FAILURE):
            self._hook("after_return", self.state, self.retval, self.request.id, self.args, self.kwargs, None)
        signals.task_postrun.send(
            sender=task, task_id=self.request.id, task=task, args=self.args, kwargs=self.kwargs, retval=self.retval,
            state=self.state,
        )  # fmt: skip

    def _failed(self, error: BaseException, einfo: Any) -> None:
        task = self.task
        self.state, self.retval = states.FAILURE, error
        self._hook("on_failure", error, self.request.id, self.args, self.kwargs, einfo)
        signals.task_failure.send(
            sender=task, task_id=self.request.id, exception=error, args=self.args, kwargs=self.kwargs,
            traceback=error.__traceback__, einfo=einfo,
        )  # fmt: skip

    def _hook(self, name: str, *args: Any) -> None:
        """Call a hook; whatever it raises, the outcome of the run stands."""
        try:
            getattr(self.task, name)(*args)
        except Exception:
            log.exception("%s of the task %s raised", name, self.task.name)


def _thrown(error: Exception) -> Exception:
    """The same with a traceback, which hooks and receivers expect."""
    try:
        raise error
    except type(error) as thrown:
        return thrown
