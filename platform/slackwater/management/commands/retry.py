"""Run tasks again that failed, expired or were cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from slackwater.management.bulk import BulkCommand
from slackwater.management.console import ACTOR
from slackwater_tasks.control import bulk
from slackwater_tasks.control.rerun import retry


class Command(BulkCommand):
    help = "Run tasks again that failed, expired or were cancelled; their attempts are given anew."

    matching = staticmethod(bulk.retry_matching)
    done_word = "run again"

    def do_one(self, tenant_id: int, wanted: UUID, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        retry(tenant_id, wanted, actor=ACTOR)
        return {"id": wanted}, f"{wanted} runs again"
