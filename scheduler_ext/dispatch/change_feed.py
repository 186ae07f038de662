"""The feed of changes: a bounded stream in Redis to which every accepted change of state is added, batch by batch.

It may vanish at any moment: whoever follows it finds what it missed in the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from scheduler_ext.core.work import Change
from scheduler_ext.dispatch.keys import Keys

KEPT = 2_000
"""Batches kept for those who come back: at most 256 changes each, some 46 MB in all."""
FIELD = "c"
WATCHED_S = 5
"""How long the mark of a follower lasts; it is renewed while there is one."""


def add(client: Any, keys: Keys, changes: Sequence[Change | tuple[Any, ...]]) -> Any:
    """Add a batch to the feed, and return its id; ``client`` is a Redis client or a pipeline of one."""
    text = json.dumps(changes, separators=(",", ":"))
    return client.xadd(keys.changes(), {FIELD: text}, maxlen=KEPT, approximate=True)
