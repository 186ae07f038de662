"""Builders of small snapshots for the tests of deciding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scheduler_ext.core.states import Category
from scheduler_ext.core.types import LineView, NodeView, Snapshot, TaskView, TenantView, WorkKind

ROOMY = (1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000)
SMALL = (100, 64, 0, 0, 0, 0)


def task(name: str, line: int = 1, **changes: Any) -> TaskView:
    """A ready process task of handler 1."""
    values: dict[str, Any] = {"task_id": name, "line_id": line, "fence": 0, "rank": (0, 0), "handler_id": 1}
    return TaskView(**{**values, **changes})


def line(number: int, tasks: Sequence[TaskView], *, tenant: int | None = None, **changes: Any) -> LineView:
    """A line of delayable work of its own tenant."""
    values: dict[str, Any] = {
        "line_id": number,
        "tenant_id": tenant or number,
        "category": Category.DELAYABLE,
        "tier_id": 1,
        "vector": SMALL,
        "heads": tuple(tasks),
    }
    return LineView(**{**values, **changes})


def many(number: int, count: int, **changes: Any) -> LineView:
    """A line with ``count`` equal tasks, ``<line>-<place>``."""
    of_task = {name: changes.pop(name) for name in ("expected_us", "mutex_key", "kind", "alone") if name in changes}
    tasks = [
        task(f"{number}-{place:04}", number, rank=(0, place), submitted_at=float(place), **of_task)
        for place in range(count)
    ]
    return line(number, tasks, **changes)


def node(number: int, process: int = 2, **changes: Any) -> NodeView:
    """A roomy node with process slots that advertises handler 1."""
    values: dict[str, Any] = {
        "node_id": number,
        "name": f"n{number}",
        "capacity": ROOMY,
        "slots": {WorkKind.PROCESS: process},
        "handlers": frozenset({1}),
    }
    return NodeView(**{**values, **changes})


def snapshot(
    lines: Iterable[LineView], nodes: Iterable[NodeView], tenants: Iterable[TenantView] = (), **changes: Any
) -> Snapshot:
    """A frozen view at time 1000; tenants not given have the defaults."""
    lines = tuple(lines)
    known = {tenant.tenant_id: tenant for tenant in tenants}
    for each in lines:
        known.setdefault(each.tenant_id, TenantView(tenant_id=each.tenant_id))
    values: dict[str, Any] = {
        "now": 1000.0,
        "cell": "default",
        "nodes": tuple(nodes),
        "tenants": known,
        "lines": lines,
    }
    return Snapshot(**{**values, **changes})
