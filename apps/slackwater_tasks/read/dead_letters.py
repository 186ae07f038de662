"""The read side beside tasks: dead letters and scripts of the tenant in context."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import Outcome
from slackwater_tasks.models import DeadLetter, Script
from slackwater_tasks.read.tasks import word


def latest_dead_letters(limit: int) -> list[dict[str, Any]]:
    """The latest dead letters of the tenant in context."""
    return dead_letter_rows(DeadLetter.objects.order_by("-at", "-task_id")[:limit])


def dead_letter_rows(rows: QuerySet[Any]) -> list[dict[str, Any]]:
    """Dead letters as lists show them, in the order they come."""
    names = [
        "task_id",
        "at",
        "outcome",
        "reason",
        "retries",
        "next_retry_at",
        "task__name",
        "task__handler",
        "task__script_sha256",
    ]
    return [
        {
            "id": row["task_id"],
            "task_id": row["task_id"],
            "name": row["task__name"],
            "handler": row["task__handler"],
            "script": row["task__script_sha256"],
            "at": row["at"],
            "outcome": word(Outcome(row["outcome"])) if row["outcome"] else None,
            "reason": row["reason"],
            "retries": row["retries"],
            "next_retry_at": row["next_retry_at"],
        }
        for row in rows.values(*names)
    ]


def require_dead_letter(task_id: UUID) -> None:
    """``NotFound`` when the tenant in context has no such dead letter."""
    if not DeadLetter.objects.filter(pk=task_id).exists():
        raise NotFound(f"There is no dead letter {task_id}.")


def _script(found: Script) -> dict[str, Any]:
    return {"sha256": found.sha256, "name": found.name, "size": found.size, "created_at": found.created_at}


def script(sha256: str) -> dict[str, Any]:
    """A stored script of the tenant in context with its content; ``NotFound`` when there is none such."""
    found = Script.objects.filter(sha256=sha256).first()
    if found is None:
        raise NotFound(f"There is no script {sha256[:64]}.")
    return {**_script(found), "content": bytes(found.content).decode("utf-8", "replace")}


def script_summary(found: Script) -> dict[str, Any]:
    """A stored script without its content."""
    return _script(found)


def script_rows(rows: QuerySet[Any]) -> list[dict[str, Any]]:
    """Scripts as lists show them, in the order they come."""
    return [_script(row) for row in rows.defer("content")]
