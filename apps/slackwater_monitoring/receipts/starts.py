"""Who went before a task: starts of late, counted by rule. Of others' work only the order of magnitude is told."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from typing import Any, Final

from scheduler_ext.core.sql import named

KEPT: Final = 20_000
"""Starts remembered of each line of work, and looked up when an upkeep begins."""
LATELY = """
SELECT a.tenant_id, n.cell, t.category, a.started_at FROM (
    SELECT task_id, tenant_id, started_at FROM slackwater_tasks_attempt WHERE id <= %s ORDER BY id DESC LIMIT %s) a
JOIN slackwater_tasks_task t ON t.id = a.task_id JOIN slackwater_tenants_tenant n ON n.id = a.tenant_id
"""
IN_FLIGHT = named("""
SELECT l.tenant_id, n.cell, t.category, l.started_at FROM slackwater_tasks_livetask l
JOIN slackwater_tasks_task t ON t.id = l.task_id JOIN slackwater_tenants_tenant n ON n.id = l.tenant_id
WHERE l.phase = :phase.IN_FLIGHT AND l.started_at IS NOT NULL LIMIT %s
""")
Lists = dict[Any, list[Any]]


class Starts:
    """The starts that this process knows of."""

    def __init__(self) -> None:
        self._known: Lists = defaultdict(list)
        self._running: Lists = {}
        self._to: int | None = None

    def look(self, conn: Any, after: int, to: int) -> None:
        """Before the attempts from ``after`` to ``to`` are accounted: what is known must reach to the first."""
        if self._to != after:
            self._known.clear()
            for row in conn.execute(LATELY, (after, KEPT)).fetchall():
                self.add(*row)
        self._to = to
        self._running = defaultdict(list)
        for tenant, cell, category, at in conn.execute(IN_FLIGHT, (KEPT,)).fetchall():
            for key in ((tenant, category), (tenant,), cell):
                insort(self._running[key], at)

    def add(self, tenant: int, cell: str, category: int, at: Any) -> None:
        """One more start that is over."""
        for key in ((tenant, category), (tenant,), cell):
            known = self._known[key]
            insort(known, at)
            if len(known) > 2 * KEPT:
                del known[:KEPT]

    def before(self, tenant: int, cell: str, category: int, since: Any, at: Any) -> tuple[int, int, int]:
        """Of those known, how many started after ``since`` and before ``at``, by the rule that let them.

        Of its own tenant and category, by their order; of its own tenant's others, by category; and of other tenants, by
        share, where only 0, 1, 10, 100 … tell whether there were at least so many.
        """
        alike, own = self._count((tenant, category), since, at), self._count((tenant,), since, at)
        others = self._count(cell, since, at) - own
        return alike, own - alike, 10 ** (len(str(others)) - 1) if others > 0 else 0

    def _count(self, key: Any, since: Any, at: Any) -> int:
        found = 0
        for lists in (self._known, self._running):
            known = lists.get(key)
            if known:
                found += max(0, bisect_left(known, at) - bisect_right(known, since))
        return found
