"""Run tasks again that failed, expired or were cancelled."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from apps.tasks import services
from slackwater.management.console import ACTOR, PlatformCommand, find_tenant, task_id


class Command(PlatformCommand):
    """``manage.py retry``"""

    help = "Run tasks again that failed, expired or were cancelled; their attempts are given anew."

    def add_arguments(self, parser: CommandParser) -> None:
        """Ids."""
        super().add_arguments(parser)
        parser.add_argument("ids", nargs="+", type=task_id, metavar="ID")

    def run(self, options: dict[str, Any]) -> None:
        """Run each again; the first that cannot ends the command."""
        tenant = find_tenant(options["tenant"])
        for wanted in options["ids"]:
            services.retry(tenant.pk, wanted, actor=ACTOR)
        if self.as_json:
            self.show([{"id": wanted} for wanted in options["ids"]])
            return
        for wanted in options["ids"]:
            self.stdout.write(f"{wanted} runs again")
