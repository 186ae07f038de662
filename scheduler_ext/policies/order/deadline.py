"""Deadline order: the shortest delay tolerance first; higher priority first."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.places import ahead, by_priority, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Earliest latest start first."""

    name: str = "deadline"
    default_tolerance_s: int = 86_400
    """A task without a latest start counts as one that may start this long after it arrived, so it cannot starve."""

    def __post_init__(self) -> None:
        if self.default_tolerance_s < 0:
            raise ConfigurationError("must not be negative", field="default_tolerance_s")

    def rank(self, task: RankInput) -> tuple[int, int]:
        latest = task.latest_start_us
        if latest is None:
            latest = task.arrived_us + self.default_tolerance_s * 1_000_000
        return by_priority(task.priority), number(latest - ahead(task.path_us))
