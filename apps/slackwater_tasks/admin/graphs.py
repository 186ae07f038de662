"""Which tasks the picture of a task's neighbourhood shows."""

from __future__ import annotations

from uuid import UUID

from django.urls import reverse
from django.utils.safestring import SafeString

from slackwater_tasks.admin.picture import Box, Edge, draw
from slackwater_tasks.models import Dependency, Task
from slackwater_tasks.read.tasks import state_of, word

GENERATIONS = 2
NEIGHBOURS = 60
"""The most tasks a neighbourhood shows in each direction."""


def task_url(task_id: UUID) -> str:
    return reverse("admin:slackwater_tasks_task_change", args=[task_id])


def _walk(start: UUID, here: str, there: str) -> set[Edge]:
    """Edges of the next generations from ``start``: ``here`` and ``there`` are the ends of an edge in the direction
    taken.
    """
    edges: set[Edge] = set()
    frontier, seen = {start}, {start}
    for _ in range(GENERATIONS):
        rows = Dependency.objects.filter(**{f"{here}__in": frontier}).values_list(
            "parent_id", "child_id", f"{there}_id"
        )
        found = list(rows[: NEIGHBOURS - len(edges)]) if len(edges) < NEIGHBOURS else []
        edges |= {(parent, child) for parent, child, _ in found}
        frontier = {row[2] for row in found} - seen
        seen |= frontier
        if not frontier:
            break
    return edges


def _boxes(ids: set[UUID], focus: UUID | None) -> list[Box]:
    # Unscoped: the admin sees all tenants; the ids come from the edges of one task, so of one tenant.
    rows = Task.objects.unscoped().filter(pk__in=ids).order_by("pk")
    names = ("id", "name", "handler", "state", "live__state")
    return [
        Box(
            id=row["id"],
            label=row["name"] or row["handler"] or str(row["id"])[-12:],
            state=word(state_of(row)),
            focus=row["id"] == focus,
        )
        for row in rows.values(*names)
    ]


def neighbourhood(task_id: UUID) -> SafeString | None:
    """What a task needs and what needs it, two generations each way; ``None`` when it stands alone."""
    edges = _walk(task_id, "child", "parent") | _walk(task_id, "parent", "child")
    if not edges:
        return None
    return draw(_boxes({end for edge in edges for end in edge}, task_id), sorted(edges), task_url)
