"""How a workflow ran, from its attempts: order kept, makespan against its bound, start delays."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduler_ext.core.dag import Dag
from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import Outcome, TaskState, is_final
from slackwater_tasks.ledger.connection import fetch_all, fetch_value
from slackwater_tasks.models import Task, Workflow
from slackwater_tenants.scoping import current_tenant_id

SHOWN_VIOLATIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One task as its row and its attempts describe it."""

    id: UUID
    name: str
    state: TaskState
    may_start_at: datetime
    """When it was submitted, or its start time if that is later."""
    started_at: datetime | None
    """When its first attempt began."""
    ended_at: datetime | None
    """When its first success ended; without one, when the task became final."""
    work_s: float
    """Its work in seconds: what it was told to take, else the measured run time."""
    is_script: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowReport:
    """The figures of a run. Seconds; ``None`` where there is nothing to report yet."""

    id: UUID
    name: str
    tasks: int
    edges: int
    states: dict[str, int]
    unfinished: int
    violations: int
    """Edges whose child began before its parent had ended."""
    violating: tuple[str, ...]
    """The first of them: ``parent -> child``."""
    makespan_s: float | None
    """From the submission to the end of the last task."""
    work_s: float
    critical_path_s: float
    slots: int
    bound_s: float | None
    """No schedule on these slots can take less: the critical path, or the work over the slots."""
    ratio: float | None
    """Makespan over that bound."""
    delay_mean_s: float | None
    """Start delay: from the moment nothing held a task back any more to its start."""
    delay_p95_s: float | None
    delay_max_s: float | None

    def as_json(self) -> dict[str, Any]:
        """Plain values, rounded to the microsecond."""
        values = {name: getattr(self, name) for name in self.__slots__}
        plain = {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}
        return {**plain, "id": str(self.id), "violating": list(self.violating)}


def report(workflow_id: UUID, *, slots: int | None = None) -> WorkflowReport:
    """The report of a workflow of the tenant in context; ``NotFound`` when it has none such.

    ``slots``: how many tasks could run at once; counted from the nodes that lived during the run when not given.
    """
    workflow = Workflow.objects.filter(pk=workflow_id).first()
    if workflow is None:
        raise NotFound(f"There is no workflow {workflow_id}.")
    tasks = _tasks(workflow_id)
    edges = _edges(workflow_id)
    ends = [task.ended_at for task in tasks if task.ended_at is not None]
    if slots is None:
        slots = _slots(tasks, workflow.submitted_at, max(ends, default=None))
    return measure(workflow_id, workflow.name, tasks, edges, submitted_at=workflow.submitted_at, slots=slots)


def measure(workflow_id: UUID, name: str, tasks: Sequence[TaskRun], edges: Sequence[tuple[UUID, UUID]], *,
            submitted_at: datetime, slots: int) -> WorkflowReport:  # fmt: skip
    """The figures, from runs and (parent, child) edges. Pure."""
    index = {task.id: n for n, task in enumerate(tasks)}
    parents: list[list[int]] = [[] for _ in tasks]
    for parent, child in edges:
        parents[index[child]].append(index[parent])
    ended = [task.ended_at for task in tasks if task.ended_at is not None]
    unfinished = sum(1 for task in tasks if not is_final(task.state))
    makespan = (max(ended) - submitted_at).total_seconds() if ended and not unfinished else None
    work = math.fsum(task.work_s for task in tasks)
    critical = Dag([task.name for task in tasks], parents).critical_length([task.work_s for task in tasks])
    bound = max(critical, work / slots) if slots else None
    violating = _violations(tasks, parents)
    delays = sorted(_delays(tasks, parents))
    return WorkflowReport(
        id=workflow_id,
        name=name,
        tasks=len(tasks),
        edges=len(edges),
        states=_count(tasks),
        unfinished=unfinished,
        violations=len(violating),
        violating=tuple(violating[:SHOWN_VIOLATIONS]),
        makespan_s=makespan,
        work_s=work,
        critical_path_s=critical,
        slots=slots,
        bound_s=bound,
        ratio=makespan / bound if makespan is not None and bound else None,
        delay_mean_s=math.fsum(delays) / len(delays) if delays else None,
        delay_p95_s=percentile(delays, 95),
        delay_max_s=delays[-1] if delays else None,
    )


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest value that at least ``percent`` of the ordered values do not exceed (nearest rank)."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _count(tasks: Sequence[TaskRun]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for task in sorted(tasks, key=lambda task: task.state):
        word = task.state.name.lower()
        counts[word] = counts.get(word, 0) + 1
    return counts


