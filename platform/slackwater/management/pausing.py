"""Shared by the commands ``pause`` and ``resume``."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser
from django.db.models import QuerySet

from scheduler_ext.core.errors import InvalidInput, NotFound
from slackwater.management.console import ACTOR, PlatformCommand, find_tenant
from slackwater_resources.models import Handler
from slackwater_resources.services import set_handler_paused
from slackwater_schedules import services as schedules
from slackwater_schedules.models import Schedule
from slackwater_tasks.control.lines import set_line_paused
from slackwater_tasks.models import Line
from slackwater_tasks.read.overview import find_lines
from slackwater_tenants import services as tenants
from slackwater_tenants.models import Tenant


class PauseCommand(PlatformCommand):
    """Pauses or resumes a tenant, a line, a handler or a schedule; repeating it does nothing."""

    paused: bool
    """Whether it pauses or resumes."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "kind", choices=["tenant", "line", "handler", "schedule"],
            help="a whole tenant, one of its lines, a handler for all tenants, or one of its schedules",
        )  # fmt: skip
        parser.add_argument(
            "name", nargs="?", default="",
            help="CATEGORY/TIER of a line, a handler's name, a schedule's name or id; a tenant is named by --tenant",
        )  # fmt: skip

    def run(self, options: dict[str, Any]) -> None:
        kind, name = options["kind"], options["name"]
        if (kind == "tenant") == bool(name):
            raise InvalidInput("name a tenant by --tenant" if name else f"say which {kind}", field="name")
        if kind == "handler":
            changed = self._handler(name)
        else:
            tenant = find_tenant(options["tenant"])
            changed = getattr(self, f"_{kind}")(tenant, name)
            name = name or tenant.slug
        now = "is paused: tasks are accepted, none is started" if self.paused else "goes on"
        said = f"{kind} {name} {now}" + ("" if changed else " (as before)")
        self.answer({"kind": kind, "name": name, "paused": self.paused, "changed": changed}, said)

    def _tenant(self, tenant: Tenant, _: str) -> bool:
        return tenants.set_paused(tenant, paused=self.paused)

    def _line(self, tenant: Tenant, name: str) -> bool:
        changed = [set_line_paused(line, paused=self.paused) for line in lines_of(tenant, name)]
        return any(changed)

    def _handler(self, name: str) -> bool:
        found = Handler.objects.filter(name=name).first()
        if found is None:
            raise NotFound(f"no worker has exported a handler {name!r}", field="name")
        return set_handler_paused(found, paused=self.paused)

    def _schedule(self, tenant: Tenant, name: str) -> bool:
        found = find_schedule(tenant, name)
        if found.paused == self.paused:
            return False
        change = schedules.pause_schedule if self.paused else schedules.resume_schedule
        change(tenant.pk, found.pk, actor=ACTOR)
        return True


def lines_of(tenant: Tenant, name: str) -> QuerySet[Line]:
    """The tenant's lines of that name; ``InvalidInput`` unless it reads CATEGORY/TIER, ``NotFound`` when it has none."""
    category, _, tier = name.partition("/")
    if not category or not tier:
        raise InvalidInput(f"must be CATEGORY/TIER, for example urgent/basic, not {name!r}", field="name")
    try:
        return find_lines(tenant.pk, category, tier)
    except NotFound:
        told = f"{tenant.slug} has no line {name!r}; a line exists from its first task on"
        raise NotFound(told, field="name") from None


def find_schedule(tenant: Tenant, name: str) -> Schedule:
    """The tenant's schedule of that name, or of that id; ``NotFound`` when it has none."""
    rows = Schedule.objects.unscoped().for_tenant(tenant.pk)  # the tenant is named
    found: Schedule | None = rows.filter(name=name).first() or rows.filter(pk=_as_id(name)).first()
    if found is None:
        raise NotFound(f"{tenant.slug} has no schedule {name!r}", field="name")
    return found


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
