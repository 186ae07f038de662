"""List schedules, show one with what it fired and will fire, make up for a past range."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.plain_text import counted
from slackwater.management.console import ACTOR, PlatformCommand, find_tenant, scoped
from slackwater.management.pausing import find_schedule
from slackwater_schedules import services
from slackwater_schedules.backfill import backfill
from slackwater_schedules.fields import FIELDS
from slackwater_schedules.models import Schedule
from slackwater_tasks.field_kinds import Moment
from slackwater_tenants.models import Tenant

LAST = 10
MOMENT = Moment()
EXAMPLE = "2030-01-31T00:00:00Z"


class Command(PlatformCommand):
    help = (
        "List a tenant's schedules; show NAME: one with its next ten firings and its last; "
        "backfill NAME --start TIME --end TIME: submit what never became a task in a past range. "
        "To pause one: manage.py pause schedule NAME."
    )
    watches = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", nargs="?", choices=["list", "show", "backfill"], default="list",
                            help="list them (what is done without it), show one, or make up for the past")  # fmt: skip
        parser.add_argument("name", nargs="?", default="", help="its name or id, for show and backfill")
        parser.add_argument("--start", help=f"first moment to make up for: {EXAMPLE}")
        parser.add_argument("--end", help="last moment, included")

    def run(self, options: dict[str, Any]) -> None:
        tenant = find_tenant(options["tenant"])
        with scoped(tenant):
            if options["action"] == "list":
                self._list()
            elif not options["name"]:
                raise InvalidInput("say which: its name or its id", field="name")
            elif options["action"] == "show":
                self._show(find_schedule(tenant, options["name"]))
            else:
                self.once(options)
                self._backfill(tenant, options)

    def _list(self) -> None:
        rows = list(Schedule.objects.order_by("name"))
        columns = ["id", "name", "kind", "time_zone", "next_fire_at", "overlap", "missed", "paused"]
        shown = [[getattr(row, name) for name in columns] for row in rows]
        titles = [{"next_fire_at": "next"}.get(name, name.replace("_", " ")) for name in columns]
        self.answer_table([_plain(row) for row in rows], "Schedules", titles, shown, empty="There are no schedules.")

    def _show(self, row: Schedule) -> None:
        upcoming = services.next_firings(row, 10)
        fired = list(row.fires.order_by("-fire_at")[:LAST])
        if self.as_json:
            names = (
                "fire_at",
                "due_at",
                "fired_at",
                "late_by_s",
                "outcome",
                "task_id",
                "workflow_id",
                "error",
                "backfill",
            )
            past = [{name: getattr(fire, name) for name in names} for fire in fired]
            self.show({**_plain(row), "next_firings": upcoming, "firings": past})
            return
        self.show_pairs({**_plain(row), "next_firings": None})
        self.show_table("Next", ["fires for"], [(at,) for at in upcoming], empty="It fires no more.")
        self.show_table(
            "Last",
            ["fired for", "late (s)", "outcome", "task or workflow", "error"],
            [
                (fire.fire_at, f"{fire.late_by_s:.3f}", fire.outcome, fire.task_id or fire.workflow_id, fire.error)
                for fire in fired
            ],
            empty="It has not fired yet.",
        )

    def _backfill(self, tenant: Tenant, options: dict[str, Any]) -> None:
        row = find_schedule(tenant, options["name"])
        start, end = _moment(options, "start"), _moment(options, "end")
        with self.busy("making up"):
            done = backfill(tenant.pk, row.pk, start, end, actor=ACTOR)
        told = f"{counted(len(done.task_ids), 'task')} in the workflow {done.workflow_id}"
        if done.workflow_ids:
            told = counted(len(done.workflow_ids), "workflow")
        shown = {"workflow_id": done.workflow_id, "task_ids": done.task_ids, "workflow_ids": done.workflow_ids}
        self.answer(shown, told if done.workflow_id or done.workflow_ids else "nothing was missing")


def _moment(options: dict[str, Any], name: str) -> datetime:
    if options[name] is None:
        raise InvalidInput(f"is needed, for example {EXAMPLE}", field=f"--{name}")
    return MOMENT.check(options[name], f"--{name}")


def _plain(row: Schedule) -> dict[str, Any]:
    names = (*FIELDS, "version", "next_fire_at", "created_at", "created_by", "updated_at", "updated_by")
    found: dict[str, UUID | Any] = {"id": row.pk, **{name: getattr(row, name) for name in names}}
    return found
