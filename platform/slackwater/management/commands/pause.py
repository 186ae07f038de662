"""Pause a tenant, a line, a handler or a schedule."""

from __future__ import annotations

from slackwater.management.pausing import PauseCommand


class Command(PauseCommand):
    help = (
        "Pause a tenant, one of its lines or schedules, or a handler: tasks are accepted, and none is started. "
        "Time paused does not count against delay tolerances."
    )
    paused = True
