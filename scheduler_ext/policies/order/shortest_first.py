"""Shortest task first, with a guard: arrival plus a multiple of the expected run time.

A task of expected run time E can be passed only by tasks that arrive less than ``weight * E`` after it, so
it waits for a bounded amount of later work and nothing starves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.places import by_priority, number


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestFirst:
    """Smallest expected run time first among tasks that arrive close together."""

    by_run_time: ClassVar[bool] = True
    """It goes by learnt run times, so they are looked up for it."""
    name: str = "shortest_first"
    weight: int = 20
    """How many times its expected run time a task may be passed by later ones."""

    def __post_init__(self) -> None:
        """Refuse a weight that would not order by run time."""
        if not 1 <= self.weight <= 1_000_000:
            raise ConfigurationError("must be from 1 to 1000000", field="weight")

    def rank(self, task: RankInput) -> tuple[int, int]:
        """Priority, then arrival + weight x expected run time; the cap stands in while nothing is learnt."""
        expected = task.expected_us if task.expected_us is not None else task.cap_us
        return by_priority(task.priority), number(task.arrived_us + self.weight * expected)
