"""Show a task with its past, a workflow, or the latest tasks."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser
from django.db.models import QuerySet
from django.utils import timezone

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import TaskState
from slackwater.cli.parser import rows_shown
from slackwater.management.console import PlatformCommand, task_id, tenant_or_all
from slackwater.management.tables import show_tenants
from slackwater_resources.models import Component
from slackwater_tasks.models import Task
from slackwater_tasks.read import history, output, overview, platform, workflows
from slackwater_tasks.read import tasks as reading
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope

FOLLOW_S = 0.4
MOST_LINES = 100_000
STATES = [state.name.lower() for state in TaskState]


class Command(PlatformCommand):
    help = "Show a task with its past and output, a workflow with its counts, or the latest tasks and the lines."
    all_tenants = True
    watches = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("id", nargs="?", type=task_id, help="of a task or a workflow; without it, the latest tasks")
        parser.add_argument("--state", choices=STATES, action="append", help="only tasks in this state; repeatable")
        parser.add_argument("--limit", type=rows_shown, default=20, help="rows of the list (20)")
        parser.add_argument("--logs", action="store_true", help="also what the task printed and logged")
        parser.add_argument("--follow", action="store_true", help="with --logs: go on while it runs")

    def run(self, options: dict[str, Any]) -> None:
        tenant = tenant_or_all(options["tenant"])
        if options["id"] is None:
            self._latest(tenant, options)
            return
        owner = tenant.pk if tenant is not None else platform.owner_of(options["id"])
        if owner is None:
            raise NotFound(f"there is no task and no workflow {options['id']}", field="id")
        with tenant_scope(owner):
            try:
                found = reading.task(options["id"])
            except NotFound:
                self._workflow(options["id"])
                return
            if options["follow"]:
                self._follow(found["id"])
            else:
                self._task(found, logs=options["logs"])

    def _follow(self, wanted: UUID) -> None:
        """Its lines, from the first on, until it has ended."""
        tail = output.Tail(wanted, output.START)
        self.goes_on = True
        while True:
            look = output.tails([tail])[0]
            for line in look.items:
                self.answer(line, _said(line))
            self.stdout.flush()
            if look.ended:
                return
            tail = tail._replace(place=look.place)
            time.sleep(0.0 if look.more else FOLLOW_S)

    def _latest(self, tenant: Tenant | None, options: dict[str, Any]) -> None:
        # Unscoped: an operator sees all tenants, or names one.
        rows: QuerySet[Any] = (
            Task.objects.unscoped() if tenant is None else Task.objects.unscoped().for_tenant(tenant.pk)
        )
        if options["state"]:
            rows = reading.in_states(rows, [TaskState[state.upper()] for state in options["state"]])
        rows = rows.order_by("-id")[: options["limit"]]
        owners = dict(rows.values_list("pk", "tenant__slug"))
        tasks = [{**task, "tenant": owners.get(task["id"])} for task in reading.summaries(rows)]
        lines = overview.queues(tenant) if tenant is not None else []
        if self.as_json:
            self.show({"tasks": tasks, **({"queues": lines} if tenant else {"tenants": platform.tenants()})})
            return
        self.show_table(
            "Latest tasks",
            ["id", "tenant", "name", "what", "status", "state", "attempts", "submitted"],
            [(t["id"], t["tenant"], t["name"], t["handler"] or (t["script"] or "")[:12] or t["script_path"], t["status"],
              t["state"], t["attempts"], t["submitted_at"]) for t in tasks],
            empty="There are no such tasks.",
        )  # fmt: skip
        if tenant is None:
            show_tenants(self, platform.tenants())
            return
        self.show_table(
            "Lines",
            ["category", "tier", "ready", "queued", "running", "paused"],
            [(q["category"], q["tier"], f"{q['ready']}{'+' if q['ready_is_minimum'] else ''}", q["queued"],
              q["running"], q["paused"]) for q in lines],
            empty="",
        )  # fmt: skip

    def _workflow(self, wanted: UUID) -> None:
        try:
            found = workflows.workflow(wanted)
        except NotFound:
            raise NotFound(f"there is no task and no workflow {wanted}", field="id") from None
        if self.as_json:
            self.show(found)
            return
        counts = found.pop("counts")
        self.show_pairs(found)
        self.show_table("", ["state", "tasks"], [(s, n) for s, n in counts.items() if n], empty="")

    def _task(self, found: dict[str, Any], *, logs: bool) -> None:
        past = history.history(found["id"])
        attempts = reading.attempts(found["id"])
        written = output.lines(found["id"], limit=MOST_LINES) if logs else []
        if self.as_json:
            self.show({**found, "history": past, "attempts_made": attempts, **({"logs": written} if logs else {})})
            return
        by = Component.objects.filter(pk=found["admitted_by"]).first()  # as the task's page names it
        self.show_pairs({**found, "admitted_by": by})
        self.show_table(
            "History",
            ["at", "from", "to", "why", "who", "node"],
            [(e["at"], e["from"], e["to"], e["reason"], e["actor"], e["node"]) for e in past],
            empty="",
        )
        if logs:
            self.stdout.write(
                f"Output ({timezone.localtime():%Z})" if written else "It has printed and logged nothing."
            )
        for line in written:
            self.stdout.write(_said(line))


def _said(line: dict[str, Any]) -> str:
    """A line with its time, attempt, stream and level in front."""
    at = timezone.localtime(line["at"]).strftime("%H:%M:%S.%f")[:-3] if line["at"] else "-"
    return f"{at} #{line['attempt'] or '-'} {line['stream']:<6} {line['level']:<7} {line['text']}"
