"""The past of a task, read like a version history: its submission, its attempts and its events in one order."""

from __future__ import annotations

from datetime import datetime
from itertools import zip_longest
from operator import itemgetter
from typing import Any
from uuid import UUID

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import FINAL, PAUSED, Outcome, TaskState
from slackwater_tasks.models import Attempt, LiveTask, Task, TaskEvent
from slackwater_tasks.read.tasks import word


def _entry(at: datetime, before: TaskState | None, after: TaskState, reason: str, **more: Any) -> dict[str, Any]:
    return {
        "at": at,
        "from": word(before) if before else None,
        "to": word(after),
        "reason": reason,
        "actor": more.get("actor") or None,
        "node": more.get("node"),
        "attempt": more.get("attempt"),
        "detail": more.get("detail"),
    }


def _submission(task: dict[str, Any], events: list[dict[str, Any]], parents: bool) -> list[dict[str, Any]]:
    """How it began, unless an event says so."""
    if any(event["from_state"] is None for event in events):
        return []
    start_at = _first_start_at(task, events)
    first = TaskState.READY
    if parents:
        first = TaskState.BLOCKED
    elif start_at is not None and start_at > task["submitted_at"]:
        first = TaskState.SCHEDULED
    return [_entry(task["submitted_at"], None, first, "submitted", actor=task["submitted_by"])]


def _first_start_at(task: dict[str, Any], events: list[dict[str, Any]]) -> datetime | None:
    """The start time it was submitted with: an edit records the earlier value."""
    for event in events:
        if "start_at" in (event["detail"] or {}):
            before = event["detail"]["start_at"][0]
            return datetime.fromisoformat(before) if before else None
    found: datetime | None = task["start_at"]
    return found


def _claimed(row: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """The two changes that the begin of an attempt stands for."""
    where = {"node": row["node__name"], "attempt": number}
    found = []
    if row["queued_at"] is not None:
        found.append(_entry(row["queued_at"], TaskState.READY, TaskState.QUEUED, "claimed for a node", **where))
    if row["started_at"] is not None:
        found.append(_entry(row["started_at"], TaskState.QUEUED, TaskState.RUNNING, "started", **where))
    return found


def _ended(row: dict[str, Any], after: TaskState) -> dict[str, Any]:
    """The change that the end of an attempt stands for."""
    reason = word(Outcome(row["outcome"])).replace("_", " ")
    lines = (row["error"] or "").strip().splitlines()
    if lines:
        reason = f"{reason}: {lines[-1]}"[:300]
    where = {"node": row["node__name"], "attempt": row["number"]}
    return _entry(row["finished_at"], TaskState.RUNNING, after, reason, **where)


def _state_after(
    row: dict[str, Any], following: dict[str, Any] | None, task: dict[str, Any], events: list[dict[str, Any]]
) -> TaskState:
    """The state in which an attempt left its task: final, or waiting for another attempt.

    A task that ended and was run again has an event that says from which end.
    """
    if task["state"] is not None and task["finished_at"] == row["finished_at"]:
        return TaskState(task["state"])
    for event in events:
        before_next = following is None or event["at"] <= (following["queued_at"] or following["started_at"])
        again = event["from_state"] is not None and TaskState(event["from_state"]) in FINAL
        if again and event["at"] >= row["finished_at"] and before_next:
            return TaskState(event["from_state"])
    if row["outcome"] in PAUSED:
        return TaskState.READY
    return TaskState.SUCCEEDED if row["outcome"] == Outcome.SUCCEEDED else TaskState.SCHEDULED


def _told(event: dict[str, Any]) -> dict[str, Any]:
    before = TaskState(event["from_state"]) if event["from_state"] is not None else None
    return _entry(
        event["at"], before, TaskState(event["to_state"]), event["reason"], actor=event["actor"], detail=event["detail"]
    )


def history(task_id: UUID) -> list[dict[str, Any]]:
    """Every recorded change of a task of the tenant in context, oldest first; ``NotFound`` when it has none such."""
    task = (
        Task.objects.filter(pk=task_id)
        .values("submitted_at", "submitted_by", "start_at", "state", "finished_at")
        .first()
    )
    if task is None:
        raise NotFound(f"There is no task {task_id}.")
    events = list(
        TaskEvent.objects.filter(task_id=task_id)
        .order_by("id")
        .values("at", "from_state", "to_state", "actor", "reason", "detail")
    )
    names = ("number", "node__name", "queued_at", "running_at", "started_at", "finished_at", "outcome", "error")
    runs = list(Attempt.objects.filter(task_id=task_id).order_by("fence").values(*names))
    live = (
        LiveTask.objects.filter(pk=task_id).values("state", "queued_at", "started_at", "attempts", "node__name").first()
    )
    parents = Task.objects.filter(pk=task_id, parent_edges__isnull=False).exists()
    placed = [(entry["at"], entry) for entry in _submission(task, events, parents)]
    for row, following in zip_longest(runs, runs[1:]):
        begun = row["running_at"] or row["started_at"]
        placed += [(entry["at"], entry) for entry in _claimed({**row, "started_at": begun}, row["number"])]
        # Two clocks: the ledger says when it began, its machine when it ended.
        placed.append((max(begun, row["finished_at"]), _ended(row, _state_after(row, following, task, events))))
    if live is not None and live["state"] in {TaskState.QUEUED, TaskState.RUNNING}:
        if live["state"] == TaskState.QUEUED:
            live["started_at"] = None  # left over from an earlier run
        placed += [(entry["at"], entry) for entry in _claimed(live, live["attempts"] + 1)]
    placed += [(event["at"], _told(event)) for event in events]
    return [entry for _, entry in sorted(placed, key=itemgetter(0))]
