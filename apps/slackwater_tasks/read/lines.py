"""A tenant's lines by their names."""

from __future__ import annotations

from scheduler_ext.core.errors import NotFound
from scheduler_ext.core.states import Category
from slackwater_tasks.models import Line


def find_line(tenant_id: int, category: str, tier: str) -> Line:
    """The tenant's line of that category and tier, by their names; ``NotFound`` when it has none."""
    number = Category.__members__.get(category.upper()) if category == category.lower() else None
    rows = Line.objects.unscoped().filter(tenant_id=tenant_id, tier__slug=tier)  # the tenant is named
    found: Line | None = rows.filter(category=number).first() if number is not None else None
    if found is None:
        raise NotFound(f"There is no line {category[:63]}/{tier[:63]}; a line exists from its first task on.")
    return found
