"""The thread that watches and tells. Upkeep runs one and beat runs one, so that each is missed by the other."""

from __future__ import annotations

import logging
import threading
from typing import Final

from django.conf import settings
from django.db import Error, connection

from slackwater_monitoring.alerts import evaluation, sender
from slackwater_monitoring.alerts.rules import rules

log = logging.getLogger(__name__)

STOP_S: Final = 5.0


class Watcher:
    """Looks every few seconds. Beside the jobs, not among them: mail that hangs must not hold up what is mended."""

    def __init__(self) -> None:
        """``ConfigurationError`` when a rule cannot be."""
        rules()
        self.every_s = float(settings.SLACKWATER_ALERTS["EVERY_S"])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after what it is at."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(self.every_s):
            try:
                for alert in evaluation.look():
                    log.warning("alert %s: %s", "cleared" if alert.cleared_at else "raised", alert)
                sender.tell()
            except Error as error:
                log.warning("alerts wait for the database: %s", str(error).strip().splitlines()[:1])
                connection.close()
            except Exception:
                log.exception("a look for alerts failed; the next one tries again")
        connection.close()
