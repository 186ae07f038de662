"""Pre-emption for starving pools, in a simulated run: who is ended so that a pool comes to its minimum
share."""

from __future__ import annotations

from typing import Final

from scheduler_ext.core.types import WorkKind
from scheduler_ext.policies.accounts import Account
from scheduler_ext.policies.incremental_tree import RunningTree
from scheduler_ext.policies.share.fair import Running, spared, victims
from scheduler_ext.round.node_account import Node
from scheduler_ext.simulation.model import Job

MICRO: Final = 1_000_000


class Preemptor:
    """Watches for pools that stay below their minimum share while they have work, and names tasks to end."""

    def __init__(self, chooser: RunningTree, starvation_s: int) -> None:
        self._chooser = chooser
        self._delay_us = starvation_s * MICRO
        self._since: dict[int, int] = {}
        self._running: dict[int, tuple[Node, dict[int, Job]]] = {}

    def started(self, job: Job) -> None:
        """A job now runs on its node."""
        node: Node = job.node
        self._running.setdefault(node.node_id, (node, {}))[1][job.index] = job

    def ended(self, job: Job) -> None:
        """It runs no more."""
        del self._running[job.node.node_id][1][job.index]

    def check(self, now: int, began_us: dict[int, int]) -> tuple[list[Job], int | None]:
        """Jobs to end now for one pool that has starved long enough, and when to look again."""
        starving = self._chooser.starving()
        self._since = {id(account): self._since.get(id(account), now) for account, _ in starving}
        alarm: int | None = None
        for account, vector in starving:
            due = self._since[id(account)] + self._delay_us
            if due > now:
                alarm = due if alarm is None else min(alarm, due)
                continue
            chosen = self._choose(account, vector, began_us)
            if chosen:
                return chosen, now
        return [], alarm

    def _choose(self, account: Account, vector: tuple[int, ...], began_us: dict[int, int]) -> list[Job]:
        """On the node where fewest must end."""
        best: list[Job] = []
        for node, jobs in self._running.values():
            candidates = [self._view(job, node, account, began_us) for job in jobs.values()]
            named = victims(vector, node.free, candidates, slots=node.room(WorkKind.PROCESS))
            if named and (not best or len(named) < len(best)):
                by_name = {str(job.index): job for job in jobs.values()}
                best = [by_name[name] for name in named]
        return best

    def _view(self, job: Job, node: Node, starving: Account, began_us: dict[int, int]) -> Running:
        assert job.line is not None
        return Running(
            task_id=str(job.index),
            node_id=node.node_id,
            vector=job.vector,
            priority=job.priority,
            started_at=began_us[job.index] / MICRO,
            idempotent=job.idempotent,
            above_share=spared(self._chooser.account_of(job.line), starving, job.vector),
        )
