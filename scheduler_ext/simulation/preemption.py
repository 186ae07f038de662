"""Pre-emption for starving pools in a simulated run, by the same choice as the dispatcher's."""

from __future__ import annotations

from typing import Any, Final

from scheduler_ext.policies.incremental_tree import RunningTree
from scheduler_ext.preemption.starvation import Running, Starvation
from scheduler_ext.round.gate import Gate
from scheduler_ext.round.node_account import Node
from scheduler_ext.simulation.model import Job

MICRO: Final = 1_000_000


class Preemptor:
    """Knows what runs where, and names the jobs to end for a starving pool."""

    def __init__(self, chooser: RunningTree, gate: Gate, starvation_s: int) -> None:
        self._chooser = chooser
        self._gate = gate
        self._delay_us = starvation_s * MICRO
        self._starvation = Starvation()
        self._jobs: dict[int, dict[int, Job]] = {}

    def started(self, job: Job) -> None:
        self._jobs.setdefault(job.node.node_id, {})[job.index] = job

    def ended(self, job: Job) -> None:
        del self._jobs[job.node.node_id][job.index]

    def check(self, now: int, began_us: dict[int, int]) -> tuple[list[Job], Any, int | None]:
        """The jobs to end now for one pool that has starved long enough, the job that starts in their room, and when to
        look again."""

        def candidates(node: Node) -> list[Running]:
            return [
                Running(task=job, line=job.line, started_at=began_us[job.index] / MICRO, may_run_again=job.idempotent)
                for job in self._jobs.get(node.node_id, {}).values()
            ]

        room = self._starvation.make_room(self._chooser, self._gate, candidates, now=now, delay=self._delay_us)
        return room.tasks, room.head, None if room.look_at is None else int(room.look_at)
