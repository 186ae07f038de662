"""Past use in live rounds: kept in the leading dispatcher's memory, and in the database against its restart.

Each round adds up what tenants and pools held since the round before it, without a query. Where the share policy counts
past use as held (``memory_s``), the sums are written down all :data:`SAVE_S` seconds; where it only tells who was served
less of two who hold alike, the next dispatcher begins anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from math import exp
from typing import Any, Final

from scheduler_ext.core.resources import add, filled, part, scale, zero
from scheduler_ext.core.types import (
    NO_SLOTS,
    PER_CHILD,
    Decision,
    LineView,
    Slots,
    Snapshot,
    Vector,
    add_slots,
)
from scheduler_ext.policies.accounts import Measure
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.policies.holdings import member_name
from scheduler_ext.policies.tree import SHORT_MEMORY_S
from scheduler_ext.round.decayed_usage import PastUse

SAVE_S: Final = 10.0
"""The use of at most so many seconds before a dispatcher is killed may be forgotten."""

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
    """The past use of one dispatcher; whoever explains reads what the leading one has written."""

    def __init__(self, cell: str) -> None:
        self.cell = cell
        self.use: PastUse | None = None
        """``None`` until it is read, in the first round of a leadership."""
        self._saved = float("-inf")
        self._saves = False

    def count(self, conn: Any, snapshot: Snapshot, policy: SharePolicy) -> Snapshot:
        """The snapshot with past use, to which what was held since the previous round is added."""
        memory_s = int(getattr(policy, "memory_s", 0))
        use = self.use
        if use is None or use.memory_s != (memory_s or SHORT_MEMORY_S):
            use, self._saved = self._begin(conn, snapshot.now, memory_s), snapshot.now
            self.use = use
        use.follow(snapshot.now, Measure(snapshot, vectors=bool(getattr(policy, "vectors", False))))
        use.held = _held(snapshot)
        self._saves = bool(memory_s)
        if not memory_s:
            return replace(snapshot, past_use=dict(use.grown))
        if not 0 <= snapshot.now - self._saved < SAVE_S:
            self.save(conn)
        return replace(snapshot, past_use=use.amounts())

    def seen(self, conn: Any, snapshot: Snapshot, policy: SharePolicy) -> Snapshot:
        """The snapshot with past use as it was last written; changes nothing."""
        memory_s = int(getattr(policy, "memory_s", 0))
        return replace(snapshot, past_use=self._begin(conn, snapshot.now, memory_s).amounts())

    def claimed(
        self, snapshot: Snapshot | None, decisions: Iterable[Decision], milli: Callable[[Decision], int]
    ) -> None:
        """Count the claims as held from now on. ``milli``: the thousandths of a slot that a task takes."""
        if self.use is None or snapshot is None:
            return
        taken = Counter([(decision.line_id, decision.kind, milli(decision)) for decision in decisions])
        lines = {line.line_id: line for line in snapshot.lines}
        split = {line.tenant_id for line in snapshot.lines if line.workflow}
        for (line_id, kind, each), count in taken.items():
            line = lines[line_id]
            vector = filled(line.vector)
            vector = scale(part(vector, PER_CHILD[kind]) if kind in PER_CHILD else vector, count)
            for name in _names(line, split):
                slots, used = self.use.held.get(name, (NO_SLOTS, zero()))
                self.use.held[name] = (add_slots(slots, {kind: each * count}), add(used, vector))

    def save(self, conn: Any) -> None:
        if self.use is None or not self._saves:
            return
        self._saved = self.use.at
        amounts = self.use.amounts()
        params = {"cell": self.cell, "names": list(amounts), "amounts": list(amounts.values())}
        with conn.transaction():
            conn.execute(SAVE, params)
            conn.execute(FORGET, params)

    def _begin(self, conn: Any, now: float, memory_s: int) -> PastUse:
        """What was written; nothing where past use is not kept."""
        rows = conn.execute(LOAD, (self.cell,)).fetchall() if memory_s else ()
        written = {name: amount * exp(-max(0.0, age) / memory_s) for name, amount, age in rows}
        return PastUse(now, memory_s or SHORT_MEMORY_S, written)


def _names(line: LineView, split: set[int]) -> list[str]:
    """Those on whose account a task of a line is held; ``split``: tenants that have workflows with a share."""
    names = [f"tenant {line.tenant_id}"]
    if line.pool:
        names.append(f"pool {line.pool}")
    if line.tenant_id in split:
        names.append(member_name(line.tenant_id, line.workflow))
    return names


def _held(snapshot: Snapshot) -> dict[str, tuple[Slots, Vector]]:
    held = {
        f"tenant {number}": (tenant.used_slots_milli, filled(tenant.used))
        for number, tenant in snapshot.tenants.items()
        if tenant.used_slots_milli
    }
    for path, pool in snapshot.pools.items():
        held[f"pool {path}"] = (pool.used_slots_milli, filled(pool.used))
    for tenant_id, members in chain.from_iterable(pool.items() for pool in snapshot.workflows.values()):
        for workflow, (slots, used) in members.items():
            name = member_name(tenant_id, workflow)
            so_far, before = held.get(name, (NO_SLOTS, zero()))
            held[name] = (add_slots(so_far, slots), add(before, used))
    return held
