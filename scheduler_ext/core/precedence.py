"""What a graph of tasks says of the order of its members: whose end others wait for, and for how long from there.

A task that others need is as pressing as the most pressing of them: priority and urgency reach its ancestors. Of the
members of a graph the one with the longest path still before it goes first: its *upward rank*, as HEFT orders tasks
(H. Topcuoglu, S. Hariri and M.-Y. Wu, "Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous
Computing", IEEE Transactions on Parallel and Distributed Systems 13(3), 2002), without its costs of communication.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from scheduler_ext.core.dag import Dag

UNKNOWN_US: Final = 1_000_000
"""The run time assumed for a task when nothing is learnt of it or of any other task in the graph."""


class Weight(NamedTuple):
    """One task of a graph."""

    path_us: int
    """The longest path from its start to an end of the graph, its own run time included."""
    work_us: int
    """The sum of all run times of its workflow, or of the graph's part it is connected with."""


def weigh(dag: Dag, expected_us: Sequence[int | None], workflows: Iterable[Hashable | None] = ()) -> list[Weight]:
    """Return each task's remaining path and work; one with no learnt run time counts as the mean of the others.

    ``workflows`` names the workflow of each task. A workflow ends with its last task, so all its parts count, whether or
    not anything connects them.
    """
    known = [each for each in expected_us if each]
    usual = round(fmean(known)) if known else UNKNOWN_US
    times = [each or usual for each in expected_us]
    paths, group = list(times), list(range(len(times)))

    def root(task: int) -> int:
        while group[task] != task:
            group[task] = task = group[group[task]]
        return task

    for task in reversed(dag.order):
        for parent in dag.parents[task]:
            paths[parent] = max(paths[parent], times[parent] + paths[task])
            group[root(parent)] = root(task)
    first: dict[Hashable, int] = {}
    for task, workflow in enumerate(workflows):
        if workflow is not None:
            group[root(task)] = root(first.setdefault(workflow, task))
    works = [0] * len(times)
    roots = [root(task) for task in range(len(times))]
    for task, each in enumerate(roots):
        works[each] += times[task]
    return [Weight(path, works[each]) for path, each in zip(paths, roots, strict=True)]


def inherit(dag: Dag, own: Sequence[tuple[bool, int]]) -> list[tuple[bool, int]]:
    """Whether each task is urgent, and its priority: its own, or that of the most pressing task that needs it."""
    found = list(own)
    for task in reversed(dag.order):
        urgent, priority = found[task]
        for parent in dag.parents[task]:
            before = found[parent]
            found[parent] = (before[0] or urgent, max(before[1], priority))
    return found
