"""Create a tenant."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from slackwater.management.console import PlatformCommand
from slackwater_tenants.services import create_tenant


class Command(PlatformCommand):
    help = "Create a tenant on a plan."
    for_tenant = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("slug", help="lower-case letters, digits and dashes")
        parser.add_argument("--name", help="its name (the slug)")
        parser.add_argument("--plan", default="standard", help="slug of its plan (standard)")
        parser.add_argument("--client", default="", help="whose it is, where a client has several: they share as one")
        parser.add_argument("--trusted", action="store_true", help="its scripts may run without a sandbox")
        parser.add_argument("--script-root", default="", help="folder mounted on the workers for its script paths")
        parser.add_argument("--cell", default="default", help="where its tasks run (default)")

    def run(self, options: dict[str, Any]) -> None:
        tenant = create_tenant(
            options["slug"], options["name"] or options["slug"], options["plan"], trusted=options["trusted"],
            script_root=options["script_root"], cell=options["cell"],
            client=options["client"],
        )  # fmt: skip
        self.answer(
            {"id": tenant.pk, "slug": tenant.slug, "name": tenant.name, "plan": tenant.plan.slug},
            f"tenant {tenant.slug} on plan {tenant.plan.slug}",
            f"a key for it: manage.py create_api_key {tenant.slug}",
        )
