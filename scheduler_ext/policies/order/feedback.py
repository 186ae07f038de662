"""Multi-level feedback queue: slices grow by level; a task that uses up its slice sinks, one that waits long rises.

A task sinks by one level with each slice it uses up. In place of a sweep that lifts what waits, a level counts as a
fixed delay, ``boost_ms``: a task is passed only by tasks that arrive less than its level times that delay after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.base import RankInput
from scheduler_ext.policies.order.places import ahead, by_priority, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Levels with growing slices."""

    name: str = "feedback"
    quanta_ms: Sequence[int] = (1000, 2000, 4000, 8000, 16000)
    """The slice at each level; the last one holds for all further levels."""
    boost_ms: int = 60_000
    """The delay by which a task counts as arrived later, for each level."""

    def __post_init__(self) -> None:
        quanta: Any = self.quanta_ms
        if not isinstance(quanta, (list, tuple)) or not all(type(each) is int for each in quanta) or not quanta:
            raise ConfigurationError("must be a list of whole numbers", field="quanta_ms")
        if quanta[0] < 1 or list(quanta) != sorted(quanta):
            raise ConfigurationError("must be positive and never shrink", field="quanta_ms")
        if self.boost_ms < 1:
            raise ConfigurationError("must be at least 1", field="boost_ms")

    def rank(self, task: RankInput) -> tuple[int, int]:
        """Priority, then arrival with a delay for each turn used."""
        return by_priority(task.priority), number(
            task.arrived_us + task.level * self.boost_ms * 1000 - ahead(task.path_us)
        )

    def quantum_us(self, level: int) -> int:
        return self.quanta_ms[min(level, len(self.quanta_ms) - 1)] * 1000
