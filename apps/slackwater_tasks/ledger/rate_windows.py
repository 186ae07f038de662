"""Execution rates in the dispatcher: a maximum of starts in any time frame, exact over all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scheduler_ext.core.types import Decision, LineView, TaskView
from slackwater_tasks.ledger import sql, transitions

MARGIN_S = 0.2
"""The code of a running task has begun at most this long after the ledger's start."""
MAX_UNPARKED = 1024


@dataclass(frozen=True, slots=True)
class Limit:
    """One row of ``slackwater_tasks_ratelimit``."""

    id: int
    tenant_id: int | None
    handler_id: int | None
    key: str
    starts: int
    per_s: int


class RateBook:
    """The limits, and what is left of each. Without any it costs nothing."""

    def __init__(self) -> None:
        self.limits: dict[int, Limit] = {}
        self.left: dict[int, int] = {}
        self.due_s: float | None = None
        """Seconds until the next start is allowed under a limit that was used up."""
        self._handlers: dict[int, list[Limit]] = {}
        self._tenants: dict[int, tuple[int, ...]] = {}
        self._keys: dict[tuple[int, str], tuple[int, ...]] = {}
        self._nominated: dict[str, tuple[int, ...]] = {}
        self._ready: dict[int, int] = {}

    def learn(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take over the limits as they are now."""
        self.limits = {row[0]: Limit(*row) for row in rows}
        self._handlers = {}
        tenants: dict[int, list[int]] = {}
        keys: dict[tuple[int, str], list[int]] = {}
        for limit in self.limits.values():
            if limit.handler_id is not None:
                self._handlers.setdefault(limit.handler_id, []).append(limit)
            elif limit.tenant_id is not None and limit.key:
                keys.setdefault((limit.tenant_id, limit.key), []).append(limit.id)
            elif limit.tenant_id is not None:
                tenants.setdefault(limit.tenant_id, []).append(limit.id)
        self._tenants = {tenant: tuple(ids) for tenant, ids in tenants.items()}
        self._keys = {key: tuple(ids) for key, ids in keys.items()}

    def of(self, tenant_id: int, handler_id: int | None, key: str | None) -> tuple[int, ...]:
        """The limits that a task's start counts against."""
        found = self._tenants.get(tenant_id, ())
        if handler_id is not None:
            found += tuple(
                limit.id for limit in self._handlers.get(handler_id, ()) if limit.tenant_id in (None, tenant_id)
            )
        return found + self._keys.get((tenant_id, key), ()) if key else found

    # -- a round --------------------------------------------------------------------------------------------------
    def count(self, conn: Any) -> dict[int, int]:
        """Read what has started, and how many starts each limit allows now."""
        self.due_s = None
        if not self.limits:
            self.left = {}
            return self.left
        with conn.pipeline():
            conn.execute(sql.rates.SETTLE, {"margin": MARGIN_S})
            conn.execute(sql.rates.FORGET)
            counted = conn.execute(sql.rates.COUNT)
            used = {row[0]: (row[1], row[2]) for row in counted.fetchall()}
        self.left = {}
        for limit in self.limits.values():
            count, oldest = used.get(limit.id, (0, None))
            self.left[limit.id] = max(0, limit.starts - count)
            if count >= limit.starts and oldest is not None:
                wait = max(0.0, oldest + limit.per_s + 0.01)
                self.due_s = wait if self.due_s is None else min(self.due_s, wait)
        return self.left

    def peek(self, conn: Any) -> dict[int, int]:
        """How many starts each limit allows by what is written; changes nothing."""
        used = {row[0]: row[1] for row in conn.execute(sql.rates.PEEK).fetchall()} if self.limits else {}
        return {i: max(0, limit.starts - used.get(i, 0)) for i, limit in self.limits.items()}

    def unpark(self, conn: Any) -> None:
        """Release parked tasks, as many as could start beyond those that are ready already."""
        free = {i: min(n, MAX_UNPARKED) - self._ready.get(i, 0) for i, n in self.left.items()}
        free = {i: n for i, n in free.items() if n > 0}
        if free:
            transitions.unpark_limited(conn, free)

    def mark(self, conn: Any, lines: tuple[LineView, ...]) -> tuple[LineView, ...]:
        """The nominated tasks with the limits their starts count against."""
        keys: dict[str, str] = {}
        if self._keys:
            owners = {tenant for tenant, _ in self._keys}
            ids = [task.task_id for line in lines if line.tenant_id in owners for task in line.heads]
            keys = dict(conn.execute(sql.rates.KEYS_OF, (ids,)).fetchall()) if ids else {}
        self._nominated = {}
        return tuple(self._marked(line, keys) for line in lines)

    def _marked(self, line: LineView, keys: dict[str, str]) -> LineView:
        heads: list[TaskView] = []
        for task in line.heads:
            rates = self.of(line.tenant_id, task.handler_id, keys.get(task.task_id))
            if rates:
                self._nominated[task.task_id] = rates
            heads.append(replace(task, rates=rates) if rates else task)
        return replace(line, heads=tuple(heads))

    def allow(self, conn: Any, decisions: Sequence[Decision]) -> list[Decision]:
        """Those that may be claimed: the limits are locked and counted anew, in the claiming transaction."""
        wanted = sorted({i for d in decisions for i in self._nominated.get(d.task_id, ())})
        if not wanted:
            return list(decisions)
        left = dict(conn.execute(sql.rates.LOCK, (wanted,)).fetchall())
        for limit, used in conn.execute(sql.rates.COUNT_OF, (wanted,)).fetchall():
            left[limit] -= used
        allowed = []
        for decision in decisions:
            rates = [i for i in self._nominated.get(decision.task_id, ()) if i in left]
            if all(left[i] > 0 for i in rates):
                allowed.append(decision)
                for i in rates:
                    left[i] -= 1
        return allowed

    def take(self, conn: Any, decisions: Sequence[Decision], won: set[str]) -> None:
        """Count the claims that were won."""
        rows = [
            (limit, d.task_id, d.fence + 1)
            for d in decisions
            if d.task_id in won
            for limit in self._nominated.get(d.task_id, ())
            if limit in self.limits
        ]
        if rows:
            conn.execute(sql.rates.TAKE, [list(column) for column in zip(*rows, strict=True)])
        self._ready = {}
        for task_id, rates in self._nominated.items():
            if task_id not in won:
                for limit in rates:
                    self._ready[limit] = self._ready.get(limit, 0) + 1

    def park(self, conn: Any, task_ids: Sequence[str]) -> int:
        """Park tasks whose rate is used up, each for the limit that has least left."""
        whys = {}
        for task_id in task_ids:
            rates = [i for i in self._nominated.get(task_id, ()) if i in self.limits]
            if rates:
                whys[task_id] = min(rates, key=lambda i: self.left.get(i, 0))
                for limit in rates:
                    self._ready[limit] = max(0, self._ready.get(limit, 0) - 1)
        return transitions.park_for(conn, whys, actor="dispatcher", reason="parked: its execution rate is used up")
