"""Capacity queues: a hierarchy with guaranteed shares (soft) and maxima (hard).

The queue that uses least of its guarantee is served first, so idle share is lent to those that have work, and comes
back as their tasks end; nothing is pre-empted. A queue's maximum is never passed. Inside a queue tasks go by rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler_ext.core.types import LineView, TenantView
from scheduler_ext.policies.accounts import FINE, Account, Measure
from scheduler_ext.policies.share.terms import PooledShare, Pools, check_memory, pool_path, pool_terms, tenant_terms
from scheduler_ext.policies.tree import Path, Terms

SETTINGS = ("weight", "guaranteed", "maximum", "lends")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityShare(PooledShare):
    """Hierarchical queues with guaranteed and maximum shares.

    A task's share of the cell is its dominant one, over slots and resources. A line without a configured
    queue is its tenant's own queue, with the guarantee of the tenant's plan.
    """

    name: str = "capacity"
    queues: Mapping[str, Any] = field(default_factory=dict)
    """``{"org/team": {"guaranteed": 25, "maximum": 50, "lends": 100}}``, in per cent of the queue above (``lends``: of
    its own idle guarantee)."""
    memory_s: int = 0
    """Past use counts as held for this long; 0: only what is in flight counts."""
    _pools: Pools = field(default_factory=Pools, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the queues."""
        check_memory(self.memory_s)
        object.__setattr__(self, "_pools", Pools.parse(self.queues, SETTINGS, name="queues"))

    def path(self, line: LineView) -> Path:
        """The line's queue."""
        return pool_path(line)

    def owned(self, line: LineView) -> bool:
        """A line outside the configured queues is its tenant's own."""
        return not line.pool

    def terms(self, path: Path, tenant: TenantView | None, above: Account, measure: Measure) -> Terms:
        """The queue's guarantee and maximum, of what the queue above has."""
        pool = self._pools.get(path)
        if pool is None:
            return tenant_terms(tenant, measure)
        top = above.parent is None
        floor = measure.whole if top else above.floor
        limit = above.limit if above.limit is not None else measure.whole
        return pool_terms(pool, floor, limit)

    def key(self, account: Account) -> tuple[int, int]:
        """Use over guarantee; those without a guarantee share what the others leave, by weight."""
        held = account.share + account.past
        if account.floor:
            return (0, held * FINE // account.floor)
        return (1, held * account.weight)
