"""The graph around a task: ancestors, descendants, topological order, critical path; fast on 100,000 edges.

A workflow's edges are read once and kept, packed, in this process, until its counts say that it has grown. Tasks whose
edges reach beyond one workflow are answered by a recursive query instead.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from uuid import UUID

from django.db import connection

from apps.tenants.scoping import current_tenant_id
from scheduler_ext.core.errors import NotFound, TooLarge

KEPT = 2_000_000
"""Tasks and edges of all graphs this process keeps."""
FRESH_S = 600.0
"""How long learnt run times are taken as they were."""
MOST_EDGES = 200_000
"""The most edges the recursive query goes along."""

WHICH = """
SELECT t.workflow_id, w.task_count, w.edge_count, w.detail ? 'open'
FROM tasks_task t LEFT JOIN tasks_workflow w ON w.id = t.workflow_id WHERE t.id = %s AND t.tenant_id = %s
"""
# Ids and edges travel as two packed values: 100,000 rows of their own would cost several times as much.
NODES = """
SELECT string_agg(t.id::text, ',' ORDER BY t.id), string_agg(coalesce(r.mean_us, 0)::bigint::text, ',' ORDER BY t.id)
FROM tasks_task t LEFT JOIN tasks_runtime r
    ON r.tenant_id = t.tenant_id AND r.key = CASE WHEN t.handler <> '' THEN t.handler
        ELSE 'script:' || left(coalesce(nullif(t.script_sha256, ''), t.script_path), 64) END
WHERE {which}
"""
# One join along indexes: a good plan whatever the statistics say of a workflow that was stored a second ago.
EDGES = """
SELECT string_agg(uuid_send(d.parent_id) || uuid_send(d.child_id), ''::bytea)
FROM tasks_task t JOIN tasks_dependency d ON d.child_id = t.id WHERE t.workflow_id = %s
"""
AROUND = """
WITH RECURSIVE
up AS (SELECT parent_id, child_id FROM tasks_dependency WHERE child_id = %(id)s
       UNION SELECT d.parent_id, d.child_id FROM tasks_dependency d JOIN up ON d.child_id = up.parent_id),
down AS (SELECT parent_id, child_id FROM tasks_dependency WHERE parent_id = %(id)s
         UNION SELECT d.parent_id, d.child_id FROM tasks_dependency d JOIN down ON d.parent_id = down.child_id)
SELECT parent_id::text, child_id::text FROM (TABLE up UNION TABLE down) e LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class Way:
    """The heaviest way through a task."""

    nodes: list[int]
    weight: float


@dataclass(slots=True)
class Shape:
    """A graph, packed: tasks are numbers in the order of their ids."""

    ids: list[str]
    weights: list[float]
    """Expected run time of each in seconds; the mean of the known where it is not known, 1 where none is."""
    learnt: bool
    parents: list[int]
    parents_at: list[int]
    """The parents of task ``i`` are ``parents[parents_at[i]:parents_at[i + 1]]``."""
    children: list[int]
    children_at: list[int]
    order: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    above: list[float] = field(default_factory=list)
    """Weight of the heaviest way that ends with a task."""
    below: list[float] = field(default_factory=list)
    """Weight of the heaviest way that begins with it."""

    @classmethod
    def build(cls, ids: list[str], micros: Sequence[int], parent: Any, child: Any) -> Shape:
        """From ids in order, learnt run times in microseconds (0: unknown), and the two ends of every edge."""
        import numpy as np

        def packed(of: Any, others: Any) -> tuple[list[int], list[int]]:
            at = np.zeros(len(ids) + 1, dtype=np.int64)
            np.cumsum(np.bincount(of, minlength=len(ids)), out=at[1:])
            return others[np.argsort(of, kind="stable")].tolist(), at.tolist()

        known = [value for value in micros if value]
        usual = sum(known) / len(known) if known else 1e6
        weights = [(value or usual) / 1e6 for value in micros]
        shape = cls(ids, weights, bool(known), *packed(child, parent), *packed(parent, child))
        shape._arrange()
        return shape

    def _arrange(self) -> None:
        """Topological order (Kahn's), depths, and the heaviest ways to and from every task."""
        n = len(self.ids)
        parents, parents_at, children, at, weights = (
            self.parents, self.parents_at, self.children, self.children_at, self.weights,
        )  # fmt: skip
        missing = [parents_at[i + 1] - parents_at[i] for i in range(n)]
        order = [i for i in range(n) if not missing[i]]
        above, depths, below = list(weights), [1] * n, list(weights)
        for i in order:  # grows as it is gone through
            weight, depth = above[i], depths[i] + 1
            for child in children[at[i] : at[i + 1]]:
                reached = weight + weights[child]
                above[child] = max(above[child], reached)
                depths[child] = max(depths[child], depth)
                missing[child] -= 1
                if not missing[child]:
                    order.append(child)
        for i in reversed(order):
            weight = below[i]
            for parent in parents[parents_at[i] : parents_at[i + 1]]:
                reached = weight + weights[parent]
                below[parent] = max(below[parent], reached)
        self.order, self.depths, self.above, self.below = order, depths, above, below

    @property
    def size(self) -> int:
        """Tasks and edges."""
        return len(self.ids) + len(self.parents)

    @property
    def depth(self) -> int:
        """Tasks on the longest way through the graph."""
        return max(self.depths, default=0)

    def place(self, task_id: UUID) -> int:
        """The number of a task."""
        text = str(task_id)
        found = bisect_left(self.ids, text)
        if found == len(self.ids) or self.ids[found] != text:
            raise NotFound(f"There is no task {task_id}.")
        return found

    def reach(self, start: int, *, down: bool) -> list[str]:
        """Ids of all before (or after, ``down``) a task, in topological order."""
        targets, at = (self.children, self.children_at) if down else (self.parents, self.parents_at)
        seen = bytearray(len(self.ids))
        stack = [start]
        while stack:
            i = stack.pop()
            for j in targets[at[i] : at[i + 1]]:
                if not seen[j]:
                    seen[j] = 1
                    stack.append(j)
        ids = self.ids
        return [ids[i] for i in self.order if seen[i]]

    def way(self, start: int) -> Way:
        """The heaviest way through a task, by expected run time: nothing on it can wait without delaying the end."""
        nodes = [start]
        while self.parents_at[nodes[-1]] < self.parents_at[nodes[-1] + 1]:
            i = nodes[-1]
            nodes.append(
                max(self.parents[self.parents_at[i] : self.parents_at[i + 1]], key=self.above.__getitem__)
            )
        nodes.reverse()
        while self.children_at[nodes[-1]] < self.children_at[nodes[-1] + 1]:
            i = nodes[-1]
            nodes.append(
                max(self.children[self.children_at[i] : self.children_at[i + 1]], key=self.below.__getitem__)
            )
        return Way(nodes, self.above[start] + self.below[start] - self.weights[start])


