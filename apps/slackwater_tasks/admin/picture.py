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
    grid = Grid(arrange([box.id for box in boxes], inside), size)
    corners = {node: (grid.left(column), grid.top(column, row)) for node, (column, row) in grid.places.items()}
    return format_html(
        '<svg class="sw-graph" role="group" aria-label="Dependencies" viewBox="0 0 {0} {1}" width="{0}" height="{1}" '
        'font-size="{2}">{3}{4}</svg>',
        8 + grid.left(len(grid.heights)) - size.gap_x if boxes else 16,
        16 + grid.tallest * grid.step - size.gap_y,
        size.font,
        format_html_join("", '<path class="sw-edge" d="{}"/>', ((grid.way(edge),) for edge in inside)),
        _boxes(boxes, corners, size, link),
    )


class Grid:
    """Where columns and rows stand in pixels; short columns stand in the middle."""

    def __init__(self, places: Mapping[UUID, Place], size: Size) -> None:
        self.places, self.size = places, size
        self.heights: dict[int, int] = defaultdict(int)
        for column, _ in places.values():
            self.heights[column] += 1
        self.tallest = max(self.heights.values(), default=1)
        self.step = size.height + size.gap_y

    def left(self, column: int) -> int:
        """The left side of a column's boxes."""
        return 8 + column * (self.size.width + self.size.gap_x)

    def top(self, column: int, row: int) -> int:
        return round(8 + (self.tallest - self.heights[column]) * self.step / 2 + row * self.step)

    def way(self, edge: Edge) -> str:
        """The path of an edge: through the columns between its ends it goes between their boxes."""
        (first, row), (last, to) = self.places[edge[0]], self.places[edge[1]]
        half = self.size.height // 2
        x, y = self.left(first) + self.size.width, self.top(first, row) + half
        end = self.top(last, to) + half
        path, slope = f"M{x} {y}", (end - y) / max(1, last - first)
        for column in range(first + 1, last):
            lane = self.lane(column, y + slope)
            path += f" {_curve(x, y, self.left(column), lane)} h{self.size.width}"
            x, y = self.left(column) + self.size.width, lane
        return f"{path} {_curve(x, y, self.left(last), end)}"

    def lane(self, column: int, wanted: float) -> int:
        """The height nearest to the one wanted at which no box of the column stands."""
        first = self.top(column, 0) - self.size.gap_y / 2
        row = (wanted - first) / self.step
        return round(wanted if not 0 < row < self.heights[column] else first + round(row) * self.step)


def _curve(x1: int, y1: int, x2: int, y2: int) -> str:
    bend = (x2 - x1) // 2
    return f"C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


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
