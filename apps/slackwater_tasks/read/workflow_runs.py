"""How a workflow's tasks wait and run, each attempt of each, and the path that decided when it ended.

Unscoped: an operator sees all tenants, and names the workflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduler_ext.core.states import Outcome, TaskState, is_final
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.read.tasks import word

MOST_TASKS = 10_000
MOST_ATTEMPTS = 40_000
MOST_EDGES = 100_000
# Chosen apart from their order: else the planner may walk through all tasks by their ids to find those of a workflow.
TASKS = """
WITH t AS MATERIALIZED (SELECT id, name, handler, script_path, script_sha256, state, submitted_at, start_at, finished_at
    FROM slackwater_tasks_task WHERE workflow_id = %s)
SELECT t.id, t.name, coalesce(nullif(t.handler, ''), nullif(t.script_path, ''), 'script ' || left(t.script_sha256, 12)),
    coalesce(l.state, t.state), greatest(t.submitted_at, t.start_at), t.finished_at, l.started_at
FROM t LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id ORDER BY t.id LIMIT %s
"""
ATTEMPTS = """
WITH t AS MATERIALIZED (SELECT id FROM slackwater_tasks_task WHERE workflow_id = %s)
SELECT a.task_id, coalesce(a.running_at, a.started_at), a.finished_at, a.outcome
FROM t JOIN slackwater_tasks_attempt a ON a.task_id = t.id ORDER BY a.task_id, a.fence LIMIT %s
"""
EDGES = """
WITH t AS MATERIALIZED (SELECT id FROM slackwater_tasks_task WHERE workflow_id = %s)
SELECT d.parent_id, d.child_id FROM t JOIN slackwater_tasks_dependency d ON d.child_id = t.id
ORDER BY d.child_id, d.parent_id LIMIT %s
"""


@dataclass(slots=True, kw_only=True)
class Run:
    """One task of a workflow."""

    id: UUID
    name: str
    what: str
    state: TaskState
    free_at: datetime
    """Since when nothing held it back but room: its submission, start time, or the end of its last parent."""
    ended_at: datetime | None
    attempts: list[tuple[datetime, datetime | None, str]] = field(default_factory=list)
    """When each began and ended, and its outcome; the last may be running."""
    parents: list[int] = field(default_factory=list)

    def until(self, now: datetime) -> datetime:
        """Its end, or how far it has come."""
        if self.ended_at is not None:
            return self.ended_at
        return now if self.attempts and self.attempts[-1][1] is None else self.free_at


def runs(workflow_id: UUID) -> list[Run]:
    """The tasks of a workflow, at most :data:`MOST_TASKS`, in the order of their ids: three statements."""
    rows = fetch_all(TASKS, [workflow_id, MOST_TASKS])
    found = [
        Run(id=i, name=name or str(i)[-12:], what=what, state=TaskState(state), free_at=free_at, ended_at=ended_at)
        for i, name, what, state, free_at, ended_at, _ in rows
    ]
    index = {run.id: n for n, run in enumerate(found)}
    for task_id, began, ended, outcome in fetch_all(ATTEMPTS, [workflow_id, MOST_ATTEMPTS]):
        if task_id in index:
            found[index[task_id]].attempts.append((began, max(began, ended), word(Outcome(outcome))))
    for run, row in zip(found, rows, strict=True):
        if run.state is TaskState.RUNNING and row[6] is not None:
            run.attempts.append((row[6], None, "running"))
    for parent, child in fetch_all(EDGES, [workflow_id, MOST_EDGES]):
        if parent in index and child in index:
            found[index[child]].parents.append(index[parent])
    for run in found:
        ends = [end for n in run.parents if (end := found[n].ended_at) is not None]
        run.free_at = max([run.free_at, *ends])
    return found


def critical_path(found: Sequence[Run], now: datetime) -> list[int]:
    """The tasks that decided when the workflow ended, or how far it has come: each the last parent of the next."""
    begun = [n for n, run in enumerate(found) if run.attempts or run.ended_at]
    if not begun:
        return []
    path = [max(begun, key=lambda n: (found[n].until(now), n))]
    seen = set(path)
    while parents := [n for n in found[path[-1]].parents if n not in seen]:
        path.append(max(parents, key=lambda n: (found[n].until(now), n)))
        seen.add(path[-1])
    return path[::-1]


def picture(workflow_id: UUID, submitted_at: datetime, now: datetime) -> dict[str, Any]:
    """All that the graph and the timeline of a workflow show, as JSON takes it. Times are milliseconds since it came."""
    found = runs(workflow_id)
    path = critical_path(found, now)

    def ms(at: datetime | None) -> int | None:
        return None if at is None else round((at - submitted_at).total_seconds() * 1_000)

    return {
        "began": submitted_at.isoformat(),
        "now": ms(now),
        "final": all(is_final(run.state) for run in found),
        "tasks": [
            [
                str(run.id), run.name, run.what, word(run.state), ms(run.free_at), ms(run.ended_at), run.parents,
                [[ms(began), ms(ended), outcome] for began, ended, outcome in run.attempts],
            ]
            for run in found
        ],
        "critical": path,
        "critical_ms": ms(found[path[-1]].until(now)) if path else None,
        "critical_ran_ms": sum(
            (ms(ended or now) or 0) - (ms(began) or 0) for n in path for began, ended, _ in found[n].attempts
        ),
    }  # fmt: skip