class _Kept:
    """Graphs this process keeps, the latest used last, bounded by their size."""

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
        """Keep a graph; the ones not used for longest go."""
        with self._lock:
            self._shapes[workflow_id] = (counts, time.monotonic(), shape)
            self._shapes.move_to_end(workflow_id)
            total = sum(entry[2].size for entry in self._shapes.values())
            while total > KEPT and len(self._shapes) > 1:
                total -= self._shapes.popitem(last=False)[1][2].size

    def forget(self) -> None:
        """Drop everything."""
        with self._lock:
            self._shapes.clear()


kept = _Kept()


def of_workflow(workflow_id: UUID) -> Shape:
    """The whole graph of a workflow, read now. Edges that leave it are left out."""

    with connection.cursor() as cur:
        cur.execute(NODES.format(which="t.workflow_id = %s"), [workflow_id])
        texts, times = cur.fetchone()
        ids = texts.split(",") if texts else []
        cur.execute(EDGES, [workflow_id])
        packed = cur.fetchone()[0]
    ends = _numbers(ids, bytes(packed or b""))
    micros = [int(value) for value in times.split(",")] if times else []
    return Shape.build(ids, micros, ends[:, 0], ends[:, 1])


def _numbers(ids: list[str], packed: bytes) -> Any:
    """Pairs of ids, packed, as pairs of places in ``ids``; a pair with an end that is not among them is left out.

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
    """The part of the graph that a task can be reached from and can reach, wherever it lies."""
    import numpy as np

    with connection.cursor() as cur:
        cur.execute(AROUND, {"id": task_id, "most": MOST_EDGES + 1})
        edges = cur.fetchall()
        if len(edges) > MOST_EDGES:
            raise TooLarge(f"more than {MOST_EDGES} edges lead to and from this task")
        wanted = sorted({end for edge in edges for end in edge} | {str(task_id)})
        cur.execute(NODES.format(which="t.id = ANY(%s::uuid[])"), [wanted])
        texts, times = cur.fetchone()
    ids = texts.split(",")
    number = {text: i for i, text in enumerate(ids)}
    # An end whose row retention has taken is left out.
    pairs = [(number[p], number[c]) for p, c in edges if p in number and c in number]
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Shape.build(ids, [int(value) for value in times.split(",")], ends[:, 0], ends[:, 1])


def graph(task_id: UUID) -> dict[str, Any]:
    """The graph around a task of the tenant in context; ``NotFound`` when it has no such task."""
    with connection.cursor() as cur:
        cur.execute(WHICH, [task_id, current_tenant_id()])
        row = cur.fetchone()
    if row is None:
        raise NotFound(f"There is no task {task_id}.")
    workflow_id, tasks, edges, is_open = row
    shape = None
    if workflow_id is not None and not is_open:
        shape = kept.get(workflow_id, (tasks, edges))
        if shape is None:
            shape = of_workflow(workflow_id)
            kept.put(workflow_id, (tasks, edges), shape)
    return _describe(shape or _around(task_id), task_id, workflow_id)


def _describe(shape: Shape, task_id: UUID, workflow_id: UUID | None) -> dict[str, Any]:
    start = shape.place(task_id)
    before, after = shape.reach(start, down=False), shape.reach(start, down=True)
    way = shape.way(start)
    return {
        "task_id": task_id,
        "workflow_id": workflow_id,
        "depth": shape.depths[start],
        "ancestors": before,
        "descendants": after,
        "topological_order": [*before, shape.ids[start], *after],
        "critical_path": {
            "task_ids": [shape.ids[i] for i in way.nodes],
            "expected_s": round(way.weight, 6) if shape.learnt else None,
        },
    }
