"""The read side: a task as the plain values that the API, the commands and Python callers show.

Everything here reads the tenant in context (``tenant_scope``) and costs a fixed number of queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, JSONField, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.functions import Coalesce

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import FINAL, IN_FLIGHT, Outcome, TaskState, client_status
from slackwater_tasks.field_kinds import DETAIL, LISTED, Field, seconds
from slackwater_tasks.ledger.connection import fetch_named
from slackwater_tasks.models import Attempt, LiveTask, Task
from slackwater_tasks.spec import COLUMNS, FIELDS
from slackwater_tenants.scoping import current_tenant_id

READ_AS = {"tier_id": "tier__slug"}
"""Columns of declared fields whose value has another name in a row that is read."""
LISTED_FIELDS = {name: field for name, field in FIELDS.items() if field.shown == LISTED}
DETAIL_FIELDS = {name: field for name, field in FIELDS.items() if field.shown == DETAIL and field.column}
SUMMARY = [
    "id", "workflow_id", "kind", "submitted_at", "state", "finished_at", "attempts_used", "reason", "live__state",
    "live__attempts", "live__started_at", "live__latest_start", "live__not_before", "live__cancel_requested",
    "live__progress", "latest_start", *(READ_AS.get(field.column, field.column) for field in LISTED_FIELDS.values()),
]  # fmt: skip
LIVE_STATES = frozenset(TaskState) - FINAL


def word(member: Any) -> str:
    """An enum member as clients see it: ``all_succeeded``."""
    return str(member.name).lower()


def declared(row: dict[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """The declared fields of a row as the API shows them."""
    return {name: field.kind.shown(row[READ_AS.get(field.column, field.column)]) for name, field in fields.items()}


def state_of(row: dict[str, Any]) -> TaskState:
    """The state of a row: the live row's if there is one, else the task's own."""
    live = row["live__state"]
    return TaskState(live if live is not None else row["state"])


def summary(row: dict[str, Any]) -> dict[str, Any]:
    """A row of :data:`SUMMARY` as lists show it."""
    state = state_of(row)
    live = row["live__state"] is not None
    return {
        **declared(row, LISTED_FIELDS),
        "id": row["id"],
        "workflow_id": row["workflow_id"],
        "status": client_status(state).label,
        "state": word(state),
        "kind": "handler" if row["kind"] == Task.Kind.HANDLER else "script",
        "submitted_at": row["submitted_at"],
        "not_before": row["live__not_before"],
        "latest_start": row["live__latest_start"] or row["latest_start"],
        "started_at": row["live__started_at"] or row.get("began"),
        "finished_at": row["finished_at"],
        "attempts": row["live__attempts"] if live else row["attempts_used"],
        "cancel_requested": bool(row["live__cancel_requested"]),
        "progress": row["live__progress"],
        "reason": row["reason"] or None,
    }


def _detail(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **summary(row),
        **declared(row, DETAIL_FIELDS),
        **{name: _with_those_of_plan(row, name) for name in ("require_labels", "prefer_labels")},
        "depends_on": row["parents"],
        "map": row["map"],
        "waiting_for": (row["live__pending"] or 0) - bool(row["live__pending"] and row["map"]),
        "late_by_s": row["late_by_s"],
        "webhook": row["webhook"] or None,
        "checkpoints": row["declared"],
        "checkpoint": _saved(row["saved"]),
        "submitted_by": row["submitted_by"] or None,
        "copied_from": row["copied_from"],
        "admitted_by": row["admitted_by"],
        "scheduling_type": row["scheduling_type"],
        "node": row["node"],
        "result": row["result"],
        "error": row["error"] or None,
    }


def _with_those_of_plan(row: dict[str, Any], name: str) -> list[str]:
    """The labels it asks for, and until its end those its plan added when it was submitted: its line has them all."""
    return list(dict.fromkeys((*(row[name] or ()), *(row[f"line_{name}"] or ()))))


def _saved(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """The newest checkpoint, from which the task would resume."""
    return found and {**found, "saved_at": datetime.fromisoformat(found["saved_at"])}


# One query by hand: it is what pollers ask all day, and building it anew costs three times what answering it does.
TASK = f"""
SELECT {", ".join(f"t.{column}" for column in COLUMNS)},
       t.id, t.workflow_id, t.kind, r.slug AS tier__slug, t.submitted_at, t.state, t.finished_at, t.attempts_used, t.reason,
       l.state AS live__state, l.attempts AS live__attempts, coalesce(l.started_at, a.started_at) AS live__started_at,
       l.latest_start AS live__latest_start, t.latest_start, extract(epoch FROM late.by)::float8 AS late_by_s,
       l.not_before AS live__not_before,
       l.cancel_requested AS live__cancel_requested, l.progress AS live__progress, l.pending AS live__pending,
       t.submitted_by, t.admitted_by, t.copied_from, t.result, t.error, n.name AS node,
       CASE WHEN starts_with(t.submitted_by, 'schedule:') THEN (
           SELECT s.kind FROM slackwater_schedules_schedule s
           WHERE s.tenant_id = t.tenant_id AND s.name = substr(t.submitted_by, 10)) ELSE 'once' END AS scheduling_type,
       coalesce(p.declared, false) AS declared, c.saved,
       coalesce((SELECT w.url FROM slackwater_tasks_taskwebhook w WHERE w.task_id = t.id), '') AS webhook,
       i.require_labels AS line_require_labels, i.prefer_labels AS line_prefer_labels,
       (SELECT m.given FROM slackwater_tasks_mapnode m WHERE m.task_id = t.id) AS map,
       ARRAY(SELECT d.parent_id FROM slackwater_tasks_dependency d WHERE d.child_id = t.id ORDER BY d.parent_id) AS parents
