"""List dead letters, and retry them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import InvalidInput, SlackwaterError
from slackwater.cli.parser import rows_shown
from slackwater.management.console import (
    ACTOR,
    PlatformCommand,
    find_tenant,
    scoped,
    task_id,
    tenant_or_all,
)
from slackwater_tasks.read import dead_letters
from slackwater_tenants.models import Tenant

MAX_TASKS = 100_000
SHOWN = 20
REASON = "run again from the dead letters"


class Command(PlatformCommand):
    help = "List tasks whose attempts are used up, latest first; --retry runs them again."
    all_tenants = True
    watches = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--limit", type=rows_shown, default=50, help="rows of the list (50)")
        parser.add_argument("--retry", nargs="*", type=task_id, metavar="ID", help="run these again; with --all, all")
        parser.add_argument("--all", action="store_true", help="with --retry: every dead letter of the tenant")

    def run(self, options: dict[str, Any]) -> None:
        if options["retry"] is not None:
            self.once(options)
            tenant = find_tenant(options["tenant"])
            with scoped(tenant):
                self._retry(tenant, options)
            return
        if options["all"]:
            raise InvalidInput("goes with --retry", field="--all")
        owner = tenant_or_all(options["tenant"])
        rows = dead_letters.of_platform(owner.pk if owner else None, options["limit"])
        columns = ["task_id", "tenant", "name", "what", "at", "reason", "retries", "next_retry_at"]
        shown = [
            [row["handler"] or (row["script"] or "script")[:12] if c == "what" else row[c] for c in columns]
            for row in rows
        ]
        titles = [name.replace("_", " ") for name in columns]
        self.answer_table(rows, "Dead letters", titles, shown, empty="There are no dead letters.")

    def _retry(self, tenant: Tenant, options: dict[str, Any]) -> None:
        from slackwater_tasks.control.rerun import retry  # loading it takes longer than the list

        ids = options["retry"]
        if bool(ids) == options["all"]:
            raise InvalidInput("give either ids or --all", field="--retry")
        if options["all"]:
            ids = [row["task_id"] for row in dead_letters.latest_dead_letters(MAX_TASKS)]
        done, left = [], []
        with self.bar() as bar:
            for wanted in bar.track(ids, description="retrying"):
                try:
                    dead_letters.dead_letter(wanted)
                    retry(tenant.pk, wanted, actor=ACTOR, reason=REASON)
                    done.append(wanted)
                except SlackwaterError as error:
                    if not options["all"]:
                        raise
                    left.append({"task_id": wanted, "reason": error.message})  # gone since, or beyond the plan
        self.answer({"retried": done, "left": left}, f"retried {len(done)}")
        if left and not self.as_json:
            columns = ["task", "why not"]
            rows = [(row["task_id"], row["reason"]) for row in left[:SHOWN]]
            self.show_table(f"Left as they are: {len(left)}", columns, rows, empty="")
