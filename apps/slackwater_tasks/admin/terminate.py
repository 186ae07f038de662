"""Ending all work of a tenant, a line or a workflow in the admin, after a page that tells how much it is."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest

from scheduler_ext.core.plain_text import counted
from slackwater_adminkit.buttons import Button, ButtonsMixin
from slackwater_adminkit.services import actor, why
from slackwater_tasks.control.terminate import Subject, foretell, terminate

TERMINATE = Button(
    label="Terminate…",
    method="terminate_work",
    confirm="foretell_work",
    danger=True,
    title="Cancel what waits, end what runs, delete dead letters",
    log="Terminated:",
    tells=True,
)

DEAD_COUNTED: Final = 2_000


class TerminateMixin(ButtonsMixin):
    """What the button ``TERMINATE`` does."""

    def subject(self, obj: Any) -> Subject:
        """What is terminated."""
        raise NotImplementedError

    def foretell_work(self, request: HttpRequest, obj: Any) -> str:
        """How much would end."""
        found = foretell([self.subject(obj)], most_dead=DEAD_COUNTED + 1)
        letters = counted(min(found.dead_letters, DEAD_COUNTED), "dead letter")
        if found.dead_letters > DEAD_COUNTED:
            letters = f"more than {letters}"
        return (
            f"This cancels {counted(found.cancelled, 'waiting task')}, asks {counted(found.asked, 'running task')} to end, kills "
            f"what does not, and deletes {letters}. Schedules go on; pause them before."
        )

    def terminate_work(self, request: HttpRequest, obj: Any) -> str:
        """End it without waiting for what runs."""
        done = terminate([self.subject(obj)], actor=actor(request), reason=why(request), wait_s=0)
        more = f" {done.left} have not ended yet; do it again for what they submit." if done.left else ""
        cancelled = counted(done.cancelled, "task was", plural="tasks were")
        asked = counted(done.asked, "running task was", plural="running tasks were")
        letters = counted(done.dead_letters, "dead letter was", plural="dead letters were")
        return f"{cancelled} cancelled, {asked} asked to end, {letters} deleted.{more}"
