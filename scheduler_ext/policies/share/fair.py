"""Fair pools: a minimum share first, then equal shares by weight; FIFO or fair inside a pool.

A pool that stays below its minimum for longer than the starvation delay may have tasks of others ended for it, when its
first task then starts in their room, and the pools that give keep their own minimum without all that they give. Only
idempotent tasks are ended, lowest priority first, then the most recently started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.accounts import FINE, Account
from scheduler_ext.policies.share.terms import PooledShare


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShare(PooledShare):
    """Pools with weights and minimum shares, fair or FIFO inside.

    A task's share of the cell is its dominant one, over slots and resources. A line without a pool is its
    tenant's own pool, with the weight and guarantee of the tenant's plan.
    """

    settings: ClassVar[tuple[str, ...]] = ("weight", "guaranteed", "maximum", "lends", "inside")
    name: str = "fair"
    pools: Mapping[str, Any] = field(default_factory=dict)
    """``{"team": {"weight": 2, "guaranteed": 30, "inside": "fifo"}}``; guaranteed is the minimum share."""
    starvation_s: int = 30
    """How long a pool may stay below its minimum before others' tasks are ended for it."""

    def __post_init__(self) -> None:
        PooledShare.__post_init__(self)
        if self.starvation_s < 0:
            raise ConfigurationError("must not be negative", field="starvation_s")

    def key(self, account: Account) -> tuple[int, int]:
        """Pools below their minimum first, by how much of it they have; then by use over weight."""
        if account.share < account.floor:
            return (0, account.share * FINE // account.floor)
        return (1, (account.share + account.past) * account.weight)
