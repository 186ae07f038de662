"""List the latest workflows with how far each is."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from slackwater.cli.parser import rows_shown
from slackwater.management.console import PlatformCommand, ago, tenant_or_all
from slackwater_tasks.read import workflows


class Command(PlatformCommand):
    help = "List the latest workflows: their tasks by state, and how long they took."
    all_tenants = True
    watches = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--limit", type=rows_shown, default=20, help="rows of the list (20)")

    def run(self, options: dict[str, Any]) -> None:
        tenant = tenant_or_all(options["tenant"])
        rows = workflows.of_platform(tenant.pk if tenant else None, options["limit"])
        self.answer_table(
            rows, "Workflows", ["id", "tenant", "name", "status", "tasks", "submitted", "took"],
            [(r["id"], r["tenant"], r["name"], r["status"], ", ".join(f"{n} {state}" for state, n in r["counts"].items()),
              r["submitted_at"], ago((r["finished_at"] - r["submitted_at"]).total_seconds() if r["finished_at"] else None))
             for r in rows],
            empty="There are no workflows.",
        )  # fmt: skip
