"""Fair pools: a minimum share first, then equal shares by weight; FIFO or fair inside a pool.

A pool that stays below its minimum for longer than the starvation delay may have tasks of others ended for it:
:func:`victims` names them. Only idempotent tasks are ended, lowest priority first, then the most recently started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.resources import add, fits
from scheduler_ext.core.types import MILLI, Vector, WorkKind
from scheduler_ext.policies.accounts import FINE, Account
from scheduler_ext.policies.share.terms import PooledShare


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A task in flight, as pre-emption sees it."""

    task_id: str
    vector: Vector
    priority: int
    started_at: float
    idempotent: bool
    above_share: bool
    """Whether its pool would keep its minimum (and its fair share) without it."""


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


def spared(account: Account, starving: Account, kind: WorkKind, vector: Vector) -> bool:
    """Whether a task of ``account`` may be ended for ``starving``: its pools would still have their minimum."""
    each: Account | None = account
    less = tuple(-need for need in vector)
    while each is not None and each.parent is not None:
        if each is starving or each.share_with(kind, -MILLI, less) < each.floor:
            return False
        each = each.parent
    return True


def victims(need: Vector, free: Vector, running: Iterable[Running], *, slots: int = 1) -> list[str]:
    """The tasks of one node to end so that ``need`` fits with what is ``free``; none if nothing helps.

    ``slots`` are the node's free ones; ending a task frees one more. Only idempotent tasks of pools above
    their share are taken: lowest priority first, then the most recently started, so that the least work is
    lost. Ending them spends no attempt.
    """
    chosen: list[str] = []
    if slots > 0 and fits(need, free):
        return chosen
    candidates = [task for task in running if task.idempotent and task.above_share]
    for task in sorted(candidates, key=lambda each: (each.priority, -each.started_at, each.task_id)):
        free = add(free, task.vector)
        slots += 1
        chosen.append(task.task_id)
        if slots > 0 and fits(need, free):
            return chosen
    return []
