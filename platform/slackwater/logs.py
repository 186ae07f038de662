"""Logs: one line an event, on standard error, readable for people or as JSON for machines.

Standard library loggers and structlog end in the same handler, so whatever a library says carries the same
fields (time, level, logger, what structlog's context holds, and of a line from inside a task its task, attempt and
tenant). A worker's children write theirs on a thread of its own, with the worker's name and their slot.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from functools import cache, cached_property
from io import StringIO
from logging.handlers import RotatingFileHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from scheduler_ext.core.plain_text import harmless
from scheduler_ext.task import redaction, running

FORMS = ("console", "json")
MAX_WAITING = 10_000
"""Lines that wait to be written; further ones are counted and dropped, so that no task waits for its log."""
FILE_BYTES, FILES = 10 << 20, 3
"""Of each slot's own file, and how many older ones are kept."""
FLUSH_S = 2.0

_place: dict[str, Any] = {}


def add_running(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Say in which worker and slot, and inside which task, a line was written."""
    event.update(_place)
    task = running.task.get()
    if task is not None:
        event.update(task=task.task_id, attempt=task.attempt, tenant=task.tenant_id)
    return event


@cache
def _shared_processors() -> list[Any]:
    import structlog

    return [
        structlog.contextvars.merge_contextvars,
        add_running,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def configure_structlog() -> None:
    """Let structlog hand its events to the standard library's handlers: for processes whose code logs by it."""
    import structlog

    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared_processors(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _without_time(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    # Under `make up` the supervisor writes the time in front of every line; twice would only be noise.
    event.pop("timestamp", None)
    return event


def _without_secrets(logger: Any, name: str, event: Any) -> Any:
    """``event``, or the line it has become, without what handlers asked for, of whichever tenant."""
    secrets = redaction.revealed()
    return _blotted(event, secrets) if secrets else event


def _blotted(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, (bool, int, float, type(None))):
        return value  # a number that is no string any more stays one, or the line would be no JSON
    if isinstance(value, Mapping):
        return {key: _blotted(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_blotted(item, secrets) for item in value]
    return redaction.blotted(value if isinstance(value, str) else repr(value), secrets)


def _without_control(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """``event`` with nothing in it that steers a terminal, or that could be taken for a line of its own."""
    for key, value in event.items():
        if key in {"event", "exception", "stack"} and isinstance(value, str):
            event[key] = harmless(value, lines=True).replace("\n", "\n    ")
        elif isinstance(value, str):
            event[key] = harmless(value)
    return event


def _traceback(out: TextIO, error: Any) -> None:
    """Without the values of local variables, which the richer forms of a traceback show."""
    import structlog

    said = StringIO()
    structlog.dev.plain_traceback(said, error)
    out.write(harmless(said.getvalue(), lines=True))


def _processors(form: str) -> list[Any]:
    import structlog

    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if form == "json":
        made = structlog.processors.format_exc_info
        return [remove_meta, made, _without_secrets, structlog.processors.JSONRenderer()]
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), pad_event_to=0, pad_level=False,
        exception_formatter=_traceback,
    )  # fmt: skip
    return [
        remove_meta,
        *([] if sys.stderr.isatty() else [_without_time]),
        _without_control,
        renderer,
        _without_secrets,
    ]


class LineFormatter(logging.Formatter):
    """structlog's formatter, made for the first line: many a command writes none, and need not load it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        return self._made.format(record)

    @cached_property
    def _made(self) -> logging.Formatter:
        import structlog

        return structlog.stdlib.ProcessorFormatter(
            processors=_processors(self._form), foreign_pre_chain=_shared_processors()
        )


def logging_config(*, level: str, form: str) -> dict[str, Any]:
    """Return Django's LOGGING for a level ("INFO") and a form ("console" or "json").

    Raises ValueError when the form is neither.
    """
    if form not in FORMS:
        raise ValueError(f"SLACKWATER_LOG_FORMAT is {form!r}; it must be one of {', '.join(FORMS)}")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {"()": LineFormatter, "form": form},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"level": level, "propagate": True, "handlers": []},
            "django.server": {"level": level, "propagate": True, "handlers": []},
        },
    }


class Beside(logging.Handler):
    """Passes lines on to handlers of streams on a thread of its own: who logs waits neither for a pipe nor a disk."""

    def __init__(self, targets: Sequence[logging.StreamHandler[Any]]) -> None:
        super().__init__()
        self.targets = targets
        self._lines: SimpleQueue[tuple[logging.StreamHandler[Any], str] | None] = SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Format the record in this thread, where the task is known; the other thread writes it."""
        if self._lines.qsize() >= MAX_WAITING:
            self._dropped += 1
            return
        try:
            for target in self.targets:
                if record.levelno >= target.level and target.filter(record):
                    self._lines.put((target, target.format(record)))
        except Exception:  # noqa: BLE001 - a line that cannot be made is no reason to fail a task
            self.handleError(record)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            self._put(*line)
            if self._lines.empty():
                if self._dropped:
                    self._tell_dropped()
                self._flush()
        self._flush()

    @staticmethod
    def _put(target: logging.StreamHandler[Any], text: str) -> None:
        with contextlib.suppress(Exception):  # the stream is gone; nobody is left to be told
            if isinstance(target, RotatingFileHandler):
                if target.stream is None:
                    target.stream = target._open()
                elif target.stream.tell() > FILE_BYTES:
                    target.doRollover()
            target.stream.write(text + target.terminator)

    def _tell_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        said = logging.LogRecord(__name__, logging.WARNING, "", 0, "%s lines of the log were dropped", (dropped,), None)
        for target in self.targets:
            self._put(target, target.format(said))

    def _flush(self) -> None:
        for target in self.targets:
            with contextlib.suppress(Exception):
                target.flush()

    def close(self) -> None:
        """Write what waits, as far as that goes in two seconds."""
        self._lines.put(None)
        self._thread.join(FLUSH_S)
        if not self._thread.is_alive():
            for target in self.targets:
                if isinstance(target, RotatingFileHandler):
                    target.close()
        super().close()


def write_beside(worker: str, slot: int, folder: str) -> None:
    """Let this process's lines carry its place and be written beside its work, and into ``folder`` if that is set."""
    _place.update(worker=worker, slot=slot)
    root = logging.getLogger()
    # Of what an operator has added, files and senders go on as they are.
    targets: list[logging.StreamHandler[Any]] = [
        one
        for one in root.handlers
        if isinstance(one, logging.StreamHandler) and not isinstance(one, logging.FileHandler)
    ]
    others = [one for one in root.handlers if one not in targets]
    if folder and (own := _own_file(folder, f"{worker}-{slot}.log")) is not None:
        targets.append(own)
    root.handlers[:] = [*others, Beside(targets)]
    # A process that a handler forks has no such thread.
    os.register_at_fork(after_in_child=_write_plainly)


def _own_file(folder: str, name: str) -> RotatingFileHandler | None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        own = RotatingFileHandler(Path(folder, name), backupCount=FILES, encoding="utf-8")
    except OSError as error:
        logging.getLogger(__name__).warning("no log is kept in SLACKWATER_LOG_DIR: %s", error)
        return None
    own.setFormatter(LineFormatter("json"))
    return own


def _write_plainly() -> None:
    root = logging.getLogger()
    root.handlers[:] = [
        target for one in root.handlers for target in (one.targets if isinstance(one, Beside) else (one,))
    ]


def end_beside() -> None:
    """Write the waiting lines, before this process ends."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Beside):
            handler.close()
