"""List the nodes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from apps.tasks import overview
from slackwater.management.console import PlatformCommand


class Command(PlatformCommand):
    """``manage.py nodes``"""

    help = "List the nodes of all cells with their capacity and what is in flight on each."
    for_tenant = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Which nodes."""
        super().add_arguments(parser)
        parser.add_argument("--all", action="store_true", help="also those that left or were lost")

    def run(self, options: dict[str, Any]) -> None:
        """List them."""
        rows = overview.all_nodes(gone=options["all"])
        if self.as_json:
            self.show(rows)
            return
        self.show_table(
            "Nodes",
            ["id", "cell", "name", "host", "state", "CPU", "memory", "slots", "in flight", "heartbeat"],
            [(r["id"], r["cell"], r["name"], r["hostname"], r["state"], f"{r['capacity'].get('cpu_milli', 0) / 1000:g}",
              f"{r['capacity'].get('memory_mb', 0)} MiB", " ".join(f"{k}:{n}" for k, n in r["slots"].items()),
              r["in_flight"], r["heartbeat_at"]) for r in rows],
            empty="No node is registered; start a worker.",
        )  # fmt: skip
