"""Run tasks again that failed, expired or were cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from slackwater.management.bulk import BulkCommand
from slackwater.management.console import ACTOR, parse_json
from slackwater_tasks.control import bulk
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.control.resubmit import resubmit


class Command(BulkCommand):
    help = "Run tasks again that failed, expired or were cancelled; their attempts are given anew."

    matching = staticmethod(bulk.retry_matching)
    done_word = "run again"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--changes", metavar="JSON", help="with an id: submit it anew instead, with these fields")

    def do_one(self, tenant_id: int, wanted: UUID, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        if options["changes"]:
            made = resubmit(tenant_id, wanted, parse_json(options["changes"], "--changes"), actor=ACTOR)
            return {"id": made, "copied_from": wanted}, f"{wanted} was submitted anew as {made}"
        retry(tenant_id, wanted, actor=ACTOR)
        return {"id": wanted}, f"{wanted} runs again"
