"""Shortest task first, with a guard: arrival plus a multiple of the expected run time, up to a bound.

A task of expected run time E can be passed only by tasks that arrive less than ``weight * E`` after it, and less than
``most_s``, so it waits for a bounded amount of later work and nothing starves.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.places import SmallestFirst


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestFirst(SmallestFirst):
    """Smallest expected run time first among tasks that arrive close together."""

    name: str = "shortest_first"
    weight: int = 20
    """How many times its expected run time a task may be passed by later ones."""
    most_s: int = 14_400
    """For how long at most, however long it is expected to run."""

    def size_us(self, task: RankInput) -> int:
        """Its expected run time; the cap stands in while nothing is learnt."""
        return task.expected_us if task.expected_us is not None else task.cap_us
