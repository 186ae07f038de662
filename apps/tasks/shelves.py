"""The read side beside tasks: dead letters and scripts of the tenant in context."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.tasks.models import DeadLetter, Script
from apps.tasks.reading import word
from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import Outcome


def dead_letter_rows(*, before: tuple[datetime, UUID] | None, limit: int) -> list[dict[str, Any]]:
    """The latest dead letters of the tenant in context that are older than ``before``: (moment, task id)."""
    rows = DeadLetter.objects.all()
    if before is not None:
        rows = rows.filter(Q(at__lt=before[0]) | Q(at=before[0], task_id__lt=before[1]))
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
        for row in rows.order_by("-at", "-task_id").values(*names)[:limit]
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


def script_rows(*, before: int | None, limit: int) -> list[tuple[int, dict[str, Any]]]:
    """The latest scripts of the tenant in context with their row numbers."""
    rows = Script.objects.defer("content")
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return [(row.pk, _script(row)) for row in rows.order_by("-id")[:limit]]
