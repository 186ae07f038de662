"""Redirects Celery's own API for submitting work into the ledger.

``delay``, ``apply_async``, ``send_task``, ``retry``, ``replace`` and canvases all end in a message. A message for an
exported task would run beside the ledger: without tenant, fence, limit or record. With :func:`install` an application
publishes none: what a running handler submits becomes a task of its tenant, a retry becomes the outcome of its
attempt, and elsewhere the ledger takes the task for the tenant in context or says why it cannot.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Final, Protocol

from celery import Celery
from celery._state import get_current_worker_task
from celery.canvas import Signature, _chain, chord, group, maybe_signature
from celery.exceptions import Ignore
from celery.result import ResultSet
from kombu.utils.functional import maybe_list

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.work import Started
from scheduler_ext.task import handlers, in_flight, results
from scheduler_ext.task.canvas import called_with
from scheduler_ext.task.celery_json import CALL
from scheduler_ext.task.celery_options import CALL_OPTIONS, fields_of_call, meant, soft_limit
from scheduler_ext.task.context import TaskContext
from scheduler_ext.task.in_flight import CANVASES, LINKS, MAPS
from scheduler_ext.task.running import task as running_task
from scheduler_ext.task.steps import Stored

NOT_OF_A_CANVAS: Final = {"task_id", "chain", "chord", "group_id", "slackwater", *LINKS}
"""Options of a call that a canvas cannot be given as a whole."""


class Ledger(results.Results, Protocol):
    """The port to the ledger: where tasks are submitted, and their results asked for."""

    def is_handler(self, name: str) -> bool:
        """Whether any worker has exported a handler of that name."""

    def submit(self, signature: Signature[Any], running: TaskContext | None) -> Stored:
        """Store a signature or canvas, all or nothing.

        ``running``: the task that submits it; ``None`` outside of one.
        """

    def go_on_as(self, canvas: Signature[Any], running: TaskContext) -> None:
        """Store a canvas whose result is to be that of the running task: it waits for it from now on."""

    def unsuccessful(self, task: Started, *, gathered: bool) -> results.Seen | None:
        """The task for which a starting one is called as an errback: the first that has failed of those it watches.

        ``gathered``: the one for which it cannot gather the results of the canvas it went on as: the first that still
        runs, has failed or was cancelled.
        """

    def of_tenant(self, task_id: str, tenant_id: int) -> AbstractContextManager[results.Seen | None]:
        """A task, with its tenant in context: what its hooks submit is that tenant's."""

    def release(self) -> None:
        """Close what this process holds open, before it forks others."""

    def rewrite(self, task: Started, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Give a running task other arguments for its next attempt."""

    def allow(self, task: Started, attempts: int) -> None:
        """Allow a running task at least so many attempts."""


class Replaced(Ignore):
    """Let the running task go on as another one: what ``replace()`` raises."""

    def __init__(self, task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__(f"replaced by {task}")
        self.task = task
        self.args_given = list(args)
        self.kwargs_given = dict(kwargs)


class GoesOn(Ignore):
    """The running task waits for the canvas that it goes on as, and ends with its result."""


retries: dict[tuple[str, int], tuple[float | None, Any]] = {}
"""Claims of this process whose handler has called ``retry()``, each with the seconds and the arguments it asked for."""


def asked_again(task: Started) -> tuple[bool, float | None]:
    """Whether a run that has ended asked to be run again, and after how many seconds. Forgets the request."""
    key = (task.task_id, task.fence)
    return key in retries, retries.pop(key, (None, None))[0]


@dataclass(frozen=True, slots=True)
class Publishing:
    """What an application publishes, sent through the ledger where a durable task is concerned."""

    app: Celery
    ledger: Ledger
    send: Any
    """The application's own way to publish."""

    def is_handler(self, name: str) -> bool:
        """Whether a Celery task is exported, by this process or by any other."""
        if handlers.of_task(name) is not None:
            return True
        if handlers.is_declared(name):
            if name in self.app.tasks:
                handlers.export_declared(self.app, name)
            return True
        return name not in self.app.tasks and self.ledger.is_handler(name)

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, countdown: Any = None, eta: Any = None,
                  task_id: str | None = None, **options: Any) -> Any:  # fmt: skip
        """``Celery.send_task``: every way of publishing a single task ends here."""
        running = running_task.get()
        timing = {"countdown": countdown, "eta": eta}
        if running is not None and options.get("replaced_task_nesting"):
            _refuse({**options, **timing}, f"replace({name})")
            raise Replaced(name, args or (), kwargs or {})
        if running is not None and task_id == running.task_id:
            return self._again(running, name, args, kwargs, {**options, **timing})
        step = running is None and in_flight.is_step(task_id, options, may_replace=self.runs_handler())
        if not self.is_handler(name):
            if not step:
                self._check_plain(name, kwargs, options)
            return self.send(name, args, kwargs, task_id=task_id, **timing, **options)
        if step:
            options["headers"] = {**(options.get("headers") or {}), in_flight.GOES_ON: True}
            return self.send(name, args, kwargs, task_id=task_id, **timing, **options)
        if options.get("replaced_task_nesting"):
            raise InvalidInput(f"a task outside of the ledger cannot be replaced by the handler {name}")
        if task_id is not None:
            raise InvalidInput(f"{name}: the ledger gives its tasks their ids; use idempotency_key", field="task_id")
        for option in ("chain", "chord", "group_id"):
            if options.get(option):
                raise InvalidInput(f"{name} is a handler: a message of Celery cannot lead to it", field=option)
        said = meant({**options, **timing})
        fields_of_call(said, self.app, None)  # so that a wrong one is named as the call names it
        signature: Signature[Any] = Signature(name, args, kwargs, said, app=self.app)
        with self.naming_the_ordinary(signature):
            (own_id,) = self.ledger.submit(signature, running).result_ids
        return (options.get("result_cls") or self.app.AsyncResult)(own_id)

    def _again(self, running: TaskContext, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        """A retry becomes the outcome of the attempt; arguments that it changes are written first."""
        if not options.get("retries"):
            raise InvalidInput(f"{name}: this is the id of the running task", field="task_id")
        countdown, eta = options.pop("countdown"), options.pop("eta")
        delay = seconds_until(eta or countdown)
        task = options.get("task_type") or self.app.tasks[name]  # of another application, maybe
        unchanged, missing = task.request.as_execution_options(), object()
        _refuse({key: value for key, value in options.items() if value != unchanged.get(key, missing)}, "retry()")
        given = list(args or ()), dict(kwargs or {})
        export = handlers.of_task(name)
        before = retries.get((running.task_id, running.fence))
        if export is not None and export.name == running.task.handler:
            if before is not None and before[1] != given:
                return self._one_more(running, task, name, given, countdown=countdown, eta=eta)
            if given != (running.task.args, running.task.kwargs):
                self.ledger.rewrite(running.task, given[0], {**given[1], **_told(task, running)})
            most = getattr(task, "override_max_retries", None)
            if export.repeats and most is not None and most >= export.defaults["total_attempts"]:
                self.ledger.allow(running.task, most + 1)
        elif given != _arguments(task.request):
            raise InvalidInput(f"{name} runs as a replacement: its retry cannot change its arguments")
        retries[running.task_id, running.fence] = delay, given
        return self.app.AsyncResult(running.task_id)

    def _one_more(self, running: TaskContext, task: Any, name: str, given: Any, **timing: Any) -> Any:
        """A second ``retry(throw=False)`` of one run, with other arguments: a task of its own with the attempts left."""
        override = getattr(task, "override_max_retries", None)
        most = task.max_retries if override is None else override
        if most is not None:
            timing["slackwater"] = {"total_attempts": max(1, most - task.request.retries)}
        return self.send_task(name, given[0], {**given[1], **_told(task, running, anew=True)}, **timing)

    def _check_plain(self, name: str, kwargs: Any, options: Mapping[str, Any]) -> None:
        """Refuse an ordinary message that names handlers in its links: they would run beside the ledger."""
        for leaf in leads_to(name, kwargs, options):
            if self.is_handler(leaf):
                if name in MAPS:
                    raise InvalidInput(
                        f"map, starmap and chunks of {leaf} cannot be stored; write a group", field="canvas"
                    )
                raise InvalidInput(
                    f"{name} is an ordinary Celery task: the handler {leaf} cannot follow or be part of it"
                )

    def runs_handler(self) -> bool:
        """Whether a message for a durable task runs in this thread: a step of a canvas that began before it was one."""
        task = get_current_worker_task()
        return task is not None and self.is_handler(task.name)

    def concerns(self, canvas: Signature[Any]) -> bool:
        """Whether a canvas has handlers in it. Each is asked, for the ledger is to know what each declares."""
        return True in {self.is_handler(name) for name in leaves(canvas)}

    @contextmanager
    def naming_the_ordinary(self, canvas: Signature[Any]) -> Iterator[None]:
        """Say of a canvas that is refused for a task that is not durable which it is, and what to do."""
        try:
            yield
        except InvalidInput as error:
            ordinary = next((name for name in leaves(canvas) if not self.is_handler(name)), None)
            if ordinary is None or not (error.field or "").endswith("handler"):
                raise
            raise InvalidInput(
                f"{ordinary} is not durable, and a canvas with a durable task is stored as a whole: name it in DURABLE"
                " (or in install's durable) too, or let a durable task call it",
                field="canvas",
            ) from error

    def publish(self, canvas: Signature[Any], args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        """``apply_async`` of a canvas with handlers in it: all of it is stored in the ledger."""
        if args or kwargs:
            raise InvalidInput("give the arguments to the signatures of the canvas", field="canvas")
        if not isinstance(canvas, group) and any(map(options.get, LINKS)):
            canvas = canvas.clone()
            for name in LINKS:
                for each in maybe_list(options.pop(name, None)) or ():
                    getattr(canvas, name)(each)
        kept = LINKS if isinstance(canvas, _chain) else ()
        said = meant({**{key: value for key, value in canvas.options.items() if key not in kept}, **options})
        _refuse({name: said[name] for name in said if name not in CALL_OPTIONS - NOT_OF_A_CANVAS}, "a canvas")
        fields_of_call(said, self.app, None)
        if said:
            canvas = called_with(canvas, said)
        with self.naming_the_ordinary(canvas):
            result: Any = self.ledger.submit(canvas, running_task.get()).result(self.app)
        if not isinstance(result, ResultSet) or len(result) != 1 or isinstance(canvas, group):
            return result
        (single,) = result  # the group of one at a chain's end: as in Celery it is its member
        single.parent = result.parent
        return single


def of(app: Celery) -> Publishing | None:
    """What was installed on an application."""
    found = getattr(app.send_task, "__self__", None)
    return found if isinstance(found, Publishing) else None


_home: Publishing | None = None
"""The first installation of this process."""


def install(app: Celery, ledger: Ledger) -> None:
    """Send what ``app`` publishes through the ledger, and of any other application the tasks that are durable.

    A shared task is of whichever application is current, and that is the one made last.
    """
    global _home  # noqa: PLW0603 - the one of this process
    made = Publishing(app, ledger, app.send_task)
    vars(app)["send_task"] = made.send_task
    _home = _home or made
    if not hasattr(Celery.send_task, "leads_strays"):
        _lead_strays()
    results.install(app, ledger)
    for kind in (_chain, group, chord):
        if not hasattr(kind.apply_async, "__wrapped__"):
            _lead(kind)


def _lead_strays() -> None:
    """Let an application without an installation publish no durable task: it is submitted as by the first that has one."""
    original: Any = Celery.send_task

    @wraps(original)
    def send_task(self: Any, name: str, *args: Any, **options: Any) -> Any:
        if of(self) is None and _home is not None and _is_stray(self, name, options.get("task_type")):
            options.pop("result_cls", None)  # it would ask the other application's backend
            return _home.send_task(name, *args, **options)
        return original(self, name, *args, **options)

    send_task.leads_strays = True  # type: ignore[attr-defined]  # a mark of ours
    setattr(Celery, "send_task", send_task)  # noqa: B010 - mypy refuses the assignment


def _is_stray(app: Any, name: str, task: Any = None) -> bool:
    """Whether a task of an application without an installation is durable; another one that has its name is not."""
    if handlers.is_declared(name):
        return True
    task = task or (app.tasks.get(name) if app.finalized else None)
    return task is not None and handlers.is_exported(task)


def _lead(kind: Any) -> None:
    """Let canvases with durable tasks be stored; others stay as they are."""
    original = kind.apply_async

    @wraps(original)
    def apply_async(self: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        canvas, kwargs = self, dict(kwargs or {})
        if kind is chord and kwargs.get("body"):
            canvas = self.clone()  # its application may be known of the body alone
            canvas.body = maybe_signature(kwargs["body"])
        publishing = of(canvas.app)
        if publishing is None and any(_is_stray(canvas.app, name) for name in leaves(canvas)):
            publishing = _home
        if publishing is None or canvas.app.conf.task_always_eager:
            return original(self, args, kwargs, **options)
        running = running_task.get()
        if running is not None and self.options.get("replaced_task_nesting"):
            with publishing.naming_the_ordinary(self):
                publishing.ledger.go_on_as(self, running)
            raise GoesOn("replaced by a canvas")
        if running is None and in_flight.is_step(self, options, may_replace=publishing.runs_handler()):
            with in_flight.publishing_steps():
                return original(self, args, kwargs, **options)
        if not publishing.concerns(canvas):
            return original(self, args, kwargs, **options)
        kwargs.pop("body", None)
        return publishing.publish(canvas, args, kwargs, options)

    kind.apply_async = apply_async


def _arguments(request: Any) -> tuple[list[Any], dict[str, Any]]:
    return list(request.args), request.kwargs


def leaves(found: Any) -> Iterator[str]:
    """The names of all tasks in a signature, a canvas, or a list of such."""
    for part in in_flight.parts(found):
        if part.get("subtask_type") not in CANVASES:
            yield part["task"]


def leads_to(name: str, kwargs: Any, options: Mapping[str, Any]) -> Iterator[str]:
    """The names of all tasks that a message leads to."""
    for option in ("chain", "chord", *LINKS):
        yield from leaves(options.get(option))
    if name in MAPS:
        yield from leaves((kwargs or {}).get("task"))


def _told(task: Any, running: TaskContext, *, anew: bool = False) -> dict[str, Any]:
    """The options of the running task's call, as its next attempt is to be told them.

    ``anew``: as another task is to be told them, which begins with its first attempt.
    """
    request = task.request
    soft = request.timelimit[1] if request.timelimit else None
    behind = request.retries + 1 - (0 if anew else running.task.retries + 1)
    found = {
        "headers": request.headers, "soft_time_limit": soft if soft != soft_limit(task) else None, "retries": behind,
    }  # fmt: skip
    told = {name: value for name, value in found.items() if value}
    return {CALL: told} if told else {}


def _refuse(options: Mapping[str, Any], what: str) -> None:
    for name in meant(options):
        raise InvalidInput(f"{what} cannot keep the option {name!r}", field=name)


def seconds_until(when: Any) -> float | None:
    """The delay of a retry, given as seconds, a moment or its ISO text; ``None`` leaves it to the task's back-off."""
    if when is None:
        return None
    if isinstance(when, str):
        when = datetime.fromisoformat(when)
    return max(0.0, when.timestamp() - time.time() if isinstance(when, datetime) else float(when))
