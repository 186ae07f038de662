"""The graph around a task: ancestors, descendants, topological order, critical path; fast on 100,000 edges.

A workflow's edges are read once and kept, packed, in this process and for the others in Redis, until its counts say
that it has grown. Tasks whose edges reach beyond one workflow are answered by a recursive query instead.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any
from uuid import UUID

from django.db import connection

from scheduler_ext.core.errors import NotFound, TooLarge
from scheduler_ext.core.run_times import LEARNT_FROM
from slackwater_tasks.graph import cache
from slackwater_tasks.graph.packed import Shape
from slackwater_tasks.ledger.connection import Database, fetch_all
from slackwater_tasks.ledger.learnt import NAME_KEY, SCRIPT_KEY, keys_of, of_tenant
from slackwater_tasks.ledger.rows import Accepted
from slackwater_tenants.scoping import current_tenant_id

KEPT = 2_000_000
"""Tasks and edges of all graphs this process keeps."""
FRESH_S = 600.0
"""How long learnt run times are kept."""
MAX_EDGES = 200_000
"""The most edges the recursive query follows."""

LARGE = 10_000
"""A graph with at least so many edges is left in Redis too; a smaller one is quickly read and packed."""
PACKED_FROM = 50_000
"""From so many edges on that is done with the submission, for a twelfth of its time; smaller ones are left to upkeep.
"""
RECENT_S = 600.0
"""How long after its submission upkeep packs a large workflow."""

# Ids tell the time of submission, so the recent ones stand at the end of the primary key.
LARGE_ONES = """
SELECT id, task_count, edge_count FROM slackwater_tasks_workflow
WHERE id >= %s AND edge_count >= %s AND NOT detail ? 'open' ORDER BY id LIMIT 100
"""
WHICH = """
SELECT t.workflow_id, w.task_count, w.edge_count, w.detail ? 'open'
FROM slackwater_tasks_task t LEFT JOIN slackwater_tasks_workflow w ON w.id = t.workflow_id WHERE t.id = %s AND t.tenant_id = %s
"""
# Ids and edges travel as two packed values: 100,000 rows of their own would cost several times as much.
NODES = f"""
SELECT string_agg(t.id::text, ',' ORDER BY t.id),
    string_agg(coalesce(r.mean_us, s.mean_us, 0)::bigint::text, ',' ORDER BY t.id)
FROM slackwater_tasks_task t
LEFT JOIN slackwater_tasks_runtime r ON r.tenant_id = t.tenant_id AND r.samples >= {LEARNT_FROM}
    AND r.key = CASE WHEN t.handler <> '' THEN t.handler ELSE {SCRIPT_KEY} END
LEFT JOIN slackwater_tasks_runtime s ON s.tenant_id = t.tenant_id AND s.samples >= {LEARNT_FROM}
    AND s.key = CASE WHEN t.handler = '' THEN {NAME_KEY} END
WHERE
"""  # noqa: S608 - texts of ours
# One join along indexes: a good plan whatever the statistics say of a workflow that was stored a second ago.
EDGES = """
SELECT string_agg(uuid_send(d.parent_id) || uuid_send(d.child_id), ''::bytea)
FROM slackwater_tasks_task t JOIN slackwater_tasks_dependency d ON d.child_id = t.id WHERE t.workflow_id = %s
"""
AROUND = """
WITH RECURSIVE
up AS (SELECT parent_id, child_id FROM slackwater_tasks_dependency WHERE child_id = %(id)s
       UNION SELECT d.parent_id, d.child_id FROM slackwater_tasks_dependency d JOIN up ON d.child_id = up.parent_id),
down AS (SELECT parent_id, child_id FROM slackwater_tasks_dependency WHERE parent_id = %(id)s
         UNION SELECT d.parent_id, d.child_id FROM slackwater_tasks_dependency d JOIN down ON d.parent_id = down.child_id)
SELECT parent_id::text, child_id::text FROM (TABLE up UNION TABLE down) e LIMIT %(most)s
"""


class _Kept:
    """The graphs this process keeps, bounded by size, the least recently used going first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._shapes: OrderedDict[UUID, tuple[tuple[int, int], float, Shape]] = OrderedDict()

    def get(self, workflow_id: UUID, counts: tuple[int, int]) -> Shape | None:
        """The graph, unless it has grown or its run times are old."""
        with self._lock:
            found = self._shapes.get(workflow_id)
            if found is None or found[0] != counts or time.monotonic() - found[1] > FRESH_S:
                return None
            self._shapes.move_to_end(workflow_id)
            return found[2]

    def put(self, workflow_id: UUID, counts: tuple[int, int], shape: Shape) -> None:
        """Keep a graph; those not used for longest go."""
        with self._lock:
            self._shapes[workflow_id] = (counts, time.monotonic(), shape)
            self._shapes.move_to_end(workflow_id)
            total = sum(entry[2].size for entry in self._shapes.values())
            while total > KEPT and len(self._shapes) > 1:
                total -= self._shapes.popitem(last=False)[1][2].size

    def forget(self) -> None:
        with self._lock:
            self._shapes.clear()


kept = _Kept()


def of_workflow(workflow_id: UUID, cur: Any) -> Shape:
    """The whole graph of a workflow, read now, without edges that leave it."""
    cur.execute(NODES + "t.workflow_id = %s", [workflow_id])
    texts, times = cur.fetchone()
    ids = texts.split(",") if texts else []
    cur.execute(EDGES, [workflow_id])
    packed = cur.fetchone()[0]
    ends = _numbers(ids, bytes(packed or b""))
    micros = [int(value) for value in times.split(",")] if times else []
    return Shape.build(ids, micros, ends[:, 0], ends[:, 1])


