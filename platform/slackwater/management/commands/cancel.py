"""Cancel tasks."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from apps.tasks import services
from slackwater.management.console import ACTOR, PlatformCommand, find_tenant, task_id


class Command(PlatformCommand):
    """``manage.py cancel``"""

    help = "Cancel tasks: at once while they wait; a running one is asked to end, then killed."

    def add_arguments(self, parser: CommandParser) -> None:
        """Ids."""
        super().add_arguments(parser)
        parser.add_argument("ids", nargs="+", type=task_id, metavar="ID")
        parser.add_argument("--dependents", action="store_true", help="also all that depends on them")

    def run(self, options: dict[str, Any]) -> None:
        """Cancel each; the first that cannot be cancelled ends the command."""
        tenant = find_tenant(options["tenant"])
        done = []
        for wanted in options["ids"]:
            state = services.cancel(tenant.pk, wanted, actor=ACTOR, dependents=options["dependents"])
            done.append({"id": wanted, "state": state.name.lower()})
        if self.as_json:
            self.show(done)
            return
        for row in done:
            word = "asked to end" if row["state"] == "running" else row["state"]
            self.stdout.write(f"{row['id']} {word}")
