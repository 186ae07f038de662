"""`manage.py workflow_report`: whether order was kept, and how close a run came to the best possible."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import InvalidInput, NotFound
from scheduler_ext.core.plain_text import counted
from slackwater.management.console import PlatformCommand, task_id
from slackwater_tasks.models import Workflow
from slackwater_tasks.read.workflow_report import WorkflowReport, report
from slackwater_tenants.scoping import tenant_scope

WIDTH = 24


class Command(PlatformCommand):
    for_tenant = False
    watches = True
    help = "Tell how a workflow ran: order kept, makespan against the lower bound, start delays."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("id", type=task_id, help="id of the workflow")
        parser.add_argument("--slots", type=int, help="tasks that could run at once (default: counted from the nodes)")

    def run(self, options: dict[str, Any]) -> None:
        workflow_id, slots = options["id"], options["slots"]
        if slots is not None and slots < 1:
            raise InvalidInput("must be at least 1", field="--slots")
        # Unscoped: an administrator's command finds a workflow whoever owns it, then reads as its owner.
        workflow = Workflow.objects.unscoped().filter(pk=workflow_id).first()
        if workflow is None:
            raise NotFound(f"there is no workflow {workflow_id}")
        with tenant_scope(workflow.tenant_id):
            found = report(workflow_id, slots=slots)
        self.answer(found.as_json(), *(f"{label:<{WIDTH}} {value}" for label, value in lines(found)))


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
        shown.append(("unfinished", f"{counted(found.unfinished, 'task')}; the times below are those known so far"))
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
