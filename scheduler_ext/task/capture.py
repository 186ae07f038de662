"""Catches what handlers print and log: it replaces the process's streams and adds a log handler."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final

from scheduler_ext.task import redaction, running
from scheduler_ext.task.output import output

REDIRECTED: Final = "celery.redirected"
"""The logger through which Celery writes what is printed: such lines are kept already."""
PLACES: Final = frozenset({"event", "task", "attempt", "tenant", "worker", "slot", "level", "logger", "timestamp"})
_formatter = logging.Formatter()


class TaskStream:
    """``sys.stdout`` or ``sys.stderr``: what a task writes is kept, then passed on, whole lines at a time."""

    def __init__(self, name: str, beneath: Any) -> None:
        self._name = name
        self._beneath = beneath

    def write(self, text: str) -> int:
        """Write, as any text stream does."""
        context = running.task.get()
        if context is None or not isinstance(text, str):
            return int(self._beneath.write(text) or 0)
        task = context.task
        lines = output.write(task, self._name, text, lambda: redaction.known(task.tenant_id))
        if lines:
            output.pass_on(task, self._beneath, lines)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._beneath, name)


class TaskLog(logging.Handler):
    """Keeps what a running task logs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line if a task logged it."""
        context = running.task.get()
        if context is None or record.name == REDIRECTED:
            return
        try:
            output.catch_up(context.task)
            text = redaction.hide(context.task.tenant_id, _said(record))
            output.add(context.task, "log", _level(record.levelno), text)
        except Exception:  # noqa: BLE001 - a line that cannot be made is no reason to fail a task
            self.handleError(record)


def _said(record: logging.LogRecord) -> str:
    """The message with its extra fields, and the traceback."""
    if isinstance(record.msg, Mapping):  # structlog's
        beside = (f"{name}={value!r}" for name, value in record.msg.items() if name not in PLACES and name[:1] != "_")
        text = " ".join([str(record.msg.get("event", "")), *beside])
    else:
        text = record.getMessage()
    if record.exc_info:
        text += "\n" + _formatter.formatException(record.exc_info)
    return text


def _level(number: int) -> str:
    for least, name in ((50, "critical"), (40, "error"), (30, "warning"), (20, "info")):
        if number >= least:
            return name
    return "debug"


def install() -> None:
    """Catch what the handlers of this process print and log from now on."""
    sys.stdout, sys.stderr = TaskStream("stdout", sys.stdout), TaskStream("stderr", sys.stderr)
    handler = TaskLog()
    logging.getLogger().handlers.insert(0, handler)  # first, so that what was printed before goes before
    tasks = logging.getLogger("celery.task")
    if not tasks.propagate:  # Celery gives its tasks' loggers handlers of their own
        tasks.handlers.insert(0, handler)
