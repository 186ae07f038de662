"""Drains a node: tasks not begun go back at once, tasks with checkpoints yield, the others may finish."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import redis

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.core.work import Changes
from scheduler_ext.dispatch.queue_manager import QueueManager
from scheduler_ext.ports import NodeStore, WorkStore
from scheduler_ext.worker.agent.child_monitor import Watch
from scheduler_ext.worker.agent.scripts import ScriptRun

log = logging.getLogger(__name__)

POLL_S = 0.1
SETTLE_S = 5.0
"""Within this many seconds what was killed is dead and its account settled."""


@dataclass(frozen=True, slots=True)
class Draining:
    """One node's way out of service, for as long as an administrator says or for good."""

    conf: SchedulerConf
    node_id: int
    work: WorkStore
    nodes: NodeStore
    queues: QueueManager
    watch: Watch
    scripts: Mapping[tuple[str, int], ScriptRun]
    """The tasks that run now."""
    ledger: Callable[..., Awaitable[Any]]
    """Makes a ledger call; repeats it while the database is away."""
    publish: Callable[[Changes], None]

    def busy(self) -> bool:
        """Whether anything runs here or waits to be recorded."""
        return bool(self.scripts or self.watch.busy())

    async def begin(self) -> None:
        """Take nothing new, ask tasks that save checkpoints to yield, hand back what has not begun."""
        await self.ledger(self.nodes.set_draining, self.node_id)
        await self.give_back()

    async def give_back(self) -> None:
        """Hand back the claims in the node's queues or on their way there: one may have been under way."""
        try:
            await asyncio.to_thread(self.queues.clear, self.node_id)
        except redis.RedisError as error:
            log.warning("Redis is away: %s", error)
        held = await self.ledger(self.work.held, self.node_id)
        queued = [(task_id, fence) for task_id, fence, state in held if state == TaskState.QUEUED]
        if queued:
            reason = "handed back: its node drains"
            back = await self.ledger(self.work.hand_back, self.node_id, queued, running=False, reason=reason)
            await asyncio.to_thread(self.publish, back)

    async def finish(self) -> None:
        """Wait for what runs during the grace; then end the rest, which runs again elsewhere."""
        await self._until_idle(self.conf.drain_grace_s)
        if self.busy():
            log.warning("what still runs after %g s is ended, and runs again", self.conf.drain_grace_s)
            self.watch.ending = True
            for run in list(self.scripts.values()):
                run.stop(Outcome.PREEMPTED)
            await self._until_idle(self.conf.cancel_grace_s + 1.0)
        if self.busy():
            await self.ledger(self.watch.end_all)
            await self._until_idle(SETTLE_S)
        await self.give_back()

    async def _until_idle(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while self.busy() and time.monotonic() < ends:
            await asyncio.sleep(POLL_S)
            await self.give_back()
