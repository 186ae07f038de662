"""Celery's consumer, which must outlive its broker."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)

AGAIN_S = 1.0
"""Between attempts to reach a broker that is away; Celery's own pauses grow to 30 s, in which the children idle."""


class Consumer(CeleryConsumer):
    """Comes back after whatever the broker does: tokens may vanish at any moment, a worker's children may not.

    Two things ended Celery's worker, and with it all that its children ran: a broken connection that could not be
    closed (kombu gives unacknowledged messages back over the very link that is broken), and a broker without memory,
    whose answer counts as an error of the channel, while connecting or while running.
    """

    connection_errors: tuple[type[Exception], ...]
    conninfo: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As Celery makes it; what the broker answers counts as an error of the connection."""
        super().__init__(*args, **kwargs)
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
            conn.ensure_connection,
            interval_start=AGAIN_S,
            interval_step=0,
            interval_max=AGAIN_S,
        )
        return super().ensure_connected(conn)
