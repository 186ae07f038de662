"""Run tasks again that failed, expired or were cancelled."""

from __future__ import annotations

from typing import Any

from slackwater.management.bulk import BulkCommand
from slackwater.management.console import ACTOR, find_tenant
from slackwater_tasks.control import bulk
from slackwater_tasks.control.rerun import retry


class Command(BulkCommand):
    """``manage.py retry``"""

    help = "Run tasks again that failed, expired or were cancelled; their attempts are given anew."

    matching = staticmethod(bulk.retry_matching)
    done_word = "run again"

    def run(self, options: dict[str, Any]) -> None:
        """Run each again, or all that match; the first id that cannot ends the command."""
        tenant = find_tenant(options["tenant"])
        filters = self.filters_of(options)
        if filters is not None:
            self.do_matching(tenant, filters, options)
            return
        for wanted in options["ids"]:
            retry(tenant.pk, wanted, actor=ACTOR)
        if self.as_json:
            self.show([{"id": wanted} for wanted in options["ids"]])
            return
        for wanted in options["ids"]:
            self.stdout.write(f"{wanted} runs again")
