"""Celery's consumer, which must outlive its broker."""

from __future__ import annotations

import logging

from celery.worker.consumer import Consumer as CeleryConsumer

log = logging.getLogger(__name__)


class Consumer(CeleryConsumer):
    """Comes back after whatever a broken connection does when it is closed.

    Kombu gives back unacknowledged messages while it closes a connection, over the very link that is broken; what
    that raises ends Celery's worker, and with it all that its children run. Tokens need no giving back: they are
    topped up.
    """

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Let go of the broken connection; the reconnection follows."""
        try:
            super().on_connection_error_after_connected(exc)
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is gone and a new one comes next
            log.warning("the broken broker connection could not be closed in order: %s", error)
