"""Delete a tenant with all its data."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.plain_text import counted
from slackwater.management.console import PlatformCommand, find_tenant
from slackwater_tasks.models import Task
from slackwater_tasks.upkeep.retention import delete_tenant


class Command(PlatformCommand):
    for_tenant = False
    help = "Delete a tenant with all its data, for ever. Refused while tasks of it run; it is paused then."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("slug")
        parser.add_argument("--yes", action="store_true", help="it is meant: nothing can bring the data back")

    def run(self, options: dict[str, Any]) -> None:
        tenant = find_tenant(options["slug"], field="slug")
        if not options["yes"]:
            raise InvalidInput(f"say --yes to delete {tenant.slug} and all its data for ever", field="--yes")
        total = Task.objects.unscoped().for_tenant(tenant.pk).count()  # it is named
        with self.bar() as bar:
            task = bar.add_task(f"deleting {tenant.slug}", total=total)
            count = delete_tenant(tenant, progress=lambda done: bar.update(task, completed=done))
        slug = options["slug"]
        self.answer({"deleted": slug, "tasks": count}, f"{slug} is deleted, with {counted(count, 'task')}")
