"""Durable tasks of an application without access to the database: what it calls is submitted over REST.

    slackwater.install(app, url="https://…", key="…", durable=["orders.*"])

What becomes of a call is made by the same code as with a database. Django is not needed, and not imported.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Any, Final, NoReturn

from celery import Celery, bootsteps

from scheduler_ext.core.errors import ConfigurationError, InvalidInput
from scheduler_ext.core.states import TaskState
from scheduler_ext.core.work import Started
from scheduler_ext.task import celery_json, handlers, publishing
from scheduler_ext.task.canvas import alone, compile_canvas
from scheduler_ext.task.context import TaskContext
from scheduler_ext.task.results import Seen
from scheduler_ext.task.steps import Stored
from slackwater.client import Client, Conflict, NotFound, TimedOut
from slackwater.client.operations import HELD_S

log = logging.getLogger(__name__)
REMEMBERED_S: Final = 5.0
"""How long it is remembered whether the platform knows a handler."""


def install(app: Celery, *, url: str, key: str, durable: Sequence[str]) -> None:
    """Let calls of the tasks that ``durable`` names be submitted to the platform at ``url``, for the tenant of ``key``.

    Without either, SLACKWATER_URL and SLACKWATER_KEY.
    """
    ledger = RestLedger(url or None, key or None)
    if publishing.of(app) is not None:
        return
    handlers.declare(durable)
    publishing.install(app, ledger)
    app.steps["worker"].add(NeedsDatabase)


class RestLedger(publishing.Ledger):
    """Takes what an application publishes, for the tenant of a key."""

    def __init__(self, url: str | None = None, key: str | None = None, **options: Any) -> None:
        """``options``: those of the client."""
        self._given = (url, key, options)
        self._client = (os.getpid(), Client(url, key, **options))
        self._known: dict[str, tuple[bool, float]] = {}

    @property
    def client(self) -> Client:
        """The client of this process: one that was forked shares no connection with its parent."""
        pid, client = self._client
        if pid != os.getpid():
            url, key, options = self._given
            client = Client(url, key, **options)
            self._client = (os.getpid(), client)
        return client

    def is_handler(self, name: str) -> bool:
        """Whether the platform knows a handler of that name that the tenant may run."""
        known, until = self._known.get(name, (False, 0.0))
        if time.monotonic() < until:
            return known
        try:
            self.client.handler(name)
            known = True
        except NotFound:
            known = False
        self._known[name] = known, time.monotonic() + REMEMBERED_S
        return known

    def submit(self, signature: Any, running: TaskContext | None) -> Stored:
        """Submit a signature, or a canvas as a workflow; each request has an idempotency key."""
        if running is not None:
            _needs_database("a call inside a running task")
        tasks, last = compile_canvas(signature)
        for task in tasks:
            task["args"], task["kwargs"] = _plain(task)
        if len(tasks) == 1:
            return Stored(last, {tasks[0]["name"]: self.client.submit(**alone(tasks[0]))["id"]})
        made = self.client.submit_workflow(tasks)  # type: ignore[arg-type]  # what was compiled
        return Stored(last, dict(zip((task["name"] for task in tasks), made["task_ids"], strict=True)))

    # -- results --------------------------------------------------------------------------------------------------
    def look(self, task_id: str) -> Seen | None:
        """The task as the platform tells of it."""
        try:
            return seen(self.client.get(task_id))
        except NotFound:
            return None

    def children(self, task_id: str) -> list[str]:
        """The tasks that the task has submitted while it ran, each one of a canvas too."""
        return [one["id"] for one in self.client.tasks(submitted_by=f"task:{task_id}", sort="submitted_at")]

    def cancel(self, task_id: str, *, running: bool) -> bool:
        """Cancel a task, one that runs only with ``running``; of one that has ended nothing is changed."""
        try:
            self.client.cancel(task_id, waiting_only=not running)
        except NotFound:
            return False
        except Conflict:
            pass
        return True

    def forget(self, task_id: str) -> bool:
        """Delete the task's result."""
        try:
            self.client.forget(task_id)
        except NotFound:
            return False
        return True

    def unreachable(self, task_id: str) -> bool:
        """Never: a call is submitted when it returns."""
        return False

    def linger(self, task_id: str, pause_s: float, most_s: float) -> None:
        """Hold one request until the task has ended."""
        with suppress(TimedOut):
            self.client.wait(task_id, timeout_s=min(HELD_S, most_s))

    # -- of running tasks, which are where the database is ----------------------------------------------------------
    def go_on_as(self, canvas: Any, running: TaskContext) -> None:
        """Refuse."""
        _needs_database("replace()")

    def unsuccessful(self, task: Started, *, gathered: bool) -> Seen | None:
        """Refuse."""
        _needs_database("a running task")

    def of_tenant(self, task_id: str, tenant_id: int) -> AbstractContextManager[Seen | None]:
        """Refuse."""
        _needs_database("a running task")

    def rewrite(self, task: Started, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Refuse."""
        _needs_database("retry()")

    def allow(self, task: Started, attempts: int) -> None:
        """Refuse."""
        _needs_database("retry()")

    def release(self) -> None:
        """Nothing to do: a fork makes connections of its own."""


class NeedsDatabase(bootsteps.StartStopStep):
    """Says at the start of a worker that it is no node: what it was given is enough to call tasks, not to run them."""

    def include_if(self, worker: Any) -> bool:
        """Never: there is nothing to start."""
        log.error(
            "this worker runs no durable tasks: slackwater.install() was given url and key, which is enough to call"
            " them. To run them it needs database_url, and as key the platform's secret key"
        )
        return False


def seen(task: Mapping[str, Any]) -> Seen:
    """A task as the API shows it, for Celery's results."""
    ended = task["finished_at"]
    return Seen(
        task_id=task["id"], handler=task["handler"] or "", state=TaskState[task["state"].upper()],
        attempts=task["attempts"], result=task["result"], error=task["error"] or "", reason=task["reason"] or "",
        progress=task["progress"], finished_at=datetime.fromisoformat(ended) if ended else None, args=task["args"],
        kwargs=task["kwargs"], cap_ms=round(task["execution_cap_s"] * 1000),
    )  # fmt: skip


def _plain(task: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a task as JSON can carry them."""
    args, kwargs = task["args"], task["kwargs"]
    try:
        json.dumps([args, kwargs], allow_nan=False)
    except TypeError:
        try:
            return celery_json.written(args, kwargs)
        except (TypeError, ValueError) as error:
            raise _unwritable(task, error) from error
    except (ValueError, RecursionError) as error:
        raise _unwritable(task, error) from error
    return args, kwargs


def _unwritable(task: dict[str, Any], error: Exception) -> InvalidInput:
    return InvalidInput(f"{task['handler']}: the arguments cannot be written as JSON: {error}", field="args")


def _needs_database(what: str) -> NoReturn:
    raise ConfigurationError(f"{what} needs the database: slackwater.install() was given url and key", field="url")
