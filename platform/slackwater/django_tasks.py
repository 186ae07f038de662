"""Slackwater as a backend of ``django.tasks`` (Django 6.0) or of its backport ``django-tasks`` (Django 5.2).

    TASKS = {"default": {"BACKEND": "slackwater.django_tasks.SlackwaterBackend", "OPTIONS": {"TENANT": "shop"}}}

Each task function is a handler of its own name, so what is learnt, limited and explained is told by function. What is
enqueued is a row of the ledger in the transaction that is open: rolled back, there is no task.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules, import_string

from scheduler_ext.core.errors import InvalidInput, NotFound, SlackwaterError
from scheduler_ext.task import handlers
from scheduler_ext.task.context import current
from scheduler_ext.task.running import task as running_task
from slackwater_tasks.control.owner import owner
from slackwater_tasks.read import tasks as reading
from slackwater_tasks.spec import FIELDS, parse_task
from slackwater_tasks.submission.service import submit
from slackwater_tenants.scoping import tenant_scope

if TYPE_CHECKING:
    from django_tasks import signals, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.utils import normalize_json
else:
    _INTERFACE = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    signals, task_backends = import_module(f"{_INTERFACE}.signals"), import_module(_INTERFACE).task_backends
    BaseTaskBackend = import_module(f"{_INTERFACE}.backends.base").BaseTaskBackend
    _base, _exceptions = import_module(f"{_INTERFACE}.base"), import_module(f"{_INTERFACE}.exceptions")
    Task, TaskContext, TaskError = _base.Task, _base.TaskContext, _base.TaskError
    TaskResult, TaskResultStatus, normalize_json = _base.TaskResult, _base.TaskResultStatus, _base.normalize_json
    TaskResultDoesNotExist = _exceptions.TaskResultDoesNotExist
    # django-tasks 0.12 has not yet the name that Django gave it.
    InvalidTask = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError

ACTOR: Final = "django.tasks"
QUEUE: Final = "queue:"
"""The tag of a task in another queue than the default one."""
DEFAULT_QUEUE: Final = "default"
MIDDLE, STEP = 500, 5
"""The ledger's priority of Django's 0, and how much of it is one of Django's: -100 to 100 are 0 to 1000."""
OPTIONS: Final = ("TENANT", "DEFAULTS", "QUEUES", "TASKS")
GIVEN: Final = frozenset(
    {"handler", "script", "script_path", "args", "kwargs", "priority", "start_at", "idempotency_key"}
)
"""Fields that come from the task and its call, and not from the options."""
UNCOUNTED: Final = frozenset({"succeeded", "handed_back", "yielded", "preempted"})
"""Outcomes of attempts that are no error of the task's."""
STATUS: Final = {"waiting": "READY", "in_progress": "RUNNING"}
RAISED: Final = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
_tasks: dict[str, Task[..., Any]] = {}
"""The tasks of this process by their names."""


class NotRun(Exception):
    """An attempt ended without an exception of its own: its worker was lost, it reached its cap, it was cancelled."""


