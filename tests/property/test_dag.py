"""Graphs against brute force."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scheduler_ext.core.dag import Dag
from scheduler_ext.core.errors import DependencyCycle


@st.composite
def graphs(draw: st.DrawFn, *, acyclic: bool) -> list[list[int]]:
    """Parents of each of a few tasks, numbered at random."""
    size = draw(st.integers(1, 9))
    label = draw(st.permutations(range(size)))
    parents: list[list[int]] = [[] for _ in range(size)]
    for child in range(size):
        candidates = range(child) if acyclic else range(size)
        chosen = draw(st.sets(st.sampled_from(list(candidates)), max_size=4)) if len(candidates) else set()
        parents[label[child]] = [label[parent] for parent in chosen]
    return parents


def _names(parents: list[list[int]]) -> list[str]:
    return [f"t{index}" for index in range(len(parents))]


def _closure(parents: list[list[int]]) -> list[set[int]]:
    """Who must come before whom, by Warshall's algorithm."""
    size = len(parents)
    before = [[j in parents[i] for j in range(size)] for i in range(size)]
    for middle in range(size):
        for i in range(size):
            for j in range(size):
                before[i][j] = before[i][j] or (before[i][middle] and before[middle][j])
    return [{j for j in range(size) if before[i][j]} for i in range(size)]


@given(graphs(acyclic=True))
def test_order(parents: list[list[int]]) -> None:
    graph = Dag(_names(parents), parents)
    assert sorted(graph.order) == list(range(len(parents)))
    place = {node: position for position, node in enumerate(graph.order)}
    assert all(place[parent] < place[child] for child, needs in enumerate(parents) for parent in needs)


@given(graphs(acyclic=True), st.data())
def test_critical_path_is_the_heaviest_of_all_paths(parents: list[list[int]], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 20), min_size=len(parents), max_size=len(parents)))
    graph = Dag(_names(parents), parents)

    @cache
    def heaviest(node: int) -> int:
        return weights[node] + max((heaviest(parent) for parent in parents[node]), default=0)

    length = graph.critical_length([float(weight) for weight in weights])
    assert length == max(heaviest(node) for node in range(len(parents)))


@given(graphs(acyclic=False))
def test_a_cycle_is_found_exactly_when_there_is_one(parents: list[list[int]]) -> None:
    closure = _closure(parents)
    cyclic = any(node in closure[node] for node in range(len(parents)))
    try:
        Dag(_names(parents), parents)
    except DependencyCycle as error:
        assert cyclic
        cycle = [int(name[1:]) for name in error.extra["cycle"]]
        assert cycle[0] == cycle[-1]
        assert all(before in parents[after] for before, after in pairwise(cycle))
    else:
        assert not cyclic
