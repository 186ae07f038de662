"""A shadow policy: a second share policy decides each live round too, and only the differences are counted.

Who would have waited less is estimated by exchange. Where the second would start task B instead of A, it would give B
the place that A gets now, and A the one that B will get: when B really starts, B's tenant would have waited less by the
time between, and A's as much more. Each task counts in the first round in which the two differ over it. What is
still open after :data:`FORGET_S` counts as that long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.types import Plan, Snapshot
from scheduler_ext.policies.base import SharePolicy
from scheduler_ext.round.prioritizer import prioritize

FORGET_S: Final = 600.0
MAX_OPEN: Final = 50_000
"""Exchanges kept open; beyond that differences are not counted."""


@dataclass(slots=True)
class Sums:
    """What is known of one tenant."""

    started: int = 0
    waited_s: float = 0.0
    """Seconds from submission to the round that started it, summed over the tasks started."""
    sooner: int = 0
    sooner_s: float = 0.0
    """Seconds by which its tasks would have waited less under the second policy."""
    later: int = 0
    later_s: float = 0.0


@dataclass(slots=True)
class Shadow:
    """Compares a second policy over rounds, in their order. Pure but for its own sums."""

    conf: SchedulerConf
    second: SharePolicy
    sums: dict[int, Sums] = field(default_factory=dict)
    _open: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    """By task the second policy would have started: its tenant, the tenant that was started instead, and when."""

    def watch(self, snapshot: Snapshot, plan: Plan) -> None:
        """Decide the round under the second policy too, and count where it differs."""
        other = prioritize(snapshot, self.conf, self.second)
        tenants = {task.task_id: (line.tenant_id, task.submitted_at) for line in snapshot.lines for task in line.heads}
        now = snapshot.now
        first = {decision.task_id for decision in plan.decisions}
        second = {decision.task_id for decision in other.decisions}
        for task_id in first:
            tenant, submitted = tenants[task_id]
            sums = self.sums.setdefault(tenant, Sums())
            sums.started += 1
            sums.waited_s += max(0.0, now - submitted)
            self._settle(task_id, now)
        instead = [decision.task_id for decision in plan.decisions if decision.task_id not in second]
        would = [d.task_id for d in other.decisions if d.task_id not in first and d.task_id not in self._open]
        if len(self._open) < MAX_OPEN:
            for passed, taken in zip(would, instead, strict=False):
                self._open[passed] = (tenants[passed][0], tenants[taken][0], now)
        for task_id in [task_id for task_id, (_, _, since) in self._open.items() if now - since > FORGET_S]:
            self._settle(task_id, now)

    def _settle(self, task_id: str, now: float) -> None:
        """Close the exchange of a task that the second policy would have started earlier: it has started now."""
        found = self._open.pop(task_id, None)
        if found is None:
            return
        winner, loser, since = found
        sums = self.sums.setdefault(winner, Sums())
        sums.sooner += 1
        sums.sooner_s += now - since
        sums = self.sums.setdefault(loser, Sums())
        sums.later += 1
        sums.later_s += now - since

    def take(self) -> Mapping[int, Sums]:
        """What has been counted since the last call."""
        taken, self.sums = self.sums, {}
        return taken
