"""Event streams, read."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]


def events_in(text: str | bytes) -> list[Event]:
    """What an event source makes of a stream."""
    found = []
    for block in (text.decode() if isinstance(text, bytes) else text).split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "event" in fields:
            found.append({"id": fields.get("id", ""), "kind": fields["event"], **json.loads(fields["data"])})
    return found
