"""Cancel tasks."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from slackwater.management.bulk import BulkCommand
from slackwater.management.console import ACTOR, find_tenant
from slackwater_tasks.control import bulk
from slackwater_tasks.control.cancel import cancel


class Command(BulkCommand):
    """``manage.py cancel``"""

    help = "Cancel tasks: at once while they wait; a running one is asked to end, then killed."

    matching = staticmethod(bulk.cancel_matching)
    done_word = "cancelled"

    def add_arguments(self, parser: CommandParser) -> None:
        """Ids or filters, and what goes along."""
        super().add_arguments(parser)
        parser.add_argument("--dependents", action="store_true", help="with ids: also all that depends on them")

    def run(self, options: dict[str, Any]) -> None:
        """Cancel each, or all that match; the first id that cannot be cancelled ends the command."""
        tenant = find_tenant(options["tenant"])
        filters = self.filters_of(options)
        if filters is not None:
            self.do_matching(tenant, filters, options)
            return
        done = []
        for wanted in options["ids"]:
            state = cancel(tenant.pk, wanted, actor=ACTOR, dependents=options["dependents"])
            done.append({"id": wanted, "state": state.name.lower()})
        if self.as_json:
            self.show(done)
            return
        for row in done:
            word = "asked to end" if row["state"] == "running" else row["state"]
            self.stdout.write(f"{row['id']} {word}")