FROM slackwater_tasks_task t
JOIN slackwater_resources_tier r ON r.id = t.tier_id
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id
LEFT JOIN slackwater_tasks_line i ON i.id = l.line_id
LEFT JOIN LATERAL (
    SELECT coalesce(x.running_at, x.started_at) AS started_at, x.node_id FROM slackwater_tasks_attempt x
    WHERE x.task_id = t.id AND t.state IS NOT NULL
    ORDER BY x.fence DESC LIMIT 1) a ON true
-- Against its first start since its delay began to count; or, unstarted, against its end, or now.
LEFT JOIN LATERAL (SELECT greatest(interval '0', coalesce((
        SELECT min(x.started_at) FROM slackwater_tasks_attempt x WHERE x.task_id = t.id
            AND x.started_at >= coalesce(l.latest_start, t.latest_start) - t.delay_tolerance_ms * interval '1 millisecond'),
        l.started_at, t.finished_at, clock_timestamp()) - coalesce(l.latest_start, t.latest_start)) AS by) late ON true
LEFT JOIN slackwater_resources_node n ON n.id = coalesce(l.node_id, a.node_id)
LEFT JOIN slackwater_tasks_resumable p ON p.task_id = t.id AND p.declared
LEFT JOIN LATERAL (
    SELECT jsonb_build_object('number', k.number, 'size', k.size, 'saved_at', k.saved_at, 'attempt', coalesce(
        (SELECT y.number FROM slackwater_tasks_attempt y WHERE y.task_id = k.task_id AND y.fence = k.fence),
        l.attempts + 1)) AS saved
    FROM slackwater_tasks_checkpoint k WHERE p.declared AND k.task_id = t.id ORDER BY k.number DESC LIMIT 1) c ON true
