"""The read side of workflows: the state of each, by its tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import FINAL, ClientStatus, TaskState, client_status
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.models import LiveTask, Task, Workflow
from slackwater_tasks.read.tasks import finished_ids, word

COUNTS = """
SELECT t.workflow_id, coalesce(l.state, t.state) AS state, count(*), max(t.finished_at) FROM slackwater_tasks_task t
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id WHERE t.workflow_id = ANY(%s) GROUP BY 1, 2
"""
ENDED = """
SELECT w.id FROM slackwater_tasks_workflow w WHERE w.id = ANY(%s) AND (w.status IS NOT NULL OR NOT EXISTS (
    SELECT 1 FROM slackwater_tasks_task t WHERE t.workflow_id = w.id AND t.state IS NULL))
"""
SHOWN = ("id", "name", "task_count", "edge_count", "submitted_at", "tags", "max_running", "share_weight")


COUNTED_TASKS = 50_000
"""Tasks that a list counts at most; of workflows beyond, it tells only what they themselves tell."""


class Standing:
    """The state of a workflow, by its tasks."""

    def __init__(self) -> None:
        self.counts: dict[TaskState, int] = {}
        self.last_end: datetime | None = None

    @property
    def failures(self) -> int:
        """The tasks that failed, or whose time was up."""
        return self.counts.get(TaskState.FAILED, 0) + self.counts.get(TaskState.EXPIRED, 0)

    @property
    def progress(self) -> tuple[int, int]:
        """How many tasks have ended, of how many."""
        return sum(n for state, n in self.counts.items() if state in FINAL), sum(self.counts.values())

    @property
    def status(self) -> ClientStatus:
        """The four statuses of a task; done where nothing has failed."""
        final, every = self.progress
        if final < every:
            begun = final > 0 or TaskState.RUNNING in self.counts
            return ClientStatus.IN_PROGRESS if begun else ClientStatus.WAITING
        done = all(client_status(state) is ClientStatus.DONE for state, n in self.counts.items() if n)
        return ClientStatus.DONE if done else ClientStatus.FAILED


def _standing(ids: Sequence[UUID]) -> dict[UUID, Standing]:
    found = {workflow_id: Standing() for workflow_id in ids}
    for workflow_id, state, count, last in fetch_all(COUNTS, [list(ids)]) if ids else ():
        one = found[workflow_id]
        one.counts[TaskState(state)] = count
        one.last_end = max(filter(None, (one.last_end, last)), default=None)
    return found


def standings(rows: Sequence[Workflow]) -> dict[UUID, Standing]:
    """Of those of a page that did not go well, as far as their tasks are few enough to be counted."""
    counted, left = [], COUNTED_TASKS
    for row in rows:
        if row.status != ClientStatus.DONE and row.task_count <= left:
            left -= row.task_count
            counted.append(row.pk)
    return _standing(counted)


def _summary(row: Workflow, standing: Standing | None) -> dict[str, Any]:
    status = standing.status if standing is not None else ClientStatus(row.status or ClientStatus.DONE)
    ended = status in (ClientStatus.DONE, ClientStatus.FAILED)
    at = standing.last_end if standing is not None else row.finished_at
    return {
        **{name: getattr(row, name) for name in SHOWN},
        "name": row.name or None,
        "metadata": row.metadata or {},
        "status": status.label,
        "finished_at": at if ended else None,
    }


def find(workflow_id: UUID) -> Workflow:
    """The workflow; ``NotFound`` if the tenant in context has no such one."""
    found: Workflow | None = Workflow.objects.filter(pk=workflow_id).first()
    if found is None:
        raise NotFound(f"There is no workflow {workflow_id}.")
    return found


def workflow(workflow_id: UUID) -> dict[str, Any]:
    """A workflow with its tasks counted by state; ``NotFound`` if the tenant in context has no such one."""
    row = find(workflow_id)
    standing = _standing([workflow_id])[workflow_id]
    return {**_summary(row, standing), "counts": {word(state): standing.counts.get(state, 0) for state in TaskState}}


def workflow_rows(rows: QuerySet[Any]) -> list[dict[str, Any]]:
    """Workflows as lists show them; tasks are counted only for those not known to have ended."""
    page = list(rows)
    standing = _standing([row.pk for row in page if row.status is None])
    return [_summary(row, standing.get(row.pk)) for row in page]


def of_platform(tenant_id: int | None, limit: int) -> list[dict[str, Any]]:
    """The latest of all tenants, or of one, with their tasks counted by state."""
    # Unscoped: an operator sees all tenants, or names one.
    rows = Workflow.objects.unscoped().select_related("tenant").order_by("-id")
    page = list((rows if tenant_id is None else rows.for_tenant(tenant_id))[:limit])
    standing = _standing([row.pk for row in page])
    return [
        {
            **_summary(row, standing[row.pk] if row.status is None else None),
            "tenant": row.tenant.slug,
            "counts": {word(state): n for state, n in sorted(standing[row.pk].counts.items())},
        }
        for row in page
    ]


def in_statuses(rows: QuerySet[Any], labels: Collection[str]) -> QuerySet[Any]:
    """Narrow workflows to these statuses; one that has just ended counts as ended within a second."""
    wanted = {status for status in ClientStatus if status.label in labels}
    match = Q(status__in=[int(status) for status in wanted])
    tasks = Task.objects.unscoped().filter(workflow=OuterRef("pk"))  # the workflow is the tenant's
    running = LiveTask.objects.unscoped().filter(task__workflow=OuterRef("pk"), state=TaskState.RUNNING)
    begun = Exists(tasks.filter(state__isnull=False)) | Exists(running)
    if {ClientStatus.WAITING, ClientStatus.IN_PROGRESS} <= wanted:
        match |= Q(status__isnull=True)
    elif ClientStatus.IN_PROGRESS in wanted:
        match |= Q(status__isnull=True) & Q(begun)
    elif ClientStatus.WAITING in wanted:
        match |= Q(status__isnull=True) & ~Q(begun)
    return rows.filter(match)


def ended_ids(ids: Sequence[UUID]) -> list[UUID]:
    """Which of these tasks and workflows, of any tenant, have ended: for all who wait, each checked before."""
    return [*finished_ids(ids), *(row[0] for row in fetch_all(ENDED, [list(ids)]))]
