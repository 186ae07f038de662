"""List the tenants with what each has, holds, is entitled to and waits for."""

from __future__ import annotations

from typing import Any

from slackwater.management.console import PlatformCommand, find_tenant
from slackwater.management.tables import show_tenants
from slackwater_tasks.read import platform


class Command(PlatformCommand):
    help = "List the tenants, most unfinished work first: what runs, and the share each holds, is entitled to and waits for."
    all_tenants = True
    watches = True

    def run(self, options: dict[str, Any]) -> None:
        tenant = find_tenant(options["tenant"]) if options["tenant"] else None
        rows = platform.tenants(tenant.slug if tenant else "")
        if self.as_json:
            self.show(rows)
        else:
            show_tenants(self, rows)
