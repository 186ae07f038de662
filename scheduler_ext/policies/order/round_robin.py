"""Round robin: each task gets a slice in turn, in order of arrival; a newcomer joins the cycle that is being served."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.places import LEVELS, ahead, by_priority_then_level, number


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobin:
    """The level is the cycle: each slice moves a task to the next one, and a newcomer joins the one being served."""

    name: str = "round_robin"
    quantum_ms: int = 2000
    """Length of a slice."""

    def __post_init__(self) -> None:
        if self.quantum_ms < 1:
            raise ConfigurationError("must be at least 1", field="quantum_ms")

    def rank(self, task: RankInput) -> tuple[int, int]:
        """Priority and cycle, then arrival."""
        return by_priority_then_level(task.priority, task.level), number(task.arrived_us - ahead(task.path_us))

    def quantum_us(self, level: int) -> int:
        """The same slice in every cycle."""
        del level
        return self.quantum_ms * 1000

    def level_of(self, rank: tuple[int, int]) -> int:
        """The cycle a place belongs to."""
        return rank[0] % LEVELS
