"""Sends Celery's task events, so that Flower lists tasks: in batches, and only while somebody listens."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from celery import Celery
from celery.events.dispatcher import EventDispatcher
from celery.utils.time import utcoffset

from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished, Started

log = logging.getLogger(__name__)


class TaskEvents:
    """Collects the events of a batch and sends them as one message."""

    def __init__(self, app: Celery, hostname: str) -> None:
        """``hostname`` is the worker's name as Celery and Flower show it."""
        self.app = app
        self.hostname = hostname
        self._events: list[dict[str, Any]] = []
        self._dispatcher: Any = None

    def add(self, task: Started, finished: Finished) -> None:
        """Add what Flower knows a task by: received, started, and how it ended."""
        common = {"uuid": task.task_id, "root_id": task.task_id}
        named = {
            "name": task.handler or f"script {task.name or task.script_path or task.script_sha256[:12]}",
            "args": json.dumps(task.args)[:200], "kwargs": json.dumps(task.kwargs)[:200],
            "retries": task.retries, "eta": None, "expires": None, "parent_id": None,
        }  # fmt: skip
        self._event("task-received", finished.started_at, **common, **named)
        self._event("task-started", finished.started_at, **common)
        runtime = finished.finished_at - finished.started_at
        if finished.outcome is Outcome.SUCCEEDED:
            self._event(
                "task-succeeded",
                finished.finished_at,
                **common,
                result=(finished.result or "null")[:200],
                runtime=runtime,
            )
        else:
            lines = (finished.error or finished.outcome.name).strip().splitlines()
            kind = "task-retried" if finished.outcome is Outcome.RETRY else "task-failed"
            self._event(kind, finished.finished_at, **common, exception=lines[-1][:300], traceback=finished.error or "")

    def _event(self, kind: str, at: float, **fields: Any) -> None:
        self._events.append({"type": kind, "timestamp": at, **fields})

    def send(self) -> None:
        """Send what was collected; if the broker is away the events are lost, not the work."""
        if not self._events:
            return
        events, self._events = self._events, []
        away: tuple[type[BaseException], ...] = (OSError, *self.app.connection_for_write().transport.connection_errors)
        try:
            if self._dispatcher is None:
                connection = self.app.connection_for_write()
                self._dispatcher = EventDispatcher(connection, app=self.app, hostname=self.hostname)
            dispatcher = self._dispatcher
            common = {"hostname": self.hostname, "pid": os.getpid(), "utcoffset": utcoffset()}
            body = [{**common, "clock": dispatcher.clock.forward(), **event} for event in events]
            # The form in which Celery itself sends buffered groups: a list under the routing key task.multi.
            dispatcher._publish(body, dispatcher.producer, "task.multi")
        except away as error:
            log.debug("events not sent: %s", error)
            self._dispatcher = None
