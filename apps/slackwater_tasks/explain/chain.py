"""Who holds what a task waits for, by name and tenant: for operators only, as it tells of others' work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import TaskState
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.models import Resumable
from slackwater_tasks.read import platform
from slackwater_tasks.read.tasks import word

SHOWN = 8
SHARED = frozenset({"no_slot", "no_resource", "share", "position", "peak", "reserved"})
"""Blockers that end when anybody's running task does."""
OWN = frozenset({"tenant_in_flight", "hard_share"})
"""Those that end when one of the tenant's does."""
# Of all that it needs, directly or not, what has itself nothing left to need: that is where it stands.
ROOTS = named("""
WITH RECURSIVE up AS (
    SELECT parent_id AS id FROM slackwater_tasks_dependency WHERE child_id = %s AND outcome = :edge.PENDING
    UNION SELECT d.parent_id FROM slackwater_tasks_dependency d JOIN up ON d.child_id = up.id WHERE d.outcome = :edge.PENDING)
SELECT l.task_id, l.state FROM (SELECT id FROM up LIMIT 1000) x JOIN slackwater_tasks_livetask l ON l.task_id = x.id
WHERE l.state <> :state.BLOCKED ORDER BY l.state DESC, l.task_id LIMIT %s
""")
NAMES = """
SELECT t.id, coalesce(nullif(t.name, ''), nullif(t.handler, ''), 'script'), n.slug FROM slackwater_tasks_task t
JOIN slackwater_tenants_tenant n ON n.id = t.tenant_id WHERE t.id = ANY(%s)
"""


def held_by(tenant_id: int, cell: str, why: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks that hold what the explained one waits for, each with the acts at hand; what has run longest first."""
    found: list[dict[str, Any]] = []
    for blocker in why["blockers"]:
        kind = blocker["kind"]
        if kind == "dependency":
            found += _needed(why["task_id"])
        elif kind == "mutex":
            found += _these([UUID(task) for task in blocker["task_ids"]], kind)
        elif kind in SHARED | OWN and not any(row["waits_for"] in SHARED | OWN for row in found):
            rows = platform.running(tenant_id if kind in OWN else None, cell=cell, limit=SHOWN)
            found += [_row(row, kind) for row in rows]
    ids = [row["task_id"] for row in found if row["state"] == "running"]
    # Unscoped: an operator sees all tenants.
    asks = Resumable.objects.unscoped().filter(pk__in=ids, declared=True) if ids else ()
    able = {row.pk for row in asks}
    for row in found:
        row["acts"] = ["cancel", *(["yield"] if row["task_id"] in able else [])]
    return found


def _row(row: dict[str, Any], kind: str, state: str = "running") -> dict[str, Any]:
    return {
        "waits_for": kind, "task_id": row["id"], "name": row["name"] or row["handler"] or row["script"], "state": state,
        "tenant": row["tenant"], "node": row["node"], "running_s": row["running_s"], "cap_s": row["cap_s"],
    }  # fmt: skip


def _these(ids: Sequence[UUID], kind: str, states: dict[UUID, int] | None = None) -> list[dict[str, Any]]:
    """Tasks by their ids: how long they have run, or that they wait themselves."""
    running = {row["id"]: _row(row, kind) for row in platform.running(ids=ids, limit=SHOWN)}
    words = {task: word(TaskState(state)) for task, state in (states or {}).items()}
    return [
        running.get(task)
        or {
            "waits_for": kind, "task_id": task, "name": name, "state": words.get(task, "queued"), "tenant": tenant,
            "node": None, "running_s": None, "cap_s": None,
        }
        for task, name, tenant in fetch_all(NAMES, [list(ids)])
    ]  # fmt: skip


def _needed(task_id: UUID) -> list[dict[str, Any]]:
    states = dict(fetch_all(ROOTS, [task_id, SHOWN]))
    return _these(list(states), "dependency", states) if states else []
