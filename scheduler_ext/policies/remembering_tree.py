"""The tree of a simulated run under a policy with a memory, where past use counts as held; and which tree a policy needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler_ext.core.types import Reason, Snapshot, Vector, WorkKind
from scheduler_ext.policies.accounts import Account
from scheduler_ext.policies.incremental_tree import RunningTree
from scheduler_ext.policies.tree import Rules
from scheduler_ext.policies.tree_nodes import Branch, Line

FRESH: Final = 1.0 - 1.0 / 512
"""Where past use counts as held, it is brought up to date when such a part of the memory has passed."""


class RememberingTree(RunningTree):
    """Past use counts as held."""

    def _descend(self, root: Branch) -> Line | None:
        """Where past use counts as held, who holds something goes back as time passes: nobody who has is served too soon."""
        line = super()._descend(root)
        while line is not None and self._catch_up(line.leaf.account):
            line = super()._descend(root)
        return line

    def _catch_up(self, account: Account) -> bool:
        """Count past use until now on an account and all above, unless that was done just before."""
        growth = self._growth()
        found, fresh, each = False, growth * FRESH, account
        while each.parent is not None:
            if each.share and each.served_at < fresh:
                self._count(each, growth)
                self._put(each, growth)
                each.version += 1
                found = True
            each = each.parent
        return found

    @staticmethod
    def _count(account: Account, growth: float) -> None:
        """What it held until now counts as served."""
        account.served += account.share * (growth - account.served_at)
        account.served_at = growth

    def _put(self, account: Account, growth: float) -> None:
        """Its place by what it holds and has held.

        What is remembered is not made to fade: what is held counts for more as time goes on. So the key of who holds
        nothing stays, all others grow, and who is not looked at stands too far in front, never too far behind.
        """
        account.past = int(account.share * (growth - 1.0) + account.served)
        account.key = self._rules.key(account)

    def _charge(self, account: Account, kind: WorkKind, milli: int, vector: Vector) -> None:
        growth, each, step = self._growth(), account, self._step if milli > 0 else -self._step
        while each.parent is not None:
            if step:
                self._move(each, step, growth)
            else:
                self._count(each, growth)
                each.hold(kind, milli, vector)
                self._put(each, growth)
            each = each.parent
        if each.counts:
            each.hold(kind, milli, vector)

    def swaps(self, is_full: Callable[[], bool]) -> bool:
        """Only where no room is left: below it, each look at who waits brings past use up to date."""
        return super().swaps(is_full) and is_full()

    def _move(self, top: Account, step: int, growth: float) -> None:
        # As :meth:`_count` and :meth:`_put`, written out: it runs twice for every task of a trace.
        served = top.served = top.served + top.share * (growth - top.served_at)
        top.served_at = growth
        share = top.share = top.share + step
        top.version += 1
        past = top.past = int(share * (growth - 1.0) + served)
        top.key = (share + past) * top.weight if self._plain_key else self._rules.key(top)

    def _shut_again(
        self, shut: set[tuple[int, WorkKind]], opened: list[list[Branch]], is_full: Callable[[], bool]
    ) -> None:
        """One by one, as each look brings what is in front up to date."""
        del shut, opened
        full = is_full()
        while not full and (picked := self.pick()) is not None:
            self.reject(*picked, Reason.PEAK)

    def _place_anew(self, account: Account, left: float, unit: float) -> None:
        del left
        self._put(account, unit)


def running_tree(snapshot: Snapshot, rules: Rules) -> RunningTree:
    """The tree for a policy, with or without a memory."""
    return (RememberingTree if rules.memory_s else RunningTree)(snapshot, rules)
