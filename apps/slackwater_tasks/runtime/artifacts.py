"""Artifacts in the ledger: saved under the attempt's fence and within the plan, in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from scheduler_ext.core.errors import InvalidInput, NotFound
from scheduler_ext.core.sql import named
from scheduler_ext.core.work import File
from scheduler_ext.task.artifacts import MAX_ARTIFACTS, ArtifactsTooLarge, check_name, check_type
from scheduler_ext.task.effects import AttemptReplaced
from slackwater_tasks.models import Artifact, Task, new_id
from slackwater_tasks.runtime import objects
from slackwater_tasks.runtime.attempt import Attempt

HOLD = named("""
SELECT p.max_artifact_bytes FROM slackwater_tasks_livetask l JOIN slackwater_tenants_tenant t ON t.id = l.tenant_id
JOIN slackwater_tenants_plan p ON p.id = t.plan_id
WHERE l.task_id = %s AND l.fence = %s AND l.state = :state.RUNNING FOR SHARE OF l
""")
KEEP = """
INSERT INTO slackwater_tasks_artifact (id, task_id, tenant_id, name, content_type, size, sha256, content, key, fence)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (task_id, name) DO UPDATE SET id = excluded.id, content_type = excluded.content_type, size = excluded.size,
    sha256 = excluded.sha256, content = excluded.content, key = excluded.key, fence = excluded.fence,
    saved_at = clock_timestamp()
"""
REPLACED = """
INSERT INTO slackwater_tasks_emptiedfolder (path)
SELECT key FROM slackwater_tasks_artifact WHERE task_id = %s AND name = ANY(%s) AND key <> '' ON CONFLICT DO NOTHING
"""
TOTAL = "SELECT count(*), coalesce(sum(size), 0)::bigint FROM slackwater_tasks_artifact WHERE task_id = %s"


class PgArtifacts(Attempt):
    """The artifacts of one attempt."""

    def save_artifacts(self, files: Sequence[File]) -> None:
        for file in files:
            check_name(file.name)
            check_type(file.content_type)
        if files:
            folder = objects.folder_of_task(self.task.tenant_id, self.task.task_id)
            kept = [(file, objects.keep(folder, file.content)) for file in files]
            self.db.repeatable(lambda conn: self._keep(conn, kept))

    def _keep(self, conn: Any, files: Sequence[tuple[File, objects.Content]]) -> None:
        task = self.task
        row = conn.execute(HOLD, (task.task_id, task.fence)).fetchone()
        if row is None:
            raise AttemptReplaced("this attempt has lost its task: its artifacts are not kept")
        conn.execute(REPLACED, (task.task_id, [file.name for file, _ in files]))
        for file, content in files:
            conn.execute(
                KEEP,
                (
                    new_id(), task.task_id, task.tenant_id, file.name, file.content_type, len(file.content),
                    hashlib.sha256(file.content).hexdigest(), content.here, content.key, task.fence,
                ),
            )  # fmt: skip
        number, size = conn.execute(TOTAL, (task.task_id,)).fetchone()
        if size > row[0]:
            raise ArtifactsTooLarge(f"the task's artifacts have {size} bytes, the plan allows {row[0]}")
        if number > MAX_ARTIFACTS:
            raise InvalidInput(f"a task has at most {MAX_ARTIFACTS} artifacts", field="name")


def listed(rows: QuerySet[Any]) -> list[dict[str, Any]]:
    return [shown(row) for row in rows.defer("content")]


def shown(row: Artifact) -> dict[str, Any]:
    """An artifact without its content."""
    return {
        "name": row.name, "content_type": row.content_type, "size": row.size, "sha256": row.sha256,
        "saved_at": row.saved_at,
    }  # fmt: skip


def of_task(task_id: UUID) -> QuerySet[Any]:
    """The artifacts of a task of the tenant in context; ``NotFound`` when it has no such task."""
    if not Task.objects.filter(pk=task_id).exists():
        raise NotFound(f"There is no task {task_id}.")
    return Artifact.objects.filter(task_id=task_id)


def get(task_id: UUID, name: str) -> Artifact:
    """One, its content left where it is; ``NotFound`` when the task has none of that name."""
    rows = of_task(task_id).defer("content")
    found: Artifact | None = rows.filter(name=name).first() if "\x00" not in name else None
    if found is None:
        raise NotFound("The task has no artifact of that name.")
    return found


def content(row: Artifact, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Its bytes from ``start`` up to ``end``, in pieces."""
    return objects.read("slackwater_tasks_artifact", row.pk, row.key, start, row.size if end is None else end)
