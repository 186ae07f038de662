"""The feed of changes: a bounded stream in Redis that gets every accepted change of state, batch by batch.

It may vanish at any moment: whoever follows it finds what it missed in the ledger. Whoever can write to Redis can write
here: so a batch bears the platform's seal and the time (Redis') at which it was added. One without the seal tells
nothing; one that was added anew, later, is told apart by its place in the stream.
"""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler_ext.core.seals import seals
from scheduler_ext.core.work import Change
from scheduler_ext.dispatch.keys import Keys

KEPT = 2_000
"""Batches kept for those who come back: at most 256 changes each, some 60 MB in all."""
FIELD = "c"
AT = "t"
MARK = "s"
WATCHED_S = 5
"""How long the mark of a follower lasts; a follower renews it."""
CLOCK_S: Final = 10.0
"""Seconds between two requests for Redis' time."""
APART_MS: Final = 2_000
"""A batch's place in the stream and its own time may differ by this much, else it was not added there."""
REMEMBERED: Final = 4_096


@dataclass(slots=True)
class _Clock:
    """Redis' time as this process knows it."""

    pid: int = 0
    until: float = 0.0
    offset_ms: float = 0.0

    def now_ms(self, client: Any) -> int:
        """Milliseconds of Redis' clock."""
        now = time.monotonic()
        if now > self.until or self.pid != os.getpid():
            seconds, micros = client.time()
            self.offset_ms = seconds * 1000 + micros / 1000 - now * 1000
            self.pid, self.until = os.getpid(), now + CLOCK_S
        return int(now * 1000 + self.offset_ms)


_clock = _Clock()


def command(client: Any, keys: Keys, changes: Sequence[Change | tuple[Any, ...]]) -> Sequence[Any]:
    """The command that adds a batch to the feed; ``client`` is asked for Redis' time, seldom."""
    text = json.dumps(changes, separators=(",", ":"))
    at = str(_clock.now_ms(client))
    mark = seals.mark("change", at.encode(), text.encode())
    return "XADD", keys.changes(), "MAXLEN", "~", KEPT, "*", FIELD, text, AT, at, MARK, mark


def add(client: Any, keys: Keys, changes: Sequence[Change | tuple[Any, ...]]) -> Any:
    """Add a batch to the feed, and return its id."""
    return client.execute_command(*command(client, keys, changes))


@dataclass(slots=True)
class Reader:
    """One follower's check of what it reads."""

    seen: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    def read(self, place_ms: int, fields: Mapping[bytes, bytes]) -> tuple[list[Any], int, bool] | None:
        """The changes of a batch, when they were added, and whether for the first time; ``None`` for a foreign batch.

        ``None`` for what the platform has not written.
        """
        text, at, mark = (fields.get(name.encode(), b"") for name in (FIELD, AT, MARK))
        if not seals.holds(mark.decode("ascii", "replace"), "change", at, text):
            return None
        again = mark in self.seen
        self.seen[mark] = None
        if len(self.seen) > REMEMBERED:
            self.seen.popitem(last=False)
        at_ms = int(at)
        return json.loads(text), at_ms, not again and abs(place_ms - at_ms) <= APART_MS