def keep_new(tenant_id: int, workflow_id: UUID, tasks: Sequence[Accepted], edges: Sequence[tuple[UUID, UUID]]) -> None:
    """Keep the graph of a large workflow that was just committed, here and for the others.

    Whoever submitted it has everything at hand that the first question would have to read and arrange again.
    """
    numbers = {task.id.int: n for n, task in enumerate(tasks)}
    parents = [numbers[parent.int] for parent, _ in edges]
    children = [numbers[child.int] for _, child in edges]
    times = of_tenant(tenant_id, [keys_of(task.spec) for task in tasks])
    shape = Shape.build([str(task.id) for task in tasks], [mean_us or 0 for mean_us in times], parents, children)
    counts = (len(tasks), len(edges))
    kept.put(workflow_id, counts, shape)
    cache.put(workflow_id, counts, shape)


def _elsewhere(workflow_id: UUID, counts: tuple[int, int]) -> Shape:
    """The graph another process has left in Redis, else as read now, and left there if large."""
    shape = cache.get(workflow_id, counts) if counts[1] >= LARGE else None
    if shape is None:
        with connection.cursor() as cur:
            shape = of_workflow(workflow_id, cur)
        if counts[1] >= LARGE:
            cache.put(workflow_id, counts, shape)
    return shape


class GraphUpkeep:
    """Packs large graphs soon after they are submitted, so that the first question about one finds it packed."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._done: dict[UUID, tuple[int, int]] = {}

    def pack(self) -> int:
        """Pack one of the large workflows of the last minutes that is not, or has grown; returns how many."""
        first = UUID(int=int((time.time() - RECENT_S) * 1000) << 80)
        found = {row[0]: (row[1], row[2]) for row in self.db.conn.execute(LARGE_ONES, (first, LARGE)).fetchall()}
        self._done = {workflow: counts for workflow, counts in self._done.items() if workflow in found}
        for workflow_id, counts in found.items():
            if self._done.get(workflow_id) == counts:
                continue
            self._done[workflow_id] = counts
            if not cache.has(workflow_id, counts):
                with self.db.conn.cursor() as cur:
                    cache.put(workflow_id, counts, of_workflow(workflow_id, cur))
                return 1
        return 0


def _numbers(ids: list[str], packed: bytes) -> Any:
    """Pairs of ids, packed, as pairs of places in ``ids``; a pair with an unknown end is left out.

    Looked up by the lower halves of the ids, which are random enough to be unique in any workflow.
    """
    import numpy as np

    lower = np.array([int(text[19:23] + text[24:], 16) for text in ids], dtype=np.uint64)
    wanted = np.frombuffer(packed, dtype=">u8").reshape(-1, 2)[:, 1].astype(np.uint64)
    by_lower = np.argsort(lower, kind="stable")
    found = by_lower[np.minimum(np.searchsorted(lower[by_lower], wanted), max(0, len(ids) - 1))]
    pairs = found.reshape(-1, 2)
    return pairs[(lower[found] == wanted).reshape(-1, 2).all(axis=1)]


def _around(task_id: UUID) -> Shape:
    """The part of the graph that can reach a task or be reached from it, wherever it lies."""
    import numpy as np

    edges = fetch_all(AROUND, {"id": task_id, "most": MAX_EDGES + 1})
    if len(edges) > MAX_EDGES:
        raise TooLarge(f"more than {MAX_EDGES} edges lead to and from this task")
    wanted = sorted({end for edge in edges for end in edge} | {str(task_id)})
    texts, times = fetch_all(NODES + "t.id = ANY(%s::uuid[])", [wanted])[0]
    ids = texts.split(",")
    number = {text: i for i, text in enumerate(ids)}
    # An end whose row retention has taken is left out.
    pairs = [(number[p], number[c]) for p, c in edges if p in number and c in number]
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Shape.build(ids, [int(value) for value in times.split(",")], ends[:, 0], ends[:, 1])


def graph(task_id: UUID) -> dict[str, Any]:
    """The graph around a task of the tenant in context; ``NotFound`` when it has no such task."""
    found = fetch_all(WHICH, [task_id, current_tenant_id()])
    if not found:
        raise NotFound(f"There is no task {task_id}.")
    workflow_id, tasks, edges, is_open = found[0]
    shape = None
    if workflow_id is not None and not is_open:
        shape = kept.get(workflow_id, (tasks, edges))
        if shape is None:
            shape = _elsewhere(workflow_id, (tasks, edges))
            kept.put(workflow_id, (tasks, edges), shape)
    return _describe(shape or _around(task_id), task_id, workflow_id)


def _describe(shape: Shape, task_id: UUID, workflow_id: UUID | None) -> dict[str, Any]:
    start = shape.place(task_id)
    before, after = shape.reach(start, down=False), shape.reach(start, down=True)
    nodes, weight = shape.way(start)
    return {
        "task_id": task_id,
        "workflow_id": workflow_id,
        "depth": shape.depths[start],
        "ancestors": before,
        "descendants": after,
        "topological_order": [*before, shape.ids[start], *after],
        "critical_path": {
            "task_ids": [shape.ids[i] for i in nodes],
            "expected_s": round(weight, 6) if shape.learnt else None,
        },
    }
