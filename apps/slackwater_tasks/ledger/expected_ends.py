"""When running tasks are expected to end: read only by rounds that keep a node for a waiting task (EASY backfill)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scheduler_ext.core.resources import part
from scheduler_ext.core.run_times import RunTimes, remaining_s
from scheduler_ext.core.sql import named
from scheduler_ext.core.types import PER_CHILD, LineView, RunEnd, TaskView, Vector, WorkKind
from slackwater_tasks.ledger.learnt import KEYS

MAX_RUNNING = 20_000
"""How many running tasks are looked at; the others count as unknown, and wait ten times as long for a node."""
ENDS = named(f"""
SELECT l.node_id, l.line_id, l.tenant_id, l.kind, l.handler_id, l.alone OR l.total_attempts = 1,
       extract(epoch FROM clock_timestamp() - l.started_at)::float8, t.cap_ms, {KEYS}
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
WHERE l.phase = :phase.IN_FLIGHT AND l.slot_milli >= 1000 LIMIT %s
""")  # noqa: S608 - statements of ours
CAPS = f"SELECT t.id::text, t.tenant_id, t.cap_ms, {KEYS} FROM slackwater_tasks_task t WHERE t.id = ANY(%s::uuid[])"  # noqa: S608


def running(conn: Any, now: float, vectors: Mapping[int, Vector],
            kind_of: Callable[[int, int | None, bool], WorkKind], run_times: RunTimes,
            ) -> dict[int, tuple[RunEnd, ...]]:  # fmt: skip
    """The ends of tasks that hold a whole slot, by node.

    ``vectors``: by line. ``kind_of``: the slot held, of kind, handler and whether it runs by itself.
    """
    found: dict[int, list[RunEnd]] = {}
    rows = conn.execute(ENDS, (MAX_RUNNING,)).fetchall()
    for node, line, tenant, kind, handler, by_itself, ran_s, cap_ms, keys in rows:
        vector = vectors.get(line)
        if vector is None:
            continue
        work, learnt = kind_of(kind, handler, by_itself), run_times.of(tenant, keys)
        left = remaining_s(ran_s, learnt.long_us / 1e6 if learnt else None, cap_ms / 1000)
        one = part(vector, PER_CHILD[work]) if work in PER_CHILD else vector
        found.setdefault(node, []).append(RunEnd(at=now + left, kind=work, vector=one))
    return {node: tuple(ends) for node, ends in found.items()}


def with_longest(conn: Any, lines: Sequence[LineView], run_times: RunTimes) -> tuple[LineView, ...]:
    """The lines with the bounds of tasks whose handler nothing is learnt of: scripts by what they are, else the cap."""
    ids = [task.task_id for line in lines for task in line.heads if task.expected_us is None]
    if not ids:
        return tuple(lines)
    longest: dict[str, int] = {}
    for task_id, tenant, cap_ms, keys in conn.execute(CAPS, (ids,)).fetchall():
        learnt = run_times.of(tenant, keys)
        longest[task_id] = min(learnt.long_us, cap_ms * 1000) if learnt else cap_ms * 1000

    def told(task: TaskView) -> TaskView:
        return replace(task, long_us=longest[task.task_id]) if task.task_id in longest else task

    return tuple(replace(line, heads=tuple(map(told, line.heads))) for line in lines)
