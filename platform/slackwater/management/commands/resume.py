"""Let go on a tenant, a line, a handler or a schedule."""

from __future__ import annotations

from slackwater.management.pausing import PauseCommand


class Command(PauseCommand):
    help = "Let a paused tenant, line, handler or schedule go on."
    paused = False
