"""The read side beside tasks: dead letters and scripts of the tenant in context."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import Outcome
from slackwater_tasks.models import DeadLetter, Script
from slackwater_tasks.read.tasks import word


def latest_dead_letters(limit: int) -> list[dict[str, Any]]:
    return dead_letter_rows(DeadLetter.objects.order_by("-at", "-task_id")[:limit])


def of_platform(tenant_id: int | None, limit: int) -> list[dict[str, Any]]:
    """The latest of all tenants, or of one, each with its tenant's slug."""
    # Unscoped: an operator sees all tenants, or names one.
    rows = DeadLetter.objects.unscoped()
    rows = (rows if tenant_id is None else rows.for_tenant(tenant_id)).order_by("-at", "-task_id")[:limit]
    owners = dict(rows.values_list("task_id", "tenant__slug"))
    return [{**row, "tenant": owners.get(row["task_id"])} for row in dead_letter_rows(rows)]


def dead_letter_rows(rows: QuerySet[Any]) -> list[dict[str, Any]]:
    """Dead letters as lists show them, in the order they come."""
    names = ("task_id", "at", "outcome", "reason", "retries", "next_retry_at")
    of_task = {"name": F("task__name"), "handler": F("task__handler"), "script": F("task__script_sha256")}
    return [
        {
            **row,
            **{name: row[name] or None for name in of_task},
            "outcome": word(Outcome(row["outcome"])) if row["outcome"] else None,
        }
        for row in rows.values(*names, **of_task)
    ]


def dead_letter(task_id: UUID) -> dict[str, Any]:
    """One dead letter; ``NotFound`` if the tenant in context has no such one."""
    found = dead_letter_rows(DeadLetter.objects.filter(pk=task_id))
    if not found:
        raise NotFound(f"There is no dead letter {task_id}.")
    return found[0]


def script_summary(found: Script) -> dict[str, Any]:
    """A stored script without its content."""
    return {"sha256": found.sha256, "name": found.name, "size": found.size, "created_at": found.created_at}


def script(sha256: str) -> dict[str, Any]:
    """A stored script of the tenant in context with its content; ``NotFound`` without one."""
    found = Script.objects.filter(sha256=sha256).first()
    if found is None:
        raise NotFound(f"There is no script {sha256[:64]}.")
    return {**script_summary(found), "content": bytes(found.content).decode("utf-8", "replace")}


def script_rows(rows: QuerySet[Any]) -> list[dict[str, Any]]:
    return [script_summary(row) for row in rows.defer("content")]
