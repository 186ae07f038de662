"""Deletes stored scripts."""

from __future__ import annotations

from scheduler_ext.core.errors import Conflict, NotFound
from slackwater_tasks.models import LiveTask, Script


def delete_script(tenant_id: int, sha256: str) -> None:
    """Remove a script from the tenant's store; the history of tasks that ran it stays.

    ``NotFound`` without one, ``Conflict`` while a task that has not ended needs it.
    """
    # Unscoped, because the tenant is named: another tenant's script is not found.
    rows = Script.objects.unscoped().for_tenant(tenant_id).filter(sha256=sha256)
    if not rows.exists():
        raise NotFound(f"There is no script {sha256[:64]}.")
    if LiveTask.objects.unscoped().for_tenant(tenant_id).filter(task__script_sha256=sha256).exists():
        raise Conflict("a task that has not ended runs it")
    rows.delete()
