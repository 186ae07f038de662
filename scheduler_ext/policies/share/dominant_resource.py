"""Dominant resource fairness: equal dominant shares, by weight, at each level of the pools.

A task's dominant share is the largest of its shares of CPU, memory, disk, IOPS, bandwidth, ports and slots. The line
with the smallest weighted dominant share is served next; one whose tasks do not fit what is left holds up nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler_ext.core.types import LineView, TenantView
from scheduler_ext.policies.accounts import Account, Measure
from scheduler_ext.policies.share.terms import PooledShare, Pools, check_memory, pool_path, tenant_terms
from scheduler_ext.policies.tree import Path, Terms, by_weight

SETTINGS = ("weight",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DominantResourceShare(PooledShare):
    """Equal dominant shares by weight, over tenants and over the pools they stand in."""

    name: str = "dominant_resource"
    pools: Mapping[str, Any] = field(default_factory=dict)
    """``{"org/team": {"weight": 2}}``; pools not named have weight 1."""
    memory_s: int = 0
    """Past use counts as held for this long; 0: only what is in flight counts."""
    _pools: Pools = field(default_factory=Pools, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the pools."""
        check_memory(self.memory_s)
        object.__setattr__(self, "_pools", Pools.parse(self.pools, SETTINGS, name="pools"))

    def path(self, line: LineView) -> Path:
        """The line's pool, if any, and in it the tenant."""
        path = pool_path(line)
        return (*path, f"tenant {line.tenant_id}") if line.pool else path

    def owned(self, line: LineView) -> bool:
        """The last account is always the tenant's own."""
        del line
        return True

    def terms(self, path: Path, tenant: TenantView | None, above: Account, measure: Measure) -> Terms:
        """Weight of the pool, or of the tenant's plan."""
        pool = self._pools.get(path)
        if pool is not None:
            return Terms(weight=pool.weight)
        terms = tenant_terms(tenant, measure)
        return terms if above.parent is None else Terms(weight=terms.weight)

    def key(self, account: Account) -> int:
        """Dominant share for its weight."""
        return by_weight(account)
