"""Progress of running tasks on live streams: sent while somebody follows one, a few times a second at most.

The ledger has the newest always. What is told goes through the feed of changes, which must not be filled by one task
that reports in a loop: so it is thinned here, in the process that runs the task.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from scheduler_ext.core.states import TaskState
from scheduler_ext.dispatch import redis_client
from slackwater_tasks.ledger.hints import client, keys, tell_changes

log = logging.getLogger(__name__)

EVERY_S: Final = 0.25
"""The least seconds between two reports of a task."""
POLL_S: Final = 1.0
"""Seconds between two checks whether anybody follows a stream."""
MAX_CHARS: Final = 4_096
"""The most characters; a longer progress is not sent, and clients ask for the task instead."""
REMEMBERED: Final = 1_000


class Teller:
    """What one process has sent, and when."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._told: dict[str, float] = {}
        self._looked = float("-inf")
        self._watched = False

    def tell(self, task_id: str, tenant_id: int, workflow_id: str | None, value: str) -> bool:
        """Send a task's progress (JSON); False if nobody listens, or one was sent a moment ago."""
        now = self._now()
        if len(value) > MAX_CHARS or now - self._told.get(task_id, float("-inf")) < EVERY_S or not self._listens(now):
            return False
        while len(self._told) >= REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told.pop(task_id, None)
        self._told[task_id] = now
        row: tuple[Any, ...] = (
            task_id, int(TaskState.RUNNING), tenant_id, workflow_id, None, {"progress": json.loads(value)},
        )  # fmt: skip
        tell_changes([row])
        return True

    def _listens(self, now: float) -> bool:
        if now - self._looked >= POLL_S:
            self._looked = now
            try:
                self._watched = bool(client().exists(keys().watched()))
            except redis_client.RedisError as error:
                log.debug("nobody is told of progress: %s", error)
                self._watched = False
        return self._watched


teller = Teller()