def _violations(tasks: Sequence[TaskRun], parents: Sequence[Sequence[int]]) -> list[str]:
    found = []
    for child, needs in zip(tasks, parents, strict=True):
        if child.started_at is None:
            continue
        for place in needs:
            ended = tasks[place].ended_at
            if ended is None or ended > child.started_at:
                found.append(f"{tasks[place].name} -> {child.name}")
    return found


def _delays(tasks: Sequence[TaskRun], parents: Sequence[Sequence[int]]) -> list[float]:
    """Start delay of each task that began and whose parents have all ended, in seconds."""
    delays = []
    for task, needs in zip(tasks, parents, strict=True):
        ends = [tasks[place].ended_at for place in needs]
        if task.started_at is None or None in ends:
            continue
        free_at = max([task.may_start_at, *(end for end in ends if end is not None)])
        delays.append((task.started_at - free_at).total_seconds())
    return delays


# -- what the ledger holds ------------------------------------------------------------------------------------------
# An attempt counts from its first begin; a task run again later by hand keeps the times of its first success, by which
# its children were released.
TASKS = """
SELECT t.id, coalesce(nullif(t.name, ''), t.id::text), coalesce(l.state, t.state),
       greatest(t.submitted_at, coalesce(t.start_at, t.submitted_at)),
       coalesce(a.first_start, l.started_at), coalesce(a.first_success, t.finished_at),
       extract(epoch FROM a.run_time)::float8, t.kwargs::text, t.kind
FROM slackwater_tasks_task t LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id
LEFT JOIN LATERAL (
    SELECT min(x.started_at) AS first_start, min(x.finished_at) FILTER (WHERE x.outcome = %s) AS first_success,
           min(x.finished_at - x.started_at) FILTER (WHERE x.outcome = %s) AS run_time
    FROM slackwater_tasks_attempt x WHERE x.task_id = t.id) a ON true
WHERE t.workflow_id = %s AND t.tenant_id = %s ORDER BY t.id
"""
EDGES = """
SELECT d.parent_id, d.child_id FROM slackwater_tasks_dependency d
JOIN slackwater_tasks_task c ON c.id = d.child_id JOIN slackwater_tasks_task p ON p.id = d.parent_id
WHERE c.workflow_id = %s AND p.workflow_id = %s AND c.tenant_id = %s
"""
# A node that was registered anew under its name while the workflow ran is still one machine.
SLOTS = """
SELECT coalesce(sum(slots), 0) FROM (
    SELECT n.name, max(coalesce((n.slots->>'process')::int, 0) * %s
        + coalesce((n.slots->>'script')::int, 0) * %s) AS slots
    FROM slackwater_resources_node n
    JOIN slackwater_tenants_tenant t ON t.cell = n.cell
    WHERE t.id = %s AND n.started_at <= coalesce(%s, now()) AND n.lease_expires_at >= %s GROUP BY n.name) x
"""


def _tasks(workflow_id: UUID) -> list[TaskRun]:
    success = int(Outcome.SUCCEEDED)
    return [
        TaskRun(
            id=row[0], name=row[1], state=TaskState(row[2]), may_start_at=row[3], started_at=row[4], ended_at=row[5],
            work_s=_work(json.loads(row[7]), row[6]), is_script=row[8] == Task.Kind.SCRIPT,
        )
        for row in fetch_all(TASKS, [success, success, workflow_id, current_tenant_id()])
    ]  # fmt: skip


def _work(kwargs: Any, measured: float | None) -> float:
    """The seconds a task was told to take (``demo.sleep`` and ``demo.spin``), else what it took."""
    told = kwargs.get("seconds") if isinstance(kwargs, Mapping) else None
    if isinstance(told, (int, float)) and not isinstance(told, bool):
        return float(told)
    return measured or 0.0


def _edges(workflow_id: UUID) -> list[tuple[UUID, UUID]]:
    return [(row[0], row[1]) for row in fetch_all(EDGES, [workflow_id, workflow_id, current_tenant_id()])]


def _slots(tasks: Sequence[TaskRun], began: datetime, ended: datetime | None) -> int:
    """How many of these tasks could run at once on the nodes that were alive meanwhile."""
    handlers, scripts = any(not task.is_script for task in tasks), any(task.is_script for task in tasks)
    return int(fetch_value(SLOTS, [int(handlers), int(scripts), current_tenant_id(), ended, began]))
