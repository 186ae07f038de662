"""`manage.py terminate`: ends all work of a tenant, a line, a workflow or the platform, and cleans up after it."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.plain_text import counted
from slackwater.management.console import ACTOR, PlatformCommand, find_tenant, task_id
from slackwater.management.pausing import lines_of
from slackwater_tasks.control.terminate import WAIT_S, Subject, foretell, terminate
from slackwater_tasks.field_kinds import Text
from slackwater_tenants.models import Tenant


class Command(PlatformCommand):
    help = (
        "End all work at once: what waits is cancelled, what runs is asked to end and then killed, dead letters are "
        "deleted. Nothing starts meanwhile: it is paused, and stays so if this is killed, until `manage.py resume`. "
        "Schedules go on; pause them apart."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("kind", choices=["tenant", "line", "workflow", "platform"])
        parser.add_argument(
            "name", nargs="?", default="",
            help="CATEGORY/TIER of a line, a workflow's id; a tenant is named by --tenant",
        )  # fmt: skip
        parser.add_argument("--wait", type=float, default=WAIT_S, help=f"seconds for what runs to end ({WAIT_S:g})")
        parser.add_argument("--reason", default="", help="why; the tasks' history tells it")
        parser.add_argument("--dry-run", action="store_true", help="only tell how much would end")
        parser.add_argument("--yes", action="store_true", help="it is meant")

    def run(self, options: dict[str, Any]) -> None:
        kind, name = options["kind"], options["name"]
        if (kind in ("tenant", "platform")) == bool(name):
            raise InvalidInput("name a tenant by --tenant" if name else f"say which {kind}", field="name")
        dry_run, reason = options["dry_run"], Text(150).check(options["reason"], "--reason")
        if not options["yes"] and not dry_run:
            raise InvalidInput(f"say --yes to end all work of this {kind}", field="--yes")
        subjects = self._subjects(kind, name, options["tenant"])
        if dry_run:
            found = foretell(subjects)
            told = f"would cancel {found.cancelled} that wait, end {found.asked} that run"
            self.answer(asdict(found), f"{told}, delete {counted(found.dead_letters, 'dead letter')}")
            return
        with self.busy("ending"):
            done = terminate(subjects, actor=ACTOR, reason=reason, wait_s=options["wait"])
        self.answer(
            asdict(done),
            f"{counted(done.cancelled, 'waiting task')} cancelled, {counted(done.asked, 'running task')} asked to end, "
            f"{counted(done.dead_letters, 'dead letter')} deleted",
            *([f"{done.left} have not ended: say it again for what they submit"] if done.left else []),
        )

    def _subjects(self, kind: str, name: str, slug: str | None) -> list[Subject]:
        if kind == "platform":
            return [Subject.of_tenant(tenant) for tenant in Tenant.objects.order_by("pk")]
        tenant = find_tenant(slug)
        if kind == "tenant":
            return [Subject.of_tenant(tenant)]
        if kind == "workflow":
            try:
                return [Subject.of_workflow(tenant, task_id(name))]
            except ArgumentTypeError as error:  # which of the names is an id, the parser cannot know
                raise InvalidInput(str(error), field="name") from None
        return [Subject.of_line(line) for line in lines_of(tenant, name)]
