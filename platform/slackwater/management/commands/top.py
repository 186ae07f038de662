"""Show what the platform does now, again and again: what waits and runs, nodes, tenants, the longest running tasks."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from slackwater.cli.parser import rows_shown
from slackwater.management.console import PlatformCommand, find_tenant
from slackwater.management.tables import show_running, show_tenants
from slackwater_dashboard import live
from slackwater_tasks.read import overview, platform


class Command(PlatformCommand):
    help = "Show live what waits and runs, the nodes, the tenants and the longest running tasks; --once shows it once."
    all_tenants = True
    watches = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(watch=2.0)
        parser.add_argument("--once", dest="watch", action="store_const", const=None, help="once, not again and again")
        parser.add_argument("--limit", type=rows_shown, default=15, help="running tasks and tenants shown (15)")

    def run(self, options: dict[str, Any]) -> None:
        tenant = find_tenant(options["tenant"]) if options["tenant"] else None
        limit = options["limit"]
        tenants = platform.tenants(tenant.slug if tenant else "")
        running = platform.running(tenant.pk if tenant else None, limit=limit)
        nodes = [row for row in overview.all_nodes(gone=False) if tenant is None or row["cell"] == tenant.cell]
        now = live.brief()
        states = now["states"] if tenant is None else None
        if self.as_json:
            self.show(
                {
                    "states": states,
                    "alerts": now["alerts"] if tenant is None else [],
                    "nodes": nodes,
                    "tenants": tenants,
                    "running": running,
                }
            )
            return
        if states is not None:
            counts = "  ".join(f"{state} {count:,}" for state, count in states["by_state"].items() if count)
            self.stdout.write(f"{states['unfinished']:,} unfinished: {counts or 'nothing waits, nothing runs'}")
            delay = now["start_delay"]
            if delay:
                self.stdout.write(
                    f"{now['rate']:.1f} attempts ended a second in the last {now['over_s'] // 60} minutes, "
                    f"{now['failed']:,} failed; start delay: half within {delay['p50']:.2f} s, 95 % within {delay['p95']:.2f} s"
                )
            for alert in now["alerts"]:
                self.stdout.write(f"! {alert['says'] or alert['rule']} {alert['subject']} {alert['detail']}".rstrip())
        self.show_table(
            "Nodes", ["node", "cell", "state", "slots", "in flight", "heartbeat"],
            [(r["name"], r["cell"], r["state"], " ".join(f"{k}:{n}" for k, n in r["slots"].items()), r["in_flight"],
              r["heartbeat_at"]) for r in nodes],
            empty="No node is registered; start a worker.",
        )  # fmt: skip
        show_tenants(self, tenants[:limit])
        show_running(self, running)
