"""Counts what this process refused of what came through Redis, by kind, and logs each kind once a minute.

Whoever can write to Redis can send anything; it must neither be acted on nor fill a log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

log = logging.getLogger(__name__)

TELL_EVERY_S = 60.0


class Kind(StrEnum):
    """What can be refused; the names are the label of the metric."""

    MESSAGE = "message"
    """A Celery message without this platform's signature, or for a handler."""
    CONTROL = "control"
    """A command of remote control that only the platform may give."""
    BROKEN = "broken"
    """An item that is no message at all."""
    CLAIM = "claim"
    """An entry of a node's queue that is no claim."""
    CHANGE = "change"
    """An entry of the feed of changes."""
    CACHED = "cached"
    """A remembered answer."""


class Refusals:
    """The counts of this process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[Kind] = Counter()
        self.also: Callable[[Kind, int], None] | None = None
        """Called for each one, where several processes count together."""
        self._now = now
        self._told: dict[Kind, float] = {}
        self._lock = threading.Lock()

    def add(self, kind: Kind, why: str, count: int = 1) -> None:
        """Count a refusal; ``why`` is logged with the first of a minute, shortened, without control characters."""
        with self._lock:
            self.counts[kind] += count
            now = self._now()
            tell = now - self._told.get(kind, float("-inf")) >= TELL_EVERY_S
            if tell:
                self._told[kind] = now
        if self.also is not None:
            self.also(kind, count)
        if tell:
            shown = "".join(letter if letter.isprintable() else "?" for letter in why[:300])
            log.error("refused what came through Redis (%s, %s so far): %s", kind, self.counts[kind], shown)


refusals = Refusals()
"""The counts of this process."""
