"""`manage.py workflow_report`: whether order was kept, and how close a run came to the best possible."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from slackwater_tasks.models import Workflow
from slackwater_tasks.read.workflow_report import WorkflowReport, report
from slackwater_tenants.scoping import tenant_scope

WIDTH = 24


class Command(BaseCommand):
    """Print the report of one workflow."""

    help = "Tell how a workflow ran: order kept, makespan against the lower bound, start delays."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("id", help="id of the workflow")
        parser.add_argument("--slots", type=int, help="tasks that could run at once (default: counted from the nodes)")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look it up and print."""
        try:
            workflow_id = UUID(options["id"])
        except ValueError:
            raise CommandError(f"{options['id']!r} is not an id") from None
        slots = options["slots"]
        if slots is not None and slots < 1:
            raise CommandError("--slots must be at least 1")
        # Unscoped: an administrator's command finds a workflow whoever owns it, then reads as its owner.
        workflow = Workflow.objects.unscoped().filter(pk=workflow_id).first()
        if workflow is None:
            raise CommandError(f"there is no workflow {workflow_id}")
        with tenant_scope(workflow.tenant_id):
            found = report(workflow_id, slots=slots)
        if options["json"]:
            self.stdout.write(json.dumps(found.as_json()))
            return
        for label, value in lines(found):
            self.stdout.write(f"{label:<{WIDTH}} {value}")


def lines(found: WorkflowReport) -> list[tuple[str, str]]:
    """The report as labels and values."""
    states = ", ".join(f"{count} {state}" for state, count in found.states.items())
    shown = [
        ("workflow", f"{found.name or '(unnamed)'}  {found.id}"),
        ("tasks", f"{found.tasks}  ({states})"),
        ("edges", str(found.edges)),
        ("order violations", f"{found.violations}  (children that began before a parent had ended)"),
        *(("", edge) for edge in found.violating),
    ]
    if found.unfinished:
        shown.append(("unfinished", f"{found.unfinished} tasks; the times below are those known so far"))
    return [
        *shown,
        ("makespan", seconds(found.makespan_s)),
        ("lower bound", f"{seconds(found.bound_s)}  (the larger of the next two)"),
        ("  critical path", seconds(found.critical_path_s)),
        ("  work over slots", f"{seconds(found.work_s)} over {found.slots} slots"),
        ("makespan / bound", "unknown" if found.ratio is None else f"{found.ratio:.3f}"),
        ("start delay, mean", seconds(found.delay_mean_s)),
        ("start delay, p95", seconds(found.delay_p95_s)),
        ("start delay, largest", seconds(found.delay_max_s)),
    ]


def seconds(value: float | None) -> str:
    """Seconds for people."""
    if value is None:
        return "unknown"
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.3f} s"
