"""Graphs: checks, order, critical path."""

from __future__ import annotations

import time

import pytest

from scheduler_ext.core.dag import Dag
from scheduler_ext.core.errors import DependencyCycle, DuplicateName, UnknownDependency


def diamond() -> Dag:
    return Dag.build(["load", "left", "right", "join"], [[], ["load"], ["load"], ["left", "right"]])


def test_order_and_depth() -> None:
    graph = diamond()
    assert graph.order == (0, 1, 2, 3)
    assert graph.depths == (0, 1, 1, 2)
    assert (graph.depth, graph.edges, len(graph)) == (3, 4, 4)


def test_critical_path_takes_the_heavier_branch() -> None:
    assert diamond().critical_length([1.0, 5.0, 7.0, 2.0]) == 10.0


def test_weightless_tasks_still_form_a_path() -> None:
    assert diamond().critical_length([0.0] * 4) == 0.0
    assert Dag.build([], []).critical_length([]) == 0.0


def test_a_cycle_is_named_with_its_members_only() -> None:
    with pytest.raises(DependencyCycle) as caught:
        Dag.build(["free", "a", "b", "c", "after"], [[], ["c"], ["a"], ["b"], ["c"]])
    cycle = caught.value.extra["cycle"]
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"a", "b", "c"}
    assert " -> " in str(caught.value)


def test_a_task_that_needs_itself_is_a_cycle() -> None:
    with pytest.raises(DependencyCycle, match="a -> a"):
        Dag.build(["a"], [["a"]])


def test_unknown_and_duplicate_names_tell_where() -> None:
    with pytest.raises(UnknownDependency) as unknown:
        Dag.build(["a", "b"], [[], ["a", "nowhere"]])
    assert unknown.value.field == "tasks[1].needs[1]"
    assert "nowhere" in str(unknown.value)
    with pytest.raises(DuplicateName) as duplicate:
        Dag.build(["a", "a"], [[], []])
    assert duplicate.value.field == "tasks[1].name"


def test_a_name_needed_twice_counts_once() -> None:
    graph = Dag.build(["a", "b"], [[], ["a", "a"]])
    assert graph.edges == 1


def test_a_long_cycle_is_abbreviated() -> None:
    size = 500
    names = [f"t{index}" for index in range(size)]
    with pytest.raises(DependencyCycle, match="more") as caught:
        Dag.build(names, [[names[index - 1]] for index in range(size)])
    assert len(str(caught.value)) < 300
    assert len(caught.value.extra["cycle"]) == size + 1


def test_a_hundred_thousand_edges_are_quick_and_need_no_recursion() -> None:
    size = 50_000
    names = [f"t{index}" for index in range(size)]
    needs = [[] if index == 0 else [names[index - 1], names[index // 2]] for index in range(size)]
    begin = time.process_time()
    graph = Dag.build(names, needs)
    length = graph.critical_length([1.0] * size)
    assert time.process_time() - begin < 3
    assert (graph.depth, length) == (size, size)
