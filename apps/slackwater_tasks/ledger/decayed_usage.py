"""Past use in live rounds: kept in the leading dispatcher's memory, and in the database against its restart.

Costs nothing while the share policy remembers nothing (``memory_s`` 0). Otherwise each round adds up what tenants and
pools held since the round before it, without a query; all :data:`SAVE_S` seconds the sums are written down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from scheduler_ext.core.resources import add, filled, part, zero
from scheduler_ext.core.types import PER_CHILD, Decision, PoolView, Snapshot, Vector
from scheduler_ext.policies.accounts import Measure
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.round.decayed_usage import PastUse

SAVE_S: Final = 10.0
"""What was used in at most so many seconds before a dispatcher is killed may be forgotten."""

LOAD = """
SELECT name, amount, extract(epoch FROM clock_timestamp() - at)::float8 FROM slackwater_tasks_pastuse WHERE cell = %s
"""
SAVE = """
INSERT INTO slackwater_tasks_pastuse AS p (cell, name, amount, at)
SELECT %(cell)s, u.name, u.amount, clock_timestamp() FROM unnest(%(names)s::text[], %(amounts)s::float8[])
    AS u(name, amount)
ON CONFLICT (cell, name) DO UPDATE SET amount = excluded.amount, at = excluded.at
"""
FORGET = "DELETE FROM slackwater_tasks_pastuse WHERE cell = %(cell)s AND NOT name = ANY(%(names)s::text[])"


class LivePast:
    """One dispatcher's; whoever explains reads what the leading one has written down."""

    def __init__(self, cell: str) -> None:
        self.cell = cell
        self.use: PastUse | None = None
        """``None`` until it is read: at the first round of a leadership."""
        self._saved = float("-inf")

    def count(self, conn: Any, snapshot: Snapshot, policy: SharePolicy) -> Snapshot:
        """The snapshot with past use, after what was held since the round before has been added."""
        memory_s = int(getattr(policy, "memory_s", 0))
        if not memory_s:
            self.use = None
            return snapshot
        if self.use is None:
            self.use, self._saved = self._read(conn, snapshot.now, memory_s), snapshot.now
        use, measure = self.use, Measure(snapshot, vectors=bool(getattr(policy, "vectors", False)))
        use.follow(snapshot.now, memory_s, measure)
        use.held = _held(snapshot)
        if not 0 <= snapshot.now - self._saved < SAVE_S:
            self.save(conn)
        return _with(snapshot, use.amounts)

    def seen(self, conn: Any, snapshot: Snapshot, policy: SharePolicy) -> Snapshot:
        """The snapshot with past use as it was last written down; changes nothing."""
        memory_s = int(getattr(policy, "memory_s", 0))
        return _with(snapshot, self._read(conn, snapshot.now, memory_s).amounts) if memory_s else snapshot

    def claimed(self, snapshot: Snapshot | None, decisions: Iterable[Decision], millis: Mapping[str, int]) -> None:
        """What was claimed is held from now on. ``millis``: thousandths of a slot by task id."""
        if self.use is None or snapshot is None:
            return
        lines = {line.line_id: line for line in snapshot.lines}
        for decision in decisions:
            line = lines[decision.line_id]
            kind, vector = decision.kind, filled(line.vector)
            vector = part(vector, PER_CHILD[kind]) if kind in PER_CHILD else vector
            for name in _names(line.tenant_id, line.pool):
                milli, used = self.use.held.get(name, (0, zero()))
                self.use.held[name] = (milli + millis[decision.task_id], add(used, vector))

    def save(self, conn: Any) -> None:
        if self.use is None:
            return
        self._saved = self.use.at
        amounts = self.use.amounts
        params = {"cell": self.cell, "names": list(amounts), "amounts": list(amounts.values())}
        with conn.transaction():
            conn.execute(SAVE, params)
            conn.execute(FORGET, params)

    def _read(self, conn: Any, now: float, memory_s: int) -> PastUse:
        rows = conn.execute(LOAD, (self.cell,)).fetchall()
        return PastUse(now, {name: amount * math.exp(-max(0.0, age) / memory_s) for name, amount, age in rows})


def _names(tenant_id: int, pool: str) -> tuple[str, ...]:
    return (f"tenant {tenant_id}", f"pool {pool}") if pool else (f"tenant {tenant_id}",)


def _held(snapshot: Snapshot) -> dict[str, tuple[int, Vector]]:
    held = {
        f"tenant {number}": (tenant.used_slots_milli, filled(tenant.used))
        for number, tenant in snapshot.tenants.items()
        if tenant.used_slots_milli
    }
    for path, pool in snapshot.pools.items():
        held[f"pool {path}"] = (pool.used_slots_milli, filled(pool.used))
    return held


def _with(snapshot: Snapshot, amounts: Mapping[str, float]) -> Snapshot:
    if not amounts:
        return snapshot
    tenants, pools = dict(snapshot.tenants), dict(snapshot.pools)
    for name, amount in amounts.items():
        kind, _, which = name.partition(" ")
        if kind == "pool":
            pools[which] = replace(pools.get(which) or PoolView(), past_use=amount)
        elif int(which) in tenants:
            tenants[int(which)] = replace(tenants[int(which)], past_use=amount)
    return replace(snapshot, tenants=tenants, pools=pools)
