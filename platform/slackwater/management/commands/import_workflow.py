"""`manage.py import_workflow`: a recorded scientific workflow, submitted as one graph of tasks that take its time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management import call_command
from django.core.management.base import CommandParser
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from scheduler_ext.core.errors import InvalidInput, SlackwaterError
from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.resources import DIMENSIONS
from scheduler_ext.core.states import FINAL
from scheduler_ext.core.wfformat import RecordedWorkflow, read_workflow
from slackwater.management.console import PlatformCommand, find_tenant
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.read import tasks as reading
from slackwater_tasks.read import workflows
from slackwater_tasks.submission.service import submit_workflow
from slackwater_tasks.submission.workflow_import import ImportPlan, TierMemory, plan_import
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope

MEMORY = DIMENSIONS.index("memory_mb")
POLL_S = 0.2
SHOWN = 5


class Command(PlatformCommand):
    for_tenant = False
    help = "Submit a recorded workflow (WfFormat 1.5 JSON): each task holds a slot for its recorded run time x S."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", type=Path, help="a WfFormat 1.5 JSON file, see https://wfcommons.org/format")
        parser.add_argument(
            "--time-scale", type=float, default=1.0, metavar="S", help="multiply run times by S (default 1)"
        )
        parser.add_argument("--tenant", default="demo", help="tenant that submits it (default demo)")
        parser.add_argument("--name", default="", help="name of the workflow (default: the file's, with the scale)")
        parser.add_argument("--wait", action="store_true", help="wait until it has ended, then print its report")

    def run(self, options: dict[str, Any]) -> None:
        tenant, path = find_tenant(options["tenant"]), options["file"]
        try:
            recorded = read_workflow(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"cannot read {path}: {error}") from None
        except SlackwaterError as error:
            raise InvalidInput(f"{path}: {error}") from None
        plan = plan_import(recorded, scale=options["time_scale"], tiers=allowed_tiers(tenant), name=options["name"])
        submission = submit_workflow(tenant, plan.workflow, actor="command:import_workflow")
        assert submission.workflow_id is not None
        self.tell(submission.workflow_id, recorded, plan, **options)
        if options["wait"]:
            wait_for(tenant.pk, submission.workflow_id, len(recorded.tasks))
            workflow_id = str(submission.workflow_id)
            call_command("workflow_report", workflow_id, json=self.as_json, stdout=self.stdout)

    def tell(self, workflow_id: UUID, recorded: RecordedWorkflow, plan: ImportPlan, **options: Any) -> None:
        """Say what was submitted. With ``--wait --json`` the report is the one answer."""
        if self.as_json:
            if not options["wait"]:
                self.show({
                    "id": workflow_id, "name": plan.workflow["name"], "tasks": len(recorded.tasks),
                    "edges": recorded.edges, "tiers": plan.tiers, "too_large": plan.too_large,
                    "time_scale": options["time_scale"],
                })  # fmt: skip
            return
        tiers = ", ".join(f"{count} {slug}" for slug, count in sorted(plan.tiers.items()))
        name, tasks = plan.workflow["name"], len(recorded.tasks)
        self.stdout.write(f"{name}: {counted(tasks, 'task')}, {counted(recorded.edges, 'edge')}; tiers: {tiers}")
        if plan.too_large:
            worst = sorted(plan.too_large.items(), key=lambda item: -item[1])[:SHOWN]
            named = ", ".join(f"{name} ({memory} MiB)" for name, memory in worst)
            rest = f" and {len(plan.too_large) - SHOWN} more" if len(plan.too_large) > SHOWN else ""
            self.stdout.write(f"larger than the largest tier, run in it all the same: {named}{rest}")
        self.stdout.write(f"workflow {workflow_id}")


def allowed_tiers(tenant: Tenant) -> list[TierMemory]:
    """The tiers the tenant may name: its own, and the shared ones its plan allows."""
    known = reference_cache.tiers(tenant.pk).values()
    return [
        TierMemory(slug=tier.slug, memory_mb=tier.vector[MEMORY])
        for tier in known
        if not tier.shared or tier.slug in tenant.plan.tiers
    ]


def wait_for(tenant_id: int, workflow_id: UUID, total: int) -> None:
    """Return when all tasks are final; the progress goes to the error stream, where it is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with tenant_scope(tenant_id), Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        shown = progress.add_task("running", total=total)
        while True:
            now = workflows.workflow(workflow_id)
            counts = now["counts"]
            ended = sum(counts[word] for word in map(reading.word, FINAL))
            progress.update(shown, completed=ended)
            if now["status"] in {"done", "failed"}:
                return
            time.sleep(POLL_S)
