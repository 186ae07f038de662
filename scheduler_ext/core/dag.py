"""Directed acyclic graphs of named tasks: checks, order, depth, critical path, ancestors and descendants.

Everything is iterative and linear in tasks and edges, so that 100,000 edges take well under a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from scheduler_ext.core.errors import DependencyCycle, DuplicateName, UnknownDependency

CYCLE_SHOWN = 12
"""A longer cycle is abbreviated in the message."""


def _default_path(index: int, place: int | None = None) -> str:
    return f"tasks[{index}].needs[{place}]" if place is not None else f"tasks[{index}].name"


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """The heaviest way through a graph."""

    length: float
    """Sum of the weights on the path: nothing can finish sooner, whatever the number of workers."""
    nodes: tuple[int, ...]
    """Indices of its tasks, first to last."""


class Dag:
    """A checked graph. Tasks are indices in the order given; build one with :meth:`build`."""

    __slots__ = ("_children", "depths", "edges", "names", "order", "parents")

    def __init__(self, names: Sequence[str], parents: Sequence[Sequence[int]]) -> None:
        """``parents[i]`` are the indices task ``i`` needs, without repetition; a cycle is ``DependencyCycle``."""
        self.names = tuple(names)
        self.parents = tuple(tuple(needs) for needs in parents)
        self.edges = sum(len(needs) for needs in self.parents)
        self.order = _topological_order(self.names, self.parents)
        self.depths = _depths(self.order, self.parents)
        self._children: tuple[tuple[int, ...], ...] | None = None

    @classmethod
    def build(
        cls,
        names: Sequence[str],
        needs: Sequence[Iterable[str]],
        *,
        path: Callable[[int, int | None], str] = _default_path,
    ) -> Dag:
        """Build a graph from names and, for each task, the names it needs.

        ``path(index, place)`` gives the field named in an error: of a task's name when ``place`` is None,
        else of that entry of its needs. Raises ``DuplicateName``, ``UnknownDependency`` or
        ``DependencyCycle``. A name needed twice by one task counts once.
        """
        index: dict[str, int] = {}
        for position, name in enumerate(names):
            if name in index:
                raise DuplicateName(
                    f"the name {name!r} is already used by task {index[name]}", field=path(position, None)
                )
            index[name] = position
        parents: list[list[int]] = []
        for position, wanted in enumerate(needs):
            unique: dict[int, None] = {}
            for place, name in enumerate(wanted):
                if name not in index:
                    raise UnknownDependency(f"there is no task named {name!r}", field=path(position, place))
                unique[index[name]] = None
            parents.append(list(unique))
        return cls(names, parents)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def depth(self) -> int:
        """Tasks on the longest way through the graph; 0 for an empty one."""
        return max(self.depths, default=-1) + 1

    @property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For each task the tasks that need it."""
        if self._children is None:
            lists: list[list[int]] = [[] for _ in self.names]
            for child, needs in enumerate(self.parents):
                for parent in needs:
                    lists[parent].append(child)
            self._children = tuple(tuple(entry) for entry in lists)
        return self._children

    def ancestors(self, start: int) -> set[int]:
        """All tasks that must end before ``start`` may begin."""
        return _reach(start, self.parents)

    def descendants(self, start: int) -> set[int]:
        """All tasks that wait, directly or not, for ``start``."""
        return _reach(start, self.children)

    def critical_path(self, weights: Sequence[float]) -> CriticalPath:
        """The way through the graph with the greatest sum of ``weights`` (one, not negative, for each task)."""
        best: list[float] = [0.0] * len(self.names)
        came_from: list[int] = [-1] * len(self.names)
        for node in self.order:
            longest, parent_of = 0.0, -1
            for parent in self.parents[node]:
                if best[parent] > longest or parent_of < 0:
                    longest, parent_of = best[parent], parent
            best[node] = longest + weights[node]
            came_from[node] = parent_of
        if not best:
            return CriticalPath(length=0.0, nodes=())
        end = max(range(len(best)), key=best.__getitem__)
        nodes = [end]
        while came_from[nodes[-1]] >= 0:
            nodes.append(came_from[nodes[-1]])
        return CriticalPath(length=best[end], nodes=tuple(reversed(nodes)))


def find_cycle(parents: Mapping[int, Iterable[int]]) -> list[int] | None:
    """One cycle as indices, each needing the one before it and first equal to last, or None."""
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        cycle: list[int] = error.args[1]
        return cycle
    return None


def _topological_order(names: tuple[str, ...], parents: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Kahn's order: level by level, within a level as given, so that the same graph always gives the same order."""
    children: list[list[int]] = [[] for _ in names]
    missing = [0] * len(names)
    for child, needs in enumerate(parents):
        missing[child] = len(needs)
        for parent in needs:
            children[parent].append(child)
    queue = deque(index for index, count in enumerate(missing) if count == 0)
    order: list[int] = []
    while queue:
        node = queue.popleft()
        order.append(node)
        for child in children[node]:
            missing[child] -= 1
            if missing[child] == 0:
                queue.append(child)
    if len(order) != len(names):
        _raise_cycle(names, parents, missing)
    return tuple(order)


def _raise_cycle(names: tuple[str, ...], parents: tuple[tuple[int, ...], ...], missing: list[int]) -> None:
    """Name one cycle among the tasks that could not be ordered."""
    rest = {node: [p for p in parents[node] if missing[p]] for node in range(len(names)) if missing[node]}
    cycle = find_cycle(rest) or []
    told = [names[node] for node in cycle]
    if len(told) > CYCLE_SHOWN:
        left_out = len(told) - CYCLE_SHOWN
        told = [*told[: CYCLE_SHOWN // 2], f"… {left_out} more …", *told[-CYCLE_SHOWN // 2 :]]
    raise DependencyCycle(
        f"the dependencies form a cycle: {' -> '.join(told)}", field="tasks", cycle=[names[n] for n in cycle]
    )


def _depths(order: tuple[int, ...], parents: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    depths = [0] * len(parents)
    for node in order:
        needs = parents[node]
        if needs:
            depths[node] = 1 + max([depths[parent] for parent in needs])
    return tuple(depths)


def _reach(start: int, edges: tuple[tuple[int, ...], ...]) -> set[int]:
    seen: set[int] = set()
    stack = list(edges[start])
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(edges[node])
    return seen
