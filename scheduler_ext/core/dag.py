"""Directed acyclic graphs of named tasks: checks, order, depth and longest path.

Everything is iterative and linear in tasks and edges, so that 100,000 edges take well under a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from scheduler_ext.core.errors import DependencyCycle, DuplicateName, UnknownDependency

CYCLE_SHOWN = 12
"""A longer cycle is abbreviated in the message."""


def _default_path(index: int, place: int | None = None) -> str:
    return f"tasks[{index}].needs[{place}]" if place is not None else f"tasks[{index}].name"


class Dag:
    """A checked graph. Tasks are indices in the order given; build one with :meth:`build`."""

    __slots__ = ("depths", "edges", "names", "order", "parents")

    def __init__(self, names: Sequence[str], parents: Sequence[Sequence[int]]) -> None:
        """``parents[i]`` are the indices task ``i`` needs, without repetition; a cycle is ``DependencyCycle``."""
        self.names = tuple(names)
        self.parents = tuple(tuple(needs) for needs in parents)
        self.edges = sum(len(needs) for needs in self.parents)
        self.order = _topological_order(self.names, self.parents)
        self.depths = _depths(self.order, self.parents)

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
        """The number of tasks on the longest path; 0 for an empty graph."""
        return max(self.depths, default=-1) + 1

    def critical_length(self, weights: Sequence[float]) -> float:
        """The greatest sum of ``weights`` (one per task, not negative) on any path through the graph.

        Nothing can finish sooner than the run times on it, whatever the number of workers.
        """
        best: list[float] = [0.0] * len(self.names)
        for node in self.order:
            best[node] = weights[node] + max([best[parent] for parent in self.parents[node]], default=0.0)
        return max(best, default=0.0)


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
    cycle: list[int] = []
    try:
        TopologicalSorter(rest).prepare()
    except CycleError as error:
        cycle = error.args[1]  # each needs the one before it, and the first is the last
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
