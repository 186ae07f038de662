"""Why a task waits: every blocker by name, what would remove it, and when the task will likely start."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import UNCLAIMED, Category, TaskState, is_final
from slackwater_conf import conf
from slackwater_tasks.explain.blockers import Blocker, Blockers
from slackwater_tasks.explain.forecast import forecast
from slackwater_tasks.explain.hits import Record, note_shown, records
from slackwater_tasks.explain.queries import PRESSING, ROW
from slackwater_tasks.ledger.connection import fetch_all, fetch_named
from slackwater_tasks.read.tasks import word
from slackwater_tenants.scoping import current_tenant_id

UNFORESEEN = frozenset({"paused", "never_fits", "no_labels", "no_node", "dispatcher"})
"""Blockers that somebody has to remove."""


def explain(task_id: UUID) -> dict[str, Any]:
    """Why the task of the tenant in context waits; ``NotFound`` when it has none such.

    It changes nothing, but that a predicted start is noted, to be compared with what happens.
    """
    row = fetch_named(ROW, [task_id, current_tenant_id()])
    if row is None:
        raise NotFound(f"There is no task {task_id}.")
    state = TaskState(row["state"] if row["state"] is not None else row["final"])
    waits = state in UNCLAIMED
    answer: dict[str, Any] = {
        "task_id": task_id, "state": word(state), "waiting": waits, "summary": "", "blockers": [], "place": [],
        "latest_start": row["latest_start"], "predicted_start": None, "not_predicted": None, "hit_rate": None,
        "forecasts_checked": 0, "as_of": row["now"],
    }  # fmt: skip
    if not waits:
        answer["summary"] = _not_waiting(state, row)
        return answer
    why = Blockers(task_id, row, state)
    answer["blockers"] = blockers = list(why.found())
    answer["place"] = list(_place(task_id, row))
    record = records().get(row["cell"], Record())
    predicted = _predicted(why, blockers, record)
    answer["not_predicted" if isinstance(predicted, str) else "predicted_start"] = predicted
    answer["hit_rate"], answer["forecasts_checked"] = record.hit_rate, record.checked
    if not isinstance(predicted, str):
        note_shown(task_id, row["cell"], row["fence"], predicted)
    answer["summary"] = blockers[0]["detail"] if blockers else "Nothing holds it: it starts with the next round."
    return answer


def _not_waiting(state: TaskState, row: dict[str, Any]) -> str:
    if is_final(state):
        return f"It has ended: {word(state)}."
    if state is TaskState.RUNNING:
        return f"It runs on {row['node']}."
    claimed = f"It is claimed for {row['node']} and starts as soon as a slot there has done what lies before it."
    after = conf().scheduler.steal_after_s
    return (
        f"{claimed} If it has not begun {after:g} s after its claim, an idle node that may run it gets it."
        if after
        else claimed
    )


def _place(task_id: UUID, row: dict[str, Any]) -> Iterator[str]:
    """What its dependants give it: their urgency, their priority, and its path."""
    if row["category"] == Category.URGENT != row["own_category"]:
        for who in _pressing(task_id, None):
            yield f"It stands in the urgent line, because {who}, which needs it, is urgent."
    if row["priority"] > row["own_priority"]:
        for who in _pressing(task_id, row["priority"]):
            yield f"It has the priority {row['priority']} of {who}, which needs it; its own is {row['own_priority']}."
    if row["path_us"] and row["has_children"]:
        yield (
            f"The longest path from it to an end of its graph takes {row['path_us'] / 1e6:.3g} s as learnt: of what arrived "
            "together, longer paths go first."
        )


def _pressing(task_id: UUID, priority: int | None) -> Iterator[str]:
    for found, name in fetch_all(PRESSING, {"id": task_id, "priority": priority}):
        yield f"{name} ({found})" if name else found


def _predicted(why: Blockers, blockers: list[Blocker], record: Record) -> dict[str, Any] | str:
    """The forecast as moments; or why there is none."""
    for blocker in blockers:
        if blocker["kind"] in UNFORESEEN:
            return f"Nobody knows when this ends: {blocker['detail']}"
    found = forecast(why.conf, why.store, why.snapshot, why.id, why.row["mutex_key"], why.ahead, why.row["parked"])
    if isinstance(found, str):
        return found
    now = why.row["now"]
    floor = max([0.0, *((b["at"] - now).total_seconds() for b in blockers if b["at"] is not None)])
    names = ("earliest", "likely", "latest")
    times = record.widened(*found, floor)
    return {name: now + timedelta(seconds=min(s, 3e8)) for name, s in zip(names, times, strict=True)}


def predicted_start(task_id: UUID, row: dict[str, Any]) -> dict[str, Any] | None:
    """When the waiting task of a row of :data:`ROW` starts, stored or not; ``None`` where nobody can tell."""
    why = Blockers(task_id, row, TaskState(row["state"]))
    found = _predicted(why, list(why.found()), records().get(row["cell"], Record()))
    return None if isinstance(found, str) else found
