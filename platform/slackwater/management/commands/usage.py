"""Show what a tenant used, what it costs, and what its plan still allows."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from slackwater.management.console import PlatformCommand, find_tenant, scoped
from slackwater_monitoring import usage
from slackwater_tasks.read import overview

MICROS = 1_000_000


class Command(PlatformCommand):
    help = "Show what a tenant used by day, tier and category with its price, and what its plan still allows."
    watches = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--since", help="first day (UTC): 2030-01-01; the month's first by default")
        parser.add_argument("--until", help="last day (UTC); today by default")

    def run(self, options: dict[str, Any]) -> None:
        tenant = find_tenant(options["tenant"])
        first, last = usage.days(options["since"], options["until"], ("--since", "--until"))
        with scoped(tenant):
            found, limits = usage.read(tenant.pk, first, last), overview.limits(tenant)
        if self.as_json:
            self.show({"usage": found, "limits": limits})
            return
        rows = [*found["items"], {"day": "in all", "tier": "", "category": "", **found["total"]}]
        self.show_table(
            f"Used by {tenant.slug}, {first} to {last}",
            ["day", "tier", "category", "attempts", "succeeded", "run (s)", "CPU (s)", "price"],
            [(r["day"], r["tier"], r["category"], r["attempts"], r["succeeded"], r["run_s"], r["cpu_s"],
              f"{r['price_micros'] / MICROS:.6f}") for r in rows],
            empty="",
        )  # fmt: skip
        used, plan = limits["used"], limits["limits"]
        self.show_table(
            f"Plan {limits['plan']}",
            ["", "used", "allowed"],
            [
                ("tasks not finished", used["unfinished"], plan["max_waiting"]),
                ("tasks in flight", used["in_flight"], plan["max_in_flight"]),
                ("submissions at once", plan["burst"] - limits["rate"]["available_now"], plan["burst"]),
                ("submissions an hour", None, plan["tasks_per_hour"]),
            ],
            empty="",
        )