WHERE t.id = %s AND t.tenant_id = %s
"""  # noqa: S608 - columns of ours
JSON_COLUMNS = [
    *(column for column in COLUMNS if isinstance(Task._meta.get_field(column), JSONField)),
    *("result", "live__progress", "saved", "map"),
]


def task(task_id: UUID) -> dict[str, Any]:
    """One task with all that is known of it; ``NotFound`` if the tenant in context has no such task."""
    row = fetch_named(TASK, [task_id, current_tenant_id()])
    if row is None:
        raise NotFound(f"There is no task {task_id}.")
    for name in JSON_COLUMNS:
        if row[name] is not None:
            row[name] = json.loads(row[name])
    return _detail(row)


STATUS = """
SELECT t.id, coalesce(l.state, t.state) AS state, coalesce(l.cancel_requested, false) AS cancel_requested, t.finished_at
FROM slackwater_tasks_task t LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id WHERE t.id = %s AND t.tenant_id = %s
"""


def status(task_id: UUID) -> dict[str, Any]:
    """The state of one task and no more; ``NotFound`` if the tenant in context has no such task."""
    row = fetch_named(STATUS, [task_id, current_tenant_id()])
    if row is None:
        raise NotFound(f"There is no task {task_id}.")
    state = TaskState(row["state"])
    return {**row, "status": client_status(state).label, "state": word(state)}


def require_task(task_id: UUID) -> None:
    """Raise ``NotFound`` if the tenant in context has no such task."""
    if not Task.objects.filter(pk=task_id).exists():
        raise NotFound(f"There is no task {task_id}.")


def in_states(rows: QuerySet[Any], states: Iterable[TaskState]) -> QuerySet[Any]:
    """Narrow tasks to these states, wherever each is stored."""
    wanted = set(states)
    live, final = [int(s) for s in wanted & LIVE_STATES], [int(s) for s in wanted & FINAL]
    match = Q(pk__in=[])
    if live and wanted <= IN_FLIGHT:
        match |= Q(live__phase=TaskState.QUEUED, live__state__in=live)  # an index has just these
    elif live:
        match |= Q(live__state__in=live)
    if final:
        match |= Q(state__in=final)
    return rows.filter(match)


def summaries(rows: QuerySet[Any]) -> list[dict[str, Any]]:
    """Tasks as lists show them; of those that have ended, the last attempt tells when they began."""
    last = Attempt.objects.unscoped().filter(task=OuterRef("pk")).order_by("-fence")  # of tasks that are in scope
    began = Subquery(last.values(at=Coalesce("running_at", "started_at"))[:1])
    found = rows.annotate(began=Case(When(state__isnull=False, then=began)))
    return [summary(row) for row in found.values(*SUMMARY, "began")]


def finished_ids(task_ids: Sequence[UUID]) -> list[UUID]:
    """Which of these tasks, of any tenant, are final: one query for everybody who waits.

    Unscoped because the waiting of many tenants is looked up at once; each of them was checked when it began to wait.
    """
    rows = Task.objects.unscoped().filter(pk__in=task_ids, state__isnull=False)
    return list(rows.values_list("pk", flat=True))


def states(task_ids: Sequence[str]) -> dict[str, int]:
    """The states of these tasks, of any tenant: to verify what the feed says."""
    found: dict[str, int] = {}
    for model, key in ((Task, "id"), (LiveTask, "task_id")):  # a live row's word is the later one
        rows = model.objects.unscoped().filter(pk__in=task_ids, state__isnull=False)
        found |= {str(task_id): state for task_id, state in rows.values_list(key, "state")}
    return found


def attempts(task_id: UUID) -> list[dict[str, Any]]:
    """The attempts of a task that began and ended, oldest first."""
    names = (
        "number", "fence", "worker", "queued_at", "started_at", "finished_at", "error", "exit_code",
        "peak_memory_mb", "peak_disk_mb",
    )  # fmt: skip
    more = ("running_at", "cpu_ms", "outcome", "node__name")
    rows = Attempt.objects.filter(task_id=task_id).order_by("fence").values(*names, *more)
    return [
        {
            **{name: None if row[name] == "" else row[name] for name in names},
            "started_at": row["running_at"] or row["started_at"],
            "outcome": word(Outcome(row["outcome"])),
            "node": row["node__name"],
            "cpu_s": seconds(row["cpu_ms"]),
            "duration_s": (row["finished_at"] - row["started_at"]).total_seconds(),
        }
        for row in rows
    ]