class SlackwaterBackend(BaseTaskBackend):
    """Enqueues into the ledger; the workers of Slackwater run it."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    enqueue_on_commit = True
    """Always: the ledger is in the same database, and the task part of the transaction."""

    def validate_task(self, task: Task[..., Any]) -> None:
        """What the interface asks for; a function that passes is a handler from now on."""
        super().validate_task(task)
        if len(task.module_path) > FIELDS["handler"].kind.longest:  # type: ignore[attr-defined]  # it is a text
            raise InvalidTask(f"{task.module_path} is longer than a handler's name may be.")
        export(task)

    def enqueue(self, task: Task[..., Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        """Submit a task, for the running one's tenant, the one in context, or the one the options name."""
        self.validate_task(task)
        path = task.module_path
        data: dict[str, Any] = {
            "total_attempts": 1, **self.fields_of(path, task.queue_name), "handler": path, "args": normalize_json(args),
            "kwargs": normalize_json(kwargs), "priority": MIDDLE + STEP * int(task.priority),
        }  # fmt: skip
        if task.run_after is not None:
            moment = task.run_after
            data["start_at"] = (moment if timezone.is_aware(moment) else timezone.make_aware(moment)).isoformat()
        if task.queue_name != DEFAULT_QUEUE:
            data["tags"] = [*data.get("tags", ()), QUEUE + task.queue_name]
        made = submit(owner(path, self.options.get("TENANT", "")), data, actor=ACTOR, idempotency_key=_key(data))
        result = self._result(task, str(made.task_ids[0]), data["args"], data["kwargs"])
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def fields_of(self, path: str, queue: str) -> dict[str, Any]:
        """What the options say of a function's tasks: its own word goes before its queue's, and that before all's."""
        given = self.options
        parts = given.get("DEFAULTS", {}), given.get("QUEUES", {}).get(queue, {}), given.get("TASKS", {}).get(path, {})
        return {name: value for part in parts for name, value in part.items()}

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """A task as it is now, of the tenant that :meth:`enqueue` would submit it for."""
        try:
            task_id = UUID(str(result_id))
            with tenant_scope(owner(str(result_id), self.options.get("TENANT", "")).pk):
                row, attempts = reading.task(task_id), reading.attempts(task_id)
            task = find(str(row["handler"]))
        except (ValueError, NotFound, ImportError) as error:
            raise TaskResultDoesNotExist(result_id) from error
        queue = next((tag.removeprefix(QUEUE) for tag in row["tags"] if tag.startswith(QUEUE)), DEFAULT_QUEUE)
        priority = round((row["priority"] - MIDDLE) / STEP)
        restored = task.using(priority=priority, queue_name=queue, run_after=row["start_at"], backend=self.alias)
        starts = [one["started_at"] for one in attempts]
        if row["status"] == "in_progress" and row["started_at"]:
            starts.append(row["started_at"])
        workers = [str(one["worker"] or one["node"]) for one in attempts]
        return self._result(
            restored, str(row["id"]), row["args"], row["kwargs"], value=row["result"],
            status=TaskResultStatus[STATUS.get(row["status"], "SUCCESSFUL" if row["state"] == "succeeded" else "FAILED")],
            started_at=min(starts, default=None), last_attempted_at=max(starts, default=None),
            finished_at=row["finished_at"], errors=_errors(row, attempts),
            worker_ids=[*workers, *([str(row["node"])] if len(starts) > len(workers) else [])],
        )  # fmt: skip

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """Whether the options have keys there are, with fields that a task can have."""
        unknown = sorted(set(self.options) - set(OPTIONS))
        if unknown:
            yield self._error(f"has {', '.join(unknown)}; known are {', '.join(OPTIONS)}")
        parts = {"DEFAULTS": self.options.get("DEFAULTS", {})}
        for name in ("QUEUES", "TASKS"):
            parts |= {f"{name}[{key!r}]": fields for key, fields in self.options.get(name, {}).items()}
        for place, fields in parts.items():
            try:
                if taken := sorted(GIVEN & set(fields)):
                    raise InvalidInput("comes from the task itself", field=taken[0])
                parse_task({**fields, "handler": "x"})
            except SlackwaterError as error:
                yield self._error(f"{place}: {error}")

    def _error(self, said: str) -> checks.Error:
        return checks.Error(f"OPTIONS of TASKS[{self.alias!r}] {said}", id="slackwater.E030")

    def _result(self, task: Task[..., Any], task_id: str, args: Any, kwargs: Any, *, value: Any = None,
                **known: Any) -> TaskResult[Any]:  # fmt: skip
        usual: dict[str, Any] = {
            "status": TaskResultStatus.READY, "started_at": None, "last_attempted_at": None, "finished_at": None,
            "errors": [], "worker_ids": [],
        }  # fmt: skip
        # An id of version 7 begins with the moment of its submission.
        enqueued = datetime.fromtimestamp((UUID(task_id).int >> 80) / 1000, UTC)
        result: TaskResult[Any] = TaskResult(
            task=task,
            id=task_id,
            enqueued_at=enqueued,
            args=list(args),
            kwargs=kwargs,
            backend=self.alias,
            **(usual | known),
        )
        _set(result, _return_value=value)
        return result


def find(path: str) -> Task[..., Any]:
    """The task of that name; ``ImportError`` where there is none."""
    if path not in _tasks:
        found = import_string(path)
        if not isinstance(found, Task):
            raise ImportError(f"{path} is no task")
        export(found)
    return _tasks[path]


