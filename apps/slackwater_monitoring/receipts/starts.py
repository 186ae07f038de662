"""Who went before a task: starts of late, counted by rule. Of others' work only the order of magnitude is told."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
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


class _Line:
    """Starts of one line of work, in their order."""

    def __init__(self) -> None:
        self.known: list[int] = []
        self.running: list[int] = []

    def add(self, starts: list[int]) -> None:
        """More that are over: most are later than all that are known."""
        starts.sort()
        place = bisect_left(self.known, starts[0])
        self.known[place:] = sorted(self.known[place:] + starts)
        if len(self.known) > 2 * KEPT:
            del self.known[:KEPT]

    def until(self, at: int) -> int:
        """How many, with those of that moment."""
        return bisect_right(self.known, at) + bisect_right(self.running, at)

    def before(self, at: int) -> int:
        return bisect_left(self.known, at) + bisect_left(self.running, at)


class Starts:
    """The starts that this process knows of."""

    def __init__(self) -> None:
        self._lines: dict[Any, _Line] = defaultdict(_Line)
        self._until: dict[tuple[int, int, int], list[tuple[_Line, int]]] = {}
        """How many until a moment, which tasks of one submission share: alike, of their tenant, and of all."""
        self._to: int | None = None

    def look(self, cursor: Any, after: int, to: int) -> None:
        """Before the attempts from ``after`` to ``to`` are accounted: what is known must reach to the first."""
        if self._to != after:
            self._lines.clear()
            self.add(cursor.execute(LATELY, (after, KEPT)).fetchall())
        self._to = to
        running = _by_line(cursor.execute(IN_FLIGHT, (KEPT,)).fetchall())
        for key in self._lines.keys() | running.keys():
            self._lines[key].running = sorted(running.get(key, ()))

    def add(self, rows: Iterable[tuple[int, str, int, int]]) -> None:
        """More starts that are over: of a tenant, in its cell, of a category."""
        for key, starts in _by_line(rows).items():
            self._lines[key].add(starts)
        self._until.clear()

    def before(self, tenant: int, cell: str, category: int, since: int, at: int) -> tuple[int, int, int]:
        """Of those known, how many started after ``since`` and before ``at``, by the rule that let them.

        Of its own tenant and category, by their order; of its own tenant's others, by category; and of other tenants, by
        share, where only 0, 1, 10, 100 … tell whether there were at least so many.
        """
        if at <= since:
            return 0, 0, 0
        lines = self._until.get((tenant, category, since))
        if lines is None:
            found = self._lines[tenant, category], self._lines[tenant], self._lines[cell]
            lines = self._until[tenant, category, since] = [(line, line.until(since)) for line in found]
        alike, own, every = [line.before(at) - until for line, until in lines]
        others = every - own
        return alike, own - alike, 10 ** (len(str(others)) - 1) if others > 0 else 0


def _by_line(rows: Iterable[tuple[int, str, int, int]]) -> dict[Any, list[int]]:
    """Starts of a tenant and category, of a tenant, and of a cell."""
    found: dict[Any, list[int]] = defaultdict(list)
    for tenant, cell, category, at in rows:
        found[tenant, category].append(at)
        found[tenant].append(at)
        found[cell].append(at)
    return found
