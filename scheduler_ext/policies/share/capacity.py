"""Capacity queues: a hierarchy with guaranteed shares (soft) and maxima (hard).

The queue that uses least of its guarantee is served first, so idle share is lent to those that have work, and comes
back as their tasks end; nothing is pre-empted. A queue's maximum is never passed. Inside a queue tasks go by rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from scheduler_ext.core.types import CLIENT, LineView
from scheduler_ext.policies.accounts import FINE, Account
from scheduler_ext.policies.share.terms import PooledShare


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityShare(PooledShare):
    """Hierarchical queues with guaranteed and maximum shares.

    A task's share of the cell is its dominant one, over slots and resources. A line without a configured
    queue is its tenant's own queue, with the guarantee of the tenant's plan.
    """

    settings: ClassVar[tuple[str, ...]] = ("weight", "guaranteed", "maximum", "lends")
    parameter: ClassVar[str] = "queues"
    name: str = "capacity"
    queues: Mapping[str, Any] = field(default_factory=dict)
    """``{"org/team": {"guaranteed": 25, "maximum": 50, "lends": 100}}``, in per cent of the queue above (``lends``: of
    its own idle guarantee)."""

    def owned(self, line: LineView) -> bool:
        """A line outside the queues is its tenant's own; inside them tenants are not told apart, but those of one client."""
        return not line.pool or line.pool.startswith(CLIENT)

    def key(self, account: Account) -> tuple[int, int]:
        """Use over guarantee; those without a guarantee share what the others leave, by weight."""
        held = account.share + account.past
        if account.floor:
            return (0, held * FINE // account.floor)
        return (1, held * account.weight)
