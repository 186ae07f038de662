"""What was called to scale a cell, for pages and commands that show it: without what makes the calls."""

from __future__ import annotations

from typing import Any

from slackwater_tasks.ledger.connection import fetch_dicts

CALLS = """
SELECT cell, labels, action, wanted, have, calls, failures, error,
       greatest(0, extract(epoch FROM clock_timestamp() - called_at))::float8 AS called_s_ago
FROM slackwater_monitoring_scaling WHERE called_at IS NOT NULL ORDER BY called_at DESC LIMIT 50
"""


def calls() -> list[dict[str, Any]]:
    """The last call for each cell and set of labels, and how many there were, the latest first."""
    return fetch_dicts(CALLS)
