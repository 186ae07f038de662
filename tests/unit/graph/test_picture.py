"""Pictures of graphs: layers, few crossings, nothing that is not escaped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
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


@given(PAIRS)
def test_no_edge_runs_through_a_box(pairs: list[tuple[int, int]]) -> None:
    edges = edges_of(pairs)
    boxes = [Box(id=node(n), label=str(n), state="ready") for n in range(16)]
    root = ET.fromstring(draw(boxes, edges, str))
    stand = [[float(box.get(name) or 0) for name in ("x", "y", "width", "height")] for box in root.iter("rect")]
    for path in root.iter("path"):
        for x, y in points(path.get("d") or ""):
            assert not any(left < x < left + w and top < y < top + h for left, top, w, h in stand), path.get("d")


def points(path: str) -> Iterator[tuple[float, float]]:
    """The curves of a path in steps, and its straight parts."""
    x = y = 0.0
    for letter, text in re.findall(r"([MCh])([-\d ]+)", path):
        given = [float(each) for each in text.split()]
        if letter == "C":
            ends = [(x, y), *zip(given[::2], given[1::2], strict=True)]
            for step in range(21):
                t = step / 20
                parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
                yield tuple(sum(part * end[n] for part, end in zip(parts, ends, strict=True)) for n in (0, 1))  # type: ignore[misc]
        elif letter == "h":
            yield from ((x + given[0] * step / 20, y) for step in range(21))
        x, y = (x + given[0], y) if letter == "h" else (given[-2], given[-1])
