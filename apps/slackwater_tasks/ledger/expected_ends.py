"""When running tasks are expected to end: read only by rounds that keep a node for a waiting task (EASY backfill)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scheduler_ext.core.resources import part
from scheduler_ext.core.sql import named
from scheduler_ext.core.types import PER_CHILD, LineView, RunEnd, TaskView, Vector, WorkKind

MAX_RUNNING = 20_000
"""How many running tasks are looked at; the others count as unknown, and wait ten times as long for a node."""
# A script's run times are learnt by what it is, and by the pattern of its name ("script:" comes after "name:").
SCRIPT_KEYS = r"""'script:' || left(coalesce(nullif(t.script_sha256, ''), t.script_path), 64),
        left('name:' || regexp_replace(t.name, '\d+', '#', 'g'), 200)"""
OF_SCRIPT = f"""
LEFT JOIN LATERAL (
    SELECT mean_us, coalesce(long_us, mean_us) AS long_us FROM slackwater_tasks_runtime
    WHERE t.handler = '' AND tenant_id = t.tenant_id AND samples >= 5 AND key IN ({SCRIPT_KEYS})
    ORDER BY key DESC LIMIT 1) r ON true
"""  # noqa: S608 - columns of ours
ENDS = named(f"""
SELECT l.node_id, l.line_id, l.tenant_id, l.kind, l.handler_id, l.alone OR l.total_attempts = 1,
       extract(epoch FROM clock_timestamp() - l.started_at)::float8, t.cap_ms, r.mean_us
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id {OF_SCRIPT}
WHERE l.phase = :phase.IN_FLIGHT AND l.slot_milli >= 1000 LIMIT %s
""")  # noqa: S608 - statements of ours
LONGEST = f"""
SELECT t.id::text, least(t.cap_ms * 1000, r.long_us)::bigint FROM slackwater_tasks_task t {OF_SCRIPT}
WHERE t.id = ANY(%s::uuid[])
"""  # noqa: S608 - statements of ours


def remaining_s(ran_s: float | None, expected_s: float | None, cap_s: float) -> float:
    """How much longer a task is expected to run that has run for ``ran_s`` (``None``: it has not begun).

    One that has outrun its expectation is expected to run for as long again; none runs beyond its cap.
    """
    ran = max(0.0, ran_s or 0.0)
    left = max(0.0, cap_s - ran)
    if expected_s is None:
        return left
    return min(left, expected_s - ran if ran < expected_s else ran)


def running(conn: Any, now: float, vectors: Mapping[int, Vector],
            learnt_of: Callable[[int, int, int | None, bool], tuple[WorkKind, int | None]],
            ) -> dict[int, tuple[RunEnd, ...]]:  # fmt: skip
    """The ends of tasks that hold a whole slot, by node.

    ``vectors``: by line. ``learnt_of``: of tenant, kind, handler and whether it runs by itself, the kind of slot that it
    holds, and its run time.
    """
    found: dict[int, list[RunEnd]] = {}
    rows = conn.execute(ENDS, (MAX_RUNNING,)).fetchall()
    for node, line, tenant, kind, handler, by_itself, ran_s, cap_ms, script_us in rows:
        vector = vectors.get(line)
        if vector is None:
            continue
        work, learnt = learnt_of(tenant, kind, handler, by_itself)
        learnt = learnt or script_us
        left = remaining_s(ran_s, learnt / 1e6 if learnt else None, cap_ms / 1000)
        one = part(vector, PER_CHILD[work]) if work in PER_CHILD else vector
        found.setdefault(node, []).append(RunEnd(at=now + left, kind=work, vector=one))
    return {node: tuple(ends) for node, ends in found.items()}


def with_longest(conn: Any, lines: Sequence[LineView]) -> tuple[LineView, ...]:
    """The lines with the run times of tasks of which nothing is learnt; scripts take those of such scripts."""
    unknown = [task.task_id for line in lines for task in line.heads if task.expected_us is None]
    if not unknown:
        return tuple(lines)
    longest = dict(conn.execute(LONGEST, (unknown,)).fetchall())

    def told(task: TaskView) -> TaskView:
        return replace(task, long_us=longest[task.task_id]) if task.task_id in longest else task

    return tuple(replace(line, heads=tuple(map(told, line.heads))) for line in lines)
