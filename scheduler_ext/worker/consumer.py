"""Celery's consumer, which must outlive its broker, and takes no handler's work but the ledger's."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

from celery import signals
from celery.exceptions import NotRegistered
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.exceptions import OperationalError

from scheduler_ext.task import handlers

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Between attempts to reach a broker that is away; Celery's own pauses grow to 30 s, in which the children idle."""


class Consumer(CeleryConsumer):
    """Comes back after whatever the broker does: tokens may vanish at any moment, a worker's children may not.

    Two things ended Celery's worker, and with it all that its children ran: a broken connection that could not be
    closed (kombu gives unacknowledged messages back over the very link that is broken), and a broker without memory,
    whose answer counts as an error of the channel, while connecting or while running.
    """

    connection_errors: tuple[type[Exception], ...]
    conninfo: Any
    strategies: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As Celery makes it; what the broker answers counts as an error of the connection."""
        super().__init__(*args, **kwargs)
        self.refused: Counter[str] = Counter()
        """Messages for handlers that were refused, by the task's name; ``celery inspect stats`` shows them."""
        self.connection_errors = (*self.connection_errors, *self.conninfo.channel_errors, OperationalError)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Let go of the broken connection; the reconnection follows."""
        try:
            super().on_connection_error_after_connected(exc)
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is gone and a new one comes next
            log.warning("the broken broker connection could not be closed in order: %s", error)

    def ensure_connected(self, conn: Any) -> Any:
        """Wait for the broker, looking every second."""
        conn.ensure_connection = partial(
            conn.ensure_connection, interval_start=RETRY_S, interval_step=0, interval_max=RETRY_S
        )
        return super().ensure_connected(conn)

    def update_strategies(self) -> None:
        """What to do with a message by its task's name. One for a handler is refused: the ledger has no such run."""
        super().update_strategies()
        for export in handlers.exported().values():
            self.strategies[export.task] = partial(self.refuse, export.task)

    def refuse(self, name: str, message: Any, *_: Any) -> None:
        """Refuse a message for a handler: it has no tenant and no fence. The first one of each name is told."""
        self.refused[name] += 1
        task_id = message.headers.get("id") if message.headers else None
        error = NotRegistered(f"{name} is a handler of Slackwater and runs for its ledger only: hand it in there")
        level = logging.ERROR if self.refused[name] == 1 else logging.DEBUG
        log.log(
            level, "a message for the handler %s (id %s) was refused: it was published past the ledger", name, task_id
        )
        message.reject_log_error(log, self.connection_errors)
        signals.task_rejected.send(sender=self, message=message, exc=error)
        if task_id is not None:
            request = SimpleNamespace(
                name=name, chord=None, root_id=None, correlation_id=None, reply_to=None, errbacks=None
            )
            self.app.backend.mark_as_failure(task_id, error, request=request)
