"""The cache of polled statuses, kept true by the feed of changes, so that polling does not load the database.

A status is read from the ledger once and then answered from memory, until the feed in Redis reports a change of the
task or a second has passed; so it is never behind by more than the transition that is being published. While the feed
is not connected, nothing is answered from memory. The feed is followed only while clients poll.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final
from uuid import UUID

from scheduler_ext.core.states import FINAL
from slackwater_api.live.change_feed import Batch, Feed

TTL_S = 1.0
"""The seconds for which the status of a live task is answered from memory; workers notice a new reader this late."""
FINAL_TTL_S = 30.0
MAX_ENTRIES = 100_000
LINGER_S = 10.0
STATUS_FIELDS: Final = frozenset(("id", "status", "state", "cancel_requested", "finished_at"))
"""The cached fields of a task. Other fields change without a published transition (progress, an edit)."""
TASK: Final = re.compile(r"/api/v1/tasks/[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
FINAL_WORDS = frozenset(state.name.lower() for state in FINAL)
Read = Callable[[], dict[str, Any]]


def asks_status(path: str, query: Mapping[str, Sequence[str]]) -> bool:
    """Whether this is a question for a task's status and no more: ``/status``, or the task narrowed to such fields."""
    if path.endswith("/status"):
        return True
    if "fields" not in query or "wait" in query or not TASK.fullmatch(path):
        return False
    return is_about_status(query["fields"][-1])


def is_about_status(fields: str) -> bool:
    """Whether these fields, by comma, are all of them remembered."""
    return {name.strip() for name in fields.split(",")} <= STATUS_FIELDS


class Statuses:
    """The cached statuses of one process. Any thread reads them; the event loop's thread invalidates them."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, int, dict[str, Any]]] = OrderedDict()
        self._reading: dict[str, int] = {}
        """The latest read under way of each task, by number; removed when the task changes meanwhile."""
        self._tickets = count()
        self._asked_at = 0.0
        self._follows = False

    def follow(self) -> None:
        """Follow changes while clients poll; called in the event loop, returns at once."""
        loop = asyncio.get_running_loop()
        self._asked_at = loop.time()
        if not self._follows:
            self._follows = True
            self._feed.listen(self._receive)
            loop.call_later(LINGER_S, self._rest, loop)

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        idle = loop.time() - self._asked_at
        if idle < LINGER_S:
            loop.call_later(LINGER_S - idle, self._rest, loop)
            return
        self._follows = False
        self._feed.leave(self._receive)
        self._forget()

    def get(self, tenant_id: int, task_id: UUID, read: Read) -> dict[str, Any]:
        """The tenant's task as it stands; ``read`` asks the ledger, and raises ``NotFound``."""
        if not (self._follows and self._feed.is_connected):
            return read()
        name, now = str(task_id), time.monotonic()
        with self._lock:
            found = self._known.get(name)
            if found is not None and found[0] > now and found[1] == tenant_id:
                return found[2]
            mine = self._reading[name] = next(self._tickets)
        status = read()
        with self._lock:
            # Gone, or another's: it changed after this was read, or may have.
            if self._reading.get(name) == mine:
                del self._reading[name]
                self._keep(name, tenant_id, status)
        return status

    def _keep(self, name: str, tenant_id: int, status: dict[str, Any]) -> None:
        fresh = FINAL_TTL_S if status["state"] in FINAL_WORDS else TTL_S
        self._known[name] = (time.monotonic() + fresh, tenant_id, status)
        self._known.move_to_end(name)
        while len(self._known) > MAX_ENTRIES:
            self._known.popitem(last=False)

    def _receive(self, batch: Batch | None) -> None:
        if batch is None:
            self._forget()
            return
        with self._lock:
            for name, *_ in batch.changes:
                self._known.pop(name, None)
                self._reading.pop(name, None)

    def _forget(self) -> None:
        with self._lock:
            self._known.clear()
            self._reading.clear()
