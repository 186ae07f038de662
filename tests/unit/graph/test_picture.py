"""Pictures of graphs: layers, few crossings, nothing that is not escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from slackwater_tasks.admin.picture import Box, arrange, columns, draw


def node(n: int) -> UUID:
    """The n-th id."""
    return UUID(int=n)


def edges_of(pairs: list[tuple[int, int]]) -> list[tuple[UUID, UUID]]:
    """Edges from the smaller number to the larger, so never a cycle."""
    return sorted({(node(min(a, b)), node(max(a, b))) for a, b in pairs if a != b})


PAIRS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=40)


@given(PAIRS)
def test_each_task_stands_right_of_all_it_needs(pairs: list[tuple[int, int]]) -> None:
    edges = edges_of(pairs)
    depth = columns([node(n) for n in range(16)], edges)
    for parent, child in edges:
        assert depth[parent] < depth[child]
    parents = {child for _, child in edges}
    assert all((depth[node(n)] == 0) == (node(n) not in parents) for n in range(16))


@given(PAIRS)
def test_no_two_tasks_share_a_place(pairs: list[tuple[int, int]]) -> None:
    places = arrange([node(n) for n in range(16)], edges_of(pairs))
    assert len(places) == 16 == len(set(places.values()))


def test_children_stand_in_the_order_of_their_parents() -> None:
    ids = [node(n) for n in range(6)]
    crossed = [(node(0), node(5)), (node(1), node(4)), (node(2), node(3))]
    places = arrange(ids, crossed)
    assert [places[child][1] for _, child in sorted(crossed)] == [places[parent][1] for parent, _ in sorted(crossed)]


def test_the_picture_is_well_formed_and_escapes_names() -> None:
    evil = '"><script>alert(1)</script>'
    boxes = [
        Box(id=node(1), label=evil, state="ready"),
        Box(id=node(2), label="b", state="running", focus=True),
    ]
    text = draw(boxes, [(node(1), node(2)), (node(1), node(9))], lambda task_id: f"/t/{task_id}/?a=1&b=2")
    root = ET.fromstring(text)
    assert "<script" not in text
    assert [link.get("href") for link in root.iter("a")] == [f"/t/{node(n)}/?a=1&b=2" for n in (1, 2)]
    assert len(list(root.iter("path"))) == 1, "an edge to a task outside the picture is not drawn"
    assert "sw-focus" in text


def test_a_picture_of_nothing_is_a_picture() -> None:
    assert ET.fromstring(draw([], [], str)).tag == "svg"
