"""A task that others need is as pressing as the most pressing of them: brought to the ancestors of what has changed.

Of a graph submitted at once that is counted before it is stored; this is for edges to tasks that were there before, and
for edits. It goes from child to parent, a bounded number of statements for sets of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from scheduler_ext.core.labels import labels_of
from scheduler_ext.core.precedence import Weight
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category, TaskState
from scheduler_ext.core.types import LATE_GROUP
from slackwater_tasks.ledger import events, reference_cache
from slackwater_tasks.ledger.active_policies import Orders
from slackwater_tasks.ledger.learnt import KEYS
from slackwater_tasks.ledger.rows import first_level, rank_input

MAX_STEPS: Final = 64
"""How many generations are followed upwards."""
MAX_TASKS: Final = 10_000
PARENTS: Final = named("""
SELECT DISTINCT d.parent_id FROM slackwater_tasks_dependency d WHERE d.child_id = ANY(%s) AND d.outcome = :edge.PENDING
LIMIT %s
""")
PLACE: Final = f"""l.task_id, l.tenant_id, l.line_id, l.rank_group, l.rank, l.priority, l.tolerance_ms, t.cap_ms,
       {KEYS},
       t.submitted_at, greatest(t.submitted_at, t.start_at), l.path_us, l.work_us"""
"""What a place is made of, for a live task l and its wide row t."""
PRESSED: Final = named(f"""
SELECT {PLACE}, l.state, l.fence, i.tier_id, i.require_labels, i.prefer_labels, i.workflow, i.category,
    t.category, t.priority, r.level,
    (SELECT max(c.priority) FROM slackwater_tasks_dependency d JOIN slackwater_tasks_livetask c ON c.task_id = d.child_id
     WHERE d.parent_id = l.task_id AND d.outcome = :edge.PENDING),
    EXISTS (SELECT 1 FROM slackwater_tasks_dependency d JOIN slackwater_tasks_livetask c ON c.task_id = d.child_id
        JOIN slackwater_tasks_line n ON n.id = c.line_id
        WHERE d.parent_id = l.task_id AND d.outcome = :edge.PENDING AND n.category = {int(Category.URGENT)})
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_task t ON t.id = l.task_id
    JOIN slackwater_tasks_line i ON i.id = l.line_id LEFT JOIN slackwater_tasks_resumable r ON r.task_id = l.task_id
WHERE l.task_id = ANY(%s) AND l.state IN (:state.BLOCKED, :state.SCHEDULED, :state.READY)
    AND l.rank_group <> {LATE_GROUP} ORDER BY l.task_id FOR UPDATE OF l
""")  # noqa: S608 - numbers and columns of ours
MOVE: Final = named("""
UPDATE slackwater_tasks_livetask l SET line_id = u.line, rank_group = u.place, rank = u.rank, priority = u.priority
FROM unnest(%s::uuid[], %s::bigint[], %s::int[], %s::bigint[], %s::smallint[]) AS u(id, line, place, rank, priority)
WHERE l.task_id = u.id AND l.state IN (:state.BLOCKED, :state.SCHEDULED, :state.READY)
""")
RAISED: Final = "what needs it is urgent, or has another priority"


def place(chosen: Orders, row: Any, line: int, priority: int, level: int) -> tuple[int, int]:
    """The place under the present order of a task whose row begins with ``PLACE``."""
    tenant, (tolerance_ms, cap_ms, keys, arrived, start, path_us, work_us) = row[1], row[6:13]
    run_time = chosen.run_time_us(tenant, keys)
    weight = Weight(path_us, work_us) if path_us is not None else None
    return chosen.order_of(tenant, line).rank(
        rank_input(arrived, start, tolerance_ms, cap_ms, priority, level, run_time, weight)
    )


def press(cur: Any, chosen: Orders, ids: Iterable[UUID], *, itself: bool = False) -> int:
    """Bring what is pressing about waiting tasks to all they need; returns how many were moved.

    ``itself``: what needs the tasks may press them too. What runs or has ended needs nothing more. A task that was
    promoted near its latest start stays so.
    """
    wave, moved = list(ids), 0
    for step in range(MAX_STEPS):
        if step or not itself:
            cur.execute(PARENTS, (wave, MAX_TASKS))
            wave = [row[0] for row in cur.fetchall()]
        if not wave:
            break
        cur.execute(PRESSED, (wave,))
        changed = [new for row in cur.fetchall() if (new := _moved(chosen, row)) is not None]
        if changed:
            cur.execute(MOVE, tuple(list(column) for column in list(zip(*changed, strict=True))[:5]))
            events.write(cur, [each[5] for each in changed])
        elif step or not itself:
            break
        moved += len(changed)
        wave = [each[0] for each in changed] or wave
    return moved


def _moved(chosen: Orders, row: Any) -> tuple[Any, ...] | None:
    """The new line, place, priority and event for a row of ``PRESSED``; ``None`` where nothing changes."""
    task, tenant, line, before = row[0], row[1], row[2], row[5]
    state, fence, tier, require, prefer, workflow, category, own_category, own, level, pressing, urgent = row[13:]
    priority = max(own, pressing if pressing is not None else own)
    wanted = Category.URGENT if urgent or own_category == Category.URGENT else Category(own_category)
    if category == Category.URGENT and state != TaskState.BLOCKED:
        wanted = Category.URGENT  # promoted, perhaps: what is urgent and may start stays so
    if priority == before and wanted == category:
        return None
    if wanted != category:
        line = reference_cache.line_id(tenant, int(wanted), tier, labels_of(require, prefer), workflow)
    level = first_level(chosen.order_of(tenant, line), line) if level is None else level
    event = events.row(tenant, task, TaskState(state), before=TaskState(state), actor="dependants", reason=RAISED,
                       fence=fence, detail={"priority": [before, priority]})  # fmt: skip
    return (task, line, *place(chosen, row, line, priority, level), priority, event)
