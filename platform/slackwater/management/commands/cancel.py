"""Cancel tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from slackwater.management.bulk import BulkCommand
from slackwater.management.console import ACTOR
from slackwater_tasks.control import bulk
from slackwater_tasks.control.cancel import cancel


class Command(BulkCommand):
    help = "Cancel tasks: at once while they wait; a running one is asked to end, then killed."

    matching = staticmethod(bulk.cancel_matching)
    done_word = "cancelled"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--dependents", action="store_true", help="with ids: also all that depends on them")

    def do_one(self, tenant_id: int, wanted: UUID, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        state = cancel(tenant_id, wanted, actor=ACTOR, dependents=options["dependents"]).name.lower()
        return {"id": wanted, "state": state}, f"{wanted} {'asked to end' if state == 'running' else state}"
