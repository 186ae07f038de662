"""A graph of tasks as an SVG picture: columns by depth, boxes that link to the tasks, coloured by state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from scheduler_ext.core.dag import Dag

SWEEPS = 6
SMALL_FROM = 60
"""From this many tasks on the boxes are small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One task of a picture."""

    id: UUID
    label: str
    state: str
    """Lower-case name of its state; chooses the colour."""
    focus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Measures of a picture in pixels."""

    width: int
    height: int
    gap_x: int
    gap_y: int
    font: int


LARGE = Size(width=168, height=34, gap_x=64, gap_y=14, font=12)
SMALL = Size(width=108, height=20, gap_x=48, gap_y=6, font=9)
Edge = tuple[UUID, UUID]
Place = tuple[int, int]


def columns(ids: Sequence[UUID], edges: Sequence[Edge]) -> dict[UUID, int]:
    """The depth of each task: the longest way to it from a task without parents. ``DependencyCycle`` for a cycle."""
    index = {node: place for place, node in enumerate(ids)}
    parents: list[list[int]] = [[] for _ in ids]
    for parent, child in edges:
        parents[index[child]].append(index[parent])
    return dict(zip(ids, Dag([str(node) for node in ids], parents).depths, strict=True))


def arrange(ids: Sequence[UUID], edges: Sequence[Edge]) -> dict[UUID, Place]:
    """Column and row of each task. Rows follow the mean row of the neighbours, so that few edges cross."""
    depth = columns(ids, edges)
    layers: list[list[UUID]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in ids:
        layers[depth[node]].append(node)
    parents: dict[UUID, list[UUID]] = defaultdict(list)
    children: dict[UUID, list[UUID]] = defaultdict(list)
    for parent, child in edges:
        parents[child].append(parent)
        children[parent].append(child)
    row = {node: float(place) for layer in layers for place, node in enumerate(layer)}
    for sweep in range(SWEEPS):
        near = children if sweep % 2 else parents
        for layer in reversed(layers) if sweep % 2 else layers:
            _sort_layer(layer, near, row)
    return {node: (x, y) for x, layer in enumerate(layers) for y, node in enumerate(layer)}


def _sort_layer(layer: list[UUID], near: Mapping[UUID, Sequence[UUID]], row: dict[UUID, float]) -> None:
    def middle(node: UUID) -> float:
        others = near.get(node)
        return sum(row[other] for other in others) / len(others) if others else row[node]

    layer.sort(key=middle)
    for place, node in enumerate(layer):
        row[node] = float(place)


def draw(boxes: Sequence[Box], edges: Sequence[Edge], link: Callable[[UUID], str]) -> SafeString:
    """The picture as SVG; ``link`` gives the address of a task's page."""
    size = SMALL if len(boxes) > SMALL_FROM else LARGE
    known = {box.id for box in boxes}
    inside = [edge for edge in edges if edge[0] in known and edge[1] in known]
    places = arrange([box.id for box in boxes], inside)
    heights: dict[int, int] = defaultdict(int)
    for column, _ in places.values():
        heights[column] += 1
    tallest = max(heights.values(), default=1)
    step_y = size.height + size.gap_y

    def corner(node: UUID) -> Place:
        column, row = places[node]
        top = (tallest - heights[column]) * step_y / 2  # short columns stand in the middle
        return 8 + column * (size.width + size.gap_x), round(8 + top + row * step_y)

    corners = {node: corner(node) for node in places}
    width = (
        16 + (max((column for column, _ in places.values()), default=0) + 1) * (size.width + size.gap_x) - size.gap_x
    )
    return format_html(
        '<svg class="sw-graph" role="group" aria-label="Dependencies" viewBox="0 0 {0} {1}" width="{0}" height="{1}" '
        'font-size="{2}">{3}{4}</svg>',
        width,
        16 + tallest * step_y - size.gap_y,
        size.font,
        _edges(inside, corners, size),
        _boxes(boxes, corners, size, link),
    )


def _edges(edges: Sequence[Edge], corners: Mapping[UUID, Place], size: Size) -> SafeString:
    def way(edge: Edge) -> str:
        (x1, y1), (x2, y2) = corners[edge[0]], corners[edge[1]]
        x1, y1, y2 = x1 + size.width, y1 + size.height // 2, y2 + size.height // 2
        bend = max(size.gap_x // 2, (x2 - x1) // 2)
        return f"M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"

    return format_html_join("", '<path class="sw-edge" d="{}"/>', ((way(edge),) for edge in edges))


def _boxes(boxes: Sequence[Box], corners: Mapping[UUID, Place], size: Size, link: Callable[[UUID], str]) -> SafeString:
    letters = size.width * 10 // (size.font * 6)

    def parts(box: Box) -> tuple[object, ...]:
        x, y = corners[box.id]
        label = box.label if len(box.label) <= letters else f"{box.label[: letters - 1]}…"
        focus = " sw-focus" if box.focus else ""
        middle = y + size.height / 2 + size.font * 0.36
        return (
            link(box.id),
            box.state,
            focus,
            f"{box.label} ({box.state})",
            x,
            y,
            size.width,
            size.height,
            x + 8,
            middle,
            label,
        )

    return format_html_join(
        "",
        '<a href="{}"><g class="sw-box sw-{}{}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="5"/>'
        '<text x="{}" y="{}">{}</text></g></a>',
        (parts(box) for box in boxes),
    )
