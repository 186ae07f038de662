"""Resume a tenant, a line, a handler or a schedule."""

from __future__ import annotations

from slackwater.management.pausing import PauseCommand


class Command(PauseCommand):
    help = "Resume a paused tenant, line, handler or schedule."
    paused = False
