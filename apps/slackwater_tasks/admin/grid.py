"""Past runs beside each other: a row for each task by its name, a column for each run, a cell for the state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from scheduler_ext.core.states import TaskState
from slackwater_adminkit.display import seconds
from slackwater_tasks.admin.graphs import task_url
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.read.tasks import word

RUNS = 25
NAMES = 200
TASKS_OF_RUN = 400
MARKS = {
    TaskState.SUCCEEDED: "✓", TaskState.FAILED: "✕", TaskState.CANCELLED: "–", TaskState.EXPIRED: "!",
    TaskState.SKIPPED: "»", TaskState.RUNNING: "▶",
}  # fmt: skip
"""What a cell says beside its colour; nothing for what waits."""
LOOKED_AT = 5_000
# No index leads from a name to its workflows: the latest of the tenant are looked through.
NAMED = """
SELECT id FROM (SELECT id, name FROM slackwater_tasks_workflow WHERE tenant_id = %s ORDER BY id DESC LIMIT %s) w
WHERE name = %s ORDER BY id DESC LIMIT %s
"""
OF_WORKFLOWS = """
SELECT w.id, w.submitted_at, w.finished_at, t.id, coalesce(nullif(t.name, ''), nullif(t.handler, ''), 'script'),
    coalesce(l.state, t.state)
FROM slackwater_tasks_workflow w CROSS JOIN LATERAL (
    SELECT id, name, handler, state FROM slackwater_tasks_task WHERE workflow_id = w.id ORDER BY id LIMIT %s) t
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id WHERE w.id = ANY(%s) ORDER BY w.id, t.id
"""
OF_TASKS = """
SELECT NULL::uuid, t.submitted_at, t.finished_at, t.id, coalesce(nullif(t.name, ''), nullif(t.handler, ''), 'script'),
    coalesce(l.state, t.state)
FROM slackwater_tasks_task t LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id WHERE t.id = ANY(%s) ORDER BY t.id
"""


class Column(NamedTuple):
    """One run."""

    url: str
    at: datetime
    took: timedelta | None
    cells: dict[str, tuple[UUID, TaskState]]
    """By the name of a task."""


def named_like(tenant_id: int, name: str) -> list[UUID]:
    """The latest workflows of a tenant with this name."""
    return [row[0] for row in fetch_all(NAMED, [tenant_id, LOOKED_AT, name, RUNS])]


def columns(workflow_ids: Sequence[UUID], task_ids: Sequence[UUID] = ()) -> list[Column]:
    """These runs, the oldest first: two statements at most."""
    rows = fetch_all(OF_WORKFLOWS, [TASKS_OF_RUN, list(workflow_ids)]) if workflow_ids else []
    rows += fetch_all(OF_TASKS, [list(task_ids)]) if task_ids else []
    found: dict[UUID, Column] = {}
    for workflow_id, at, ended, task_id, name, state in rows:
        run = workflow_id or task_id
        if run not in found:
            url = reverse("admin:slackwater_tasks_workflow_change", args=[run]) if workflow_id else task_url(task_id)
            found[run] = Column(url, at, ended - at if ended else None, {})
        found[run].cells[name] = (task_id, TaskState(state))
    return sorted(found.values(), key=lambda column: column.at)


def _cell(name: str, found: tuple[UUID, TaskState] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    task_id, state = found
    return {
        "url": task_url(task_id),
        "says": f"{name}: {word(state)}",
        "kind": word(state),
        "mark": MARKS.get(state, "·"),
    }


def grid_page(request: HttpRequest, title: str, back: str, runs: Sequence[Column]) -> HttpResponse:
    """The page of such a grid."""
    names = list(dict.fromkeys(name for run in reversed(runs) for name in run.cells))
    longest = max((run.took for run in runs if run.took), default=None)
    context = {
        **admin.site.each_context(request),
        "title": title,
        "back": back,
        "runs": [
            {
                "url": run.url, "at": run.at, "took": seconds(run.took) if run.took else "not ended",
                "part": round(100 * (run.took / longest)) if run.took and longest else 0,
            }
            for run in runs
        ],
        "rows": [(name, [_cell(name, run.cells.get(name)) for run in runs]) for name in names[:NAMES]],
        "left_out": max(0, len(names) - NAMES),
        "legend": [(word(state), mark) for state, mark in MARKS.items()],
    }  # fmt: skip
    return TemplateResponse(request, "slackwater_dashboard/grid.html", context)
