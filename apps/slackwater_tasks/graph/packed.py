"""A packed graph: what an answer about the graph around a task needs, as numbers in lists."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from scheduler_ext.core.errors import NotFound


@dataclass(slots=True)
class Shape:
    """A packed graph: tasks are numbers in the order of their ids."""

    ids: list[str]
    weights: list[float]
    """The expected run time of each in seconds; where unknown, the mean of the known ones, else 1."""
    learnt: bool
    parents: list[int]
    parents_at: list[int]
    """The parents of task ``i`` are ``parents[parents_at[i]:parents_at[i + 1]]``."""
    children: list[int]
    children_at: list[int]
    order: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    above: list[float] = field(default_factory=list)
    """The weight of the heaviest path that ends with a task."""
    below: list[float] = field(default_factory=list)
    """The weight of the heaviest path that begins with it."""

    @classmethod
    def build(cls, ids: list[str], micros: Sequence[int], parent: Any, child: Any) -> Shape:
        """Pack ids in order, learnt run times in microseconds (0: unknown), and the two ends of every edge."""
        import numpy as np

        def packed(of: Any, others: Any) -> tuple[list[int], list[int]]:
            at = np.zeros(len(ids) + 1, dtype=np.int64)
            np.cumsum(np.bincount(of, minlength=len(ids)), out=at[1:])
            return others[np.argsort(of, kind="stable")].tolist(), at.tolist()

        parent, child = np.asarray(parent, dtype=np.int64), np.asarray(child, dtype=np.int64)
        known = [value for value in micros if value]
        usual = sum(known) / len(known) if known else 1e6
        weights = [(value or usual) / 1e6 for value in micros]
        shape = cls(ids, weights, bool(known), *packed(child, parent), *packed(parent, child))
        shape._arrange()
        return shape

    def _arrange(self) -> None:
        """Topological order (Kahn's), depths, and the heaviest paths to and from every task."""
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
        """The number of tasks on the longest path."""
        return max(self.depths, default=0)

    def place(self, task_id: UUID) -> int:
        text = str(task_id)
        found = bisect_left(self.ids, text)
        if found == len(self.ids) or self.ids[found] != text:
            raise NotFound(f"There is no task {task_id}.")
        return found

    def reach(self, start: int, *, down: bool) -> list[str]:
        """The ids of all before (or, ``down``, after) a task, in topological order."""
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

    def way(self, start: int) -> tuple[list[int], float]:
        """The heaviest path through a task, and its expected run time: a delay on it delays the end."""
        nodes = [start]
        while self.parents_at[nodes[-1]] < self.parents_at[nodes[-1] + 1]:
            i = nodes[-1]
            nodes.append(max(self.parents[self.parents_at[i] : self.parents_at[i + 1]], key=self.above.__getitem__))
        nodes.reverse()
        while self.children_at[nodes[-1]] < self.children_at[nodes[-1] + 1]:
            i = nodes[-1]
            nodes.append(max(self.children[self.children_at[i] : self.children_at[i + 1]], key=self.below.__getitem__))
        return nodes, self.above[start] + self.below[start] - self.weights[start]
