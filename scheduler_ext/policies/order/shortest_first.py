"""Shortest task first, with a guard: arrival plus a multiple of the expected run time, up to a bound.

A task of expected run time E can be passed only by tasks that arrive less than ``weight * E`` after it, and less than
``most_s``, so it waits for a bounded amount of later work and nothing starves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.places import ahead, by_priority, number


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestFirst:
    """Smallest expected run time first among tasks that arrive close together."""

    by_run_time: ClassVar[bool] = True
    """It goes by learnt run times, so they are looked up for it."""
    name: str = "shortest_first"
    weight: int = 20
    """How many times its expected run time a task may be passed by later ones."""
    most_s: int = 14_400
    """For how long at most, however long it is expected to run."""

    def __post_init__(self) -> None:
        """Refuse what would not order by run time."""
        if self.most_s < 1:
            raise ConfigurationError("must be at least 1", field="most_s")
        if not 1 <= self.weight <= 1_000_000:
            raise ConfigurationError("must be from 1 to 1000000", field="weight")

    def rank(self, task: RankInput) -> tuple[int, int]:
        """Priority, then arrival + weight x expected run time, up to the bound; the cap stands in while nothing is
        learnt."""
        expected = task.expected_us if task.expected_us is not None else task.cap_us
        return by_priority(task.priority), number(
            task.arrived_us + min(self.weight * expected, self.most_s * 1_000_000) - ahead(task.path_us)
        )
