"""The command for tenants: what they do with their tasks over REST, with SLACKWATER_URL and SLACKWATER_KEY."""

from __future__ import annotations

from typing import Final

NAMES: Final = (
    "submit", "status", "logs", "cancel", "retry", "explain", "events", "workflows", "schedules", "dead-letters", "handlers",
    "usage", "receipts", "verify-receipts", "limits", "whoami",
)  # fmt: skip
"""The subcommands; what else is asked for is a command of the platform."""
