"""Logs: one line an event, on standard error, readable for people or as JSON for machines.

Standard library loggers and structlog end in the same handler, so whatever a library says carries the same
fields (time, level, logger, and what structlog's context holds: task, tenant, node).
"""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

from scheduler_ext.keys import SLICE_TASK

FORMS = ("console", "json")

SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]


class TokenNoise(logging.Filter):
    """Drops what Celery says of each token at level INFO: a worker lends its children all day."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for such a line."""
        told = record.args
        return not (
            record.levelno <= logging.INFO and isinstance(told, Mapping) and told.get("name") == SLICE_TASK
        )


def configure_structlog() -> None:
    """Let structlog hand its events to the standard library's handlers."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED_PROCESSORS,
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


def _processors(form: str) -> list[Any]:
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if form == "json":
        return [remove_meta, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0, pad_level=False)
    return [remove_meta, *([] if sys.stderr.isatty() else [_without_time]), renderer]


def logging_config(*, level: str, form: str) -> dict[str, Any]:
    """Return Django's LOGGING for a level ("INFO") and a form ("console" or "json").

    Raises ValueError when the form is neither.
    """
    if form not in FORMS:
        raise ValueError(f"SLACKWATER_LOG_FORMAT is {form!r}; it must be one of {', '.join(FORMS)}")
    configure_structlog()
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": "structlog.stdlib.ProcessorFormatter",
                "processors": _processors(form),
                "foreign_pre_chain": SHARED_PROCESSORS,
            },
        },
        "filters": {"tokens": {"()": TokenNoise}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["tokens"]}
        },
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"level": level, "propagate": True, "handlers": []},
            "django.server": {"level": level, "propagate": True, "handlers": []},
        },
    }
