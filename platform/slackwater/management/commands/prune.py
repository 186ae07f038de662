"""Delete finished tasks that are older than their plan keeps them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from scheduler_ext.core.plain_text import counted
from slackwater.management.console import PlatformCommand, find_tenant
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.upkeep.retention import prune


class Command(PlatformCommand):
    for_tenant = False
    help = "Delete finished tasks older than their plan's retention, with their past. Upkeep does so by itself, slowly."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--tenant", help="slug; all tenants when it is left out")

    def run(self, options: dict[str, Any]) -> None:
        tenant = find_tenant(options["tenant"]) if options["tenant"] else None
        db, count = Database("slackwater prune"), 0
        try:
            with self.bar() as bar:
                task = bar.add_task("deleting", total=None)  # nobody counts beforehand what is old
                while done := prune(db, tenant.pk if tenant else None):
                    count += done
                    bar.update(task, completed=count, description=f"{count} deleted")
        finally:
            db.close()
        self.answer({"deleted": count}, f"{counted(count, 'row')} of tasks and keys deleted")