def export(task: Task[..., Any]) -> None:
    """Make a task's function a handler under its own name."""
    path = task.module_path
    if path in _tasks:
        return
    _tasks[path] = task
    own = 1 if task.takes_context else 0  # Celery gives its own task first

    @wraps(task.func)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        begun = await sync_to_async(_begin)(task, args[own:], kwargs)
        try:
            return await sync_to_async(_end)(begun, await task.func(*_context(begun), *args[own:], **kwargs))
        except (Exception, SystemExit) as error:
            await sync_to_async(_fail)(begun, error)
            raise

    @wraps(task.func)
    def called(*args: Any, **kwargs: Any) -> Any:
        begun = _begin(task, args[own:], kwargs)
        try:
            return _end(begun, task.func(*_context(begun), *args[own:], **kwargs))
        except (Exception, SystemExit) as error:
            _fail(begun, error)
            raise

    handlers.handler(name=path, bind=task.takes_context)(awaited if iscoroutinefunction(task.func) else called)


def discover() -> None:
    """Export the tasks in the modules ``tasks`` of the installed apps: what a worker can run."""
    autodiscover_modules("tasks")
    for config in apps.get_app_configs():
        for value in list(vars(sys.modules.get(f"{config.name}.tasks", object)).values()):
            if isinstance(value, Task):
                export(value)


def _begin(task: Task[..., Any], args: Any, kwargs: Mapping[str, Any]) -> TaskResult[Any]:
    """The result of a run that begins; ``task_started`` is sent."""
    running, mine, now = current(), _backend_of(task), timezone.now()
    if running.attempt > 1:
        result = mine.get_result(running.task_id)
    else:
        task = task if task.backend == mine.alias else task.using(backend=mine.alias)
        result = mine._result(task, running.task_id, args, dict(kwargs), started_at=now)
    _set(result, status=TaskResultStatus.RUNNING, last_attempted_at=now)
    result.worker_ids[running.attempt - 1 :] = [f"attempt {running.attempt}"]
    signals.task_started.send(type(mine), task_result=result)
    return result


def _backend_of(task: Task[..., Any]) -> SlackwaterBackend:
    """The task's own backend; the first of this kind where it was enqueued by ``using(backend=…)``."""
    for alias in (task.backend, *task_backends):
        with suppress(ImproperlyConfigured):  # what another alias names may not be there
            backend = task_backends[alias]
            if isinstance(backend, SlackwaterBackend):
                return backend
    raise LookupError(f"no backend in TASKS is a SlackwaterBackend, and {task.module_path} was enqueued with one")


def _context(result: TaskResult[Any]) -> tuple[Any, ...]:
    return (TaskContext(task_result=result),) if result.task.takes_context else ()


def _end(result: TaskResult[Any], value: Any) -> Any:
    kept = normalize_json(value)
    _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=kept)
    signals.task_finished.send(SlackwaterBackend, task_result=result)
    return kept


def _fail(result: TaskResult[Any], error: BaseException) -> None:
    """Tell of an attempt that raised, when it was the last."""
    if result.status == TaskResultStatus.SUCCESSFUL:  # a receiver of the signal raised
        return
    result.errors.append(TaskError(
        exception_class_path=f"{type(error).__module__}.{type(error).__qualname__}",
        traceback="".join(traceback.format_exception(error)),
    ))  # fmt: skip
    running = current()
    with tenant_scope(running.tenant_id), suppress(NotFound):
        if running.task.retries + 1 < reading.task(UUID(running.task_id))["total_attempts"]:
            return
    _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    signals.task_finished.send(SlackwaterBackend, task_result=result)


def _set(result: TaskResult[Any], **values: Any) -> None:
    """Results are frozen for those who read them."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _errors(row: dict[str, Any], attempts: list[dict[str, Any]]) -> list[TaskError]:
    found = [_error_of(one["error"] or one["outcome"]) for one in attempts if one["outcome"] not in UNCOUNTED]
    if not found and row["status"] == "failed":
        found.append(_error_of(row["error"] or row["reason"] or row["state"]))
    return found


def _error_of(text: str) -> TaskError:
    """An attempt's traceback with the class that its last line names; ``NotRun`` where there is none."""
    lines = text.splitlines()
    inside = max((n for n, line in enumerate(lines) if line.startswith("  ")), default=-1)
    named = RAISED.match(lines[inside + 1]) if 0 <= inside < len(lines) - 1 else None
    path = f"{__name__}.{NotRun.__name__}"
    if named is not None and "Traceback" in text:
        path = named[1] if "." in named[1] else f"builtins.{named[1]}"
    return TaskError(exception_class_path=path, traceback=text if text.endswith("\n") else f"{text}\n")


def _key(data: Mapping[str, Any]) -> str | None:
    """Within a running task: a repeated attempt that makes the same calls submits nothing twice."""
    running = running_task.get()
    if running is None:
        return None
    digest = hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return f"django:{running.task_id}:{running.next_call()}:{digest}"
