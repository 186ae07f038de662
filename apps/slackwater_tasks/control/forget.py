"""Takes the result of a task away before its retention does."""

from __future__ import annotations

from uuid import UUID

from slackwater_tasks.ledger.connection import execute

FORGET = "UPDATE slackwater_tasks_task SET result = NULL WHERE id = %s AND tenant_id = %s"


def forget_result(tenant_id: int, task_id: str | UUID) -> bool:
    """Delete what a task returned, the error it ended with stays; ``False`` if the tenant has no such task."""
    return bool(execute(FORGET, (task_id, tenant_id)))
