"""The platform's own processes: each reports every few seconds from a thread of its own.

Nodes have leases instead; these are the submitters, dispatchers, upkeeps and beats. A report says only that the process is
alive: whether it gets on with its work is shown by the leader's row and by the pulses.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Any, Final

from slackwater_resources.faults import FAULTS

log = logging.getLogger(__name__)

BEAT_S: Final = 5.0
SILENT_AFTER_S: Final = 3 * BEAT_S
"""After this long without a word a component counts as silent."""
KEPT_DAYS: Final = 30
JOIN_TIMEOUT_S: Final = 2.0
REGISTER = """
WITH old AS (DELETE FROM slackwater_resources_component WHERE beat_at < clock_timestamp() - %s * interval '1 day')
INSERT INTO slackwater_resources_component (kind, cell, hostname, pid, started_at, beat_at)
VALUES (%s, %s, %s, %s, clock_timestamp(), clock_timestamp()) RETURNING id
"""
BEAT = "UPDATE slackwater_resources_component SET beat_at = clock_timestamp() WHERE id = %s"
LEAVE = (
    "UPDATE slackwater_resources_component SET beat_at = clock_timestamp(), left_at = clock_timestamp() WHERE id = %s"
)


class _Own:
    """The registration of this process."""

    id: int | None = None


own = _Own()
"""Stands on every task this process admits; ``None`` until it is registered, and where nothing registers."""


class Heartbeat:
    """Registers this process and reports that it lives, for as long as it does."""

    def __init__(self, kind: str, cell: str, database: Any) -> None:
        """``kind``: submitter, dispatcher, upkeep or beat. ``database`` has an autocommit connection as ``conn``."""
        self.kind, self.cell, self.db = kind, cell, database
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> Heartbeat:
        """Begin; returns at once, and waits for a database that is away."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Report that the process ends in order."""
        self._stopping.set()
        self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._tell(last=False)
            self._stopping.wait(BEAT_S)
        self._tell(last=True)

    def _tell(self, *, last: bool) -> None:
        try:
            if own.id is None:
                row = self.db.conn.execute(
                    REGISTER, (KEPT_DAYS, self.kind, self.cell, socket.gethostname()[:200], os.getpid())
                ).fetchone()
                own.id = int(row[0])
            elif not last and self.db.conn.execute(BEAT, (own.id,)).rowcount == 0:
                own.id = None  # so long unheard that its row was cleared away: it registers anew
            if last:
                self.db.conn.execute(LEAVE, (own.id,))
                self.db.close()
        except FAULTS as error:
            log.debug("not heard: %s", error)
