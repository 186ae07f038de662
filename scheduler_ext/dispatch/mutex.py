"""Locks of mutex keys in Redis: ``SET NX PX`` with a token, renewed while the ledger says that it is held.

The ledger decides who holds a key; the lock mirrors it for all who look from outside. Its token is ``fence:task id``,
and the fence rises with every grant: a lock is only ever replaced by a later holder's, and only its own holder's end
removes it. Redis may lose it at any moment; the next renewal sets it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from scheduler_ext.core.work import Lock
from scheduler_ext.dispatch import redis_client
from scheduler_ext.dispatch.keys import Keys

log = logging.getLogger(__name__)

RENEWALS = 3
"""A lock is renewed this many times in its life."""


class LockMirror:
    """Keeps the locks as the ledger says. Without mutex keys in use it does nothing."""

    def __init__(self, client: redis_client.Redis, keys: Keys, life_s: float) -> None:
        """``life_s``: how long a lock lasts that is not renewed."""
        self.keys = keys
        self.life_s = life_s
        folder = files("scheduler_ext") / "lua"
        self._lock: Any = client.register_script((folder / "lock.lua").read_text())
        self._unlock: Any = client.register_script((folder / "unlock.lua").read_text())
        self._held: dict[str, str] = {}
        """Tokens by Redis key."""
        self._renewed = float("-inf")
        self._client = client

    def follow(self, holders: Callable[[], Sequence[Lock]], *, new: bool) -> None:
        """Set, renew and remove what is due. ``new``: a key has just been granted, so look at once.

        Without Redis nothing is mirrored, and nothing else changes.
        """
        due = time.monotonic() - self._renewed >= self.life_s / RENEWALS
        if not new and not (due and (self._held or self._renewed == float("-inf"))):
            return
        now = {self._key(lock): f"{lock.fence}:{lock.task_id}" for lock in holders()}
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for key, token in now.items():
                    if due or self._held.get(key) != token:
                        self._lock(keys=[key], args=[token, int(self.life_s * 1000)], client=pipe)
                for key, token in self._held.items():
                    if key not in now:
                        self._unlock(keys=[key], args=[token], client=pipe)
                pipe.execute()
        except redis_client.RedisError as error:
            log.warning("mutex locks are not mirrored: %s", error)
            return
        if due:
            self._renewed = time.monotonic()
        self._held = now

    def _key(self, lock: Lock) -> str:
        return self.keys.mutex(lock.key, lock.task_id if lock.limit > 1 else "")
