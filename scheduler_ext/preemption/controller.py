"""The dispatcher's side of turns: it asks tasks that have run long enough, and holds them back until others start.

Costs nothing while no task holds a slot of its own, and one statement a look while none of them could be asked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.types import LineView, Plan, Snapshot
from scheduler_ext.policies.base import OrderPolicy, SharePolicy
from scheduler_ext.preemption import choose as pure
from scheduler_ext.preemption import starvation
from scheduler_ext.preemption.choose import KINDS, Ask, Turn
from scheduler_ext.round.claimed import after, less

log = logging.getLogger(__name__)

POLL_S = 0.25
MIN_PAUSE_S = 0.02
MAX_HOLD_S = 3.0
"""A task that yielded is held back at most this long beyond its time to save: those it let pass may be gone."""


class TurnStore(Protocol):
    """The ledger's part that turns use."""

    def turns(self, *, idempotent: bool) -> list[Turn]:
        """The tasks in whole slots that save checkpoints, or (if asked for) are idempotent."""

    def waiting(self) -> tuple[LineView, ...]:
        """The heads of all lines, whether there is room for them or not."""

    def ask(self, epoch: int, asks: Sequence[Ask]) -> set[str]:
        """Note what is asked of running tasks, under the leader's epoch; returns those that still run."""

    def order_of(self, line: LineView) -> OrderPolicy:
        """The order that holds in a line."""

    def slicing(self) -> bool:
        """Whether time is shared in any line."""

    def serve(self, line_id: int, level: int) -> None:
        """Note the level a line serves now, which newcomers look at."""


@dataclass(frozen=True, slots=True)
class _Held:
    lets_by: frozenset[str]
    ahead: bool
    until: float


class TurnTaking:
    """The turns of one dispatcher.

    Its memory may be lost: then a task that yielded may start before those it let pass.
    """

    def __init__(self, store: TurnStore, tell_nodes: Callable[[Iterable[int]], None], conf: SchedulerConf,
                 share: Callable[[], SharePolicy]) -> None:  # fmt: skip
        """``tell_nodes`` lets nodes look at what is asked; ``share`` is the share policy that holds now."""
        self.store = store
        self._tell_nodes = tell_nodes
        self.conf = conf
        self.share = share
        self._held: dict[str, _Held] = {}
        self._starvation = starvation.Starvation()
        self._serving: dict[int, int] = {}
        self._next = 0.0
        self._wants = float("inf")
        """When the next turn of a running task is over."""

    def hold(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without tasks that yielded to others still waiting, and with those others first."""
        if not self._held:
            return snapshot
        now = time.monotonic()
        there = {task.task_id for line in snapshot.lines for task in line.heads}
        for task_id, held in list(self._held.items()):
            # Where nothing is nominated nothing can start either; what it let by may only not have been looked at.
            if now > held.until or (task_id in there and not held.lets_by & there):
                del self._held[task_id]
        ahead = frozenset(other for held in self._held.values() if held.ahead for other in held.lets_by)
        waiting_for = {task_id: held.lets_by for task_id, held in self._held.items()}
        return pure.offered(snapshot, self.conf, self.share(), waiting_for, ahead)

    @property
    def holds(self) -> bool:
        """Whether a task that yielded is held back."""
        return bool(self._held)

    def _started(self, plan: Plan) -> None:
        """What was let by has its room: nobody waits for it any more."""
        started = frozenset(decision.task_id for decision in plan.decisions)
        for task_id, held in list(self._held.items()):
            left = held.lets_by - started
            if not left:
                del self._held[task_id]
            elif left != held.lets_by:
                self._held[task_id] = replace(held, lets_by=left)
        self._next = self._wants = 0.0  # the others' turn comes with the next round, at once

    def pause_s(self) -> float:
        """The longest time the dispatcher may wait before the next round."""
        return max(MIN_PAUSE_S, self._wants - time.monotonic())

    def look(self, snapshot: Snapshot, plan: Plan, epoch: int) -> list[Ask]:
        """Ask running tasks to make room, where the policies say so; returns those that were asked."""
        self._serve(snapshot, plan)
        if self._held and plan.decisions:
            self._started(plan)
            return []
        now = time.monotonic()
        if now < self._next:
            return []
        self._next = now + POLL_S
        self._wants = float("inf")
        if not any(node.exclusive_count.keys() & KINDS for node in snapshot.nodes):
            self._starvation.forget()
            return []
        share: Any = self.share()
        starvation_s = getattr(share, "starvation_s", None)
        turns = self.store.turns(idempotent=starvation_s is not None)
        if not turns or not self._may_ask(turns, now, pools=starvation_s is not None):
            return []
        world = after(snapshot, plan.decisions)
        world = replace(world, lines=less(self.store.waiting(), self._held))
        if not world.lines:
            self._starvation.forget()
            return []
        asks = pure.choose(world, turns, self.conf, share, self.store.order_of)
        if starvation_s is not None and not asks:
            asks = starvation.ask(self._starvation, world, turns, self.conf, share, now=now, delay=starvation_s)
        return self._ask(epoch, asks)

    def _may_ask(self, turns: Sequence[Turn], now: float, *, pools: bool) -> bool:
        """Whether a turn is over; also notes when the next one is."""
        left = [
            pure.slice_s(turn, self.store.order_of(turn.line), self.conf) - turn.ran_s
            for turn in turns
            if turn.checkpoints and not turn.asked
        ]
        soonest = min(left, default=float("inf"))
        if soonest > 0:
            self._wants = now + soonest
        return soonest <= 0 or pools

    def _ask(self, epoch: int, asks: Sequence[Ask]) -> list[Ask]:
        if not asks:
            return []
        won = self.store.ask(epoch, asks)
        asked = [ask for ask in asks if ask.task_id in won]
        until = time.monotonic() + self.conf.yield_grace_s + MAX_HOLD_S
        for ask in asked:
            self._held[ask.task_id] = _Held(ask.lets_by, ask.ahead, until)
            log.info("task %s is asked to make room (%s)", ask.task_id, ask.outcome.name.lower())
        self._tell_nodes({ask.node_id for ask in asked})
        return asked

    def _serve(self, snapshot: Snapshot, plan: Plan) -> None:
        """Under round robin: note the cycle each line has come to."""
        if not plan.decisions or not self.store.slicing():
            return
        started = {decision.task_id for decision in plan.decisions}
        for line in snapshot.lines:
            order: Any = self.store.order_of(line)
            if not hasattr(order, "level_of"):
                continue
            levels = [order.level_of(task.rank) for task in line.heads if task.task_id in started]
            level = max(levels, default=0)
            if level > self._serving.get(line.line_id, 0):
                self._serving[line.line_id] = level
                self.store.serve(line.line_id, level)
