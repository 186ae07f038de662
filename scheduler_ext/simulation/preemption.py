"""Pre-emption for starving pools in a simulated run, by the same choice as the dispatcher's."""

from __future__ import annotations

from typing import Final

from scheduler_ext.policies.incremental_tree import RunningTree, Starving
from scheduler_ext.policies.share.fair import Running, spared
from scheduler_ext.preemption.starvation import Starvation
from scheduler_ext.round.node_account import Node
from scheduler_ext.simulation.model import Job

MICRO: Final = 1_000_000


class Preemptor:
    """Knows what runs where, and names the jobs to end for a starving pool."""

    def __init__(self, chooser: RunningTree, starvation_s: int) -> None:
        self._chooser = chooser
        self._delay_us = starvation_s * MICRO
        self._starvation = Starvation()
        self._nodes: dict[int, Node] = {}
        self._jobs: dict[int, dict[int, Job]] = {}

    def started(self, job: Job) -> None:
        node: Node = job.node
        self._nodes[node.node_id] = node
        self._jobs.setdefault(node.node_id, {})[job.index] = job

    def ended(self, job: Job) -> None:
        del self._jobs[job.node.node_id][job.index]

    def check(self, now: int, began_us: dict[int, int]) -> tuple[list[Job], int | None]:
        """The jobs to end now for one pool that has starved long enough, and when to look again."""

        def candidates(node: Node, need: Starving) -> list[Running]:
            return [self._view(job, need, began_us) for job in self._jobs[node.node_id].values()]

        nodes = self._nodes.values()
        room = self._starvation.make_room(self._chooser, nodes, candidates, now=now, delay=self._delay_us)
        running = {str(index): job for jobs in self._jobs.values() for index, job in jobs.items()} if room.tasks else {}
        return [running[name] for name in room.tasks], None if room.look_at is None else int(room.look_at)

    def _view(self, job: Job, need: Starving, began_us: dict[int, int]) -> Running:
        return Running(
            task_id=str(job.index),
            vector=job.vector,
            priority=job.priority,
            started_at=began_us[job.index] / MICRO,
            idempotent=job.idempotent,
            above_share=spared(self._chooser.account_of(job.line), need.account, job.kind, job.vector),
        )
