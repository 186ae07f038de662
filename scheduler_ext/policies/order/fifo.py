"""First in, first out: by arrival; higher priority first."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.places import ahead, by_priority, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """The order of submission. A retry, a pause or a hand-back never moves a task back."""

    name: str = "fifo"

    def rank(self, task: RankInput) -> tuple[int, int]:
        path_us = task.path_us
        return by_priority(task.priority), number(task.arrived_us - ahead(path_us) if path_us else task.arrived_us)
