"""Smallest workflow first, with a guard: arrival plus a multiple of the work it brought, up to a bound.

A workflow of work W (the run times of its tasks, as learnt) can be passed only by what arrives less than ``weight * W``
after it, and less than ``most_s``: so it waits for a bounded amount of later work and nothing starves. Inside it the
longest path goes first, as under every order. A task of no workflow is one by itself.

The work counts that was left when it was submitted. Counted down as tasks end it gains nothing under the guard: on mixes
of recorded workflows mean completion was 5 % worse and the 95th percentile too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.places import ahead, by_priority, number


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestWorkflow:
    """Smallest workflow first among those that arrive close together."""

    by_run_time: ClassVar[bool] = True
    """It goes by learnt run times, so they are looked up for it."""
    name: str = "workflow"
    weight: int = 1
    """How many times its work a workflow may be passed by later ones."""
    most_s: int = 200
    """For how long at most: about twice the mean work of a workflow holds the 95th percentile near that of ``fifo``."""

    def __post_init__(self) -> None:
        if self.most_s < 1:
            raise ConfigurationError("must be at least 1", field="most_s")
        if not 1 <= self.weight <= 1_000_000:
            raise ConfigurationError("must be from 1 to 1000000", field="weight")

    def rank(self, task: RankInput) -> tuple[int, int]:
        """Priority, then arrival + weight x work, up to the bound; less what its path puts it ahead."""
        work = task.work_us or task.expected_us or task.cap_us
        guarded = min(self.weight * work, self.most_s * 1_000_000)
        return by_priority(task.priority), number(task.arrived_us + guarded - ahead(task.path_us))
