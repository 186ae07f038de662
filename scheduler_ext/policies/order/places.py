"""What orders share: priority and level as the group of a rank, which must fit 32 signed bits, and the guard of the small."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import ClassVar, Final

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.policies.base import RankInput

HIGHEST_PRIORITY: Final = 1000
"""Priorities count from -1000 to 1000; those outside count as the nearest."""
LEVELS: Final = 1 << 20
"""How many levels (or cycles) are told apart."""
AHEAD: Final = 100
"""Steps for each doubling of a path: paths that differ by a hundredth are told apart."""
LARGEST_NUMBER: Final = (1 << 63) - 1


def by_priority(priority: int) -> int:
    """Group that puts higher priority first."""
    if -HIGHEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        return -priority
    return -HIGHEST_PRIORITY if priority > 0 else HIGHEST_PRIORITY


def by_priority_then_level(priority: int, level: int) -> int:
    """Group that puts higher priority first and, inside one priority, fewer turns."""
    return by_priority(priority) * LEVELS + max(0, min(LEVELS - 1, level))


def ahead(path_us: int) -> int:
    """By how many microseconds a task of a graph counts as having arrived earlier, the more the longer its path is.

    At most a few thousand: among what arrived together, as the members of a workflow did, the longest path goes first.
    """
    return int(AHEAD * log2(1 + path_us)) if path_us > 0 else 0


def number(value: int) -> int:
    """``value`` kept within what the database's 64-bit column holds."""
    if -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        return value
    return LARGEST_NUMBER if value > 0 else -LARGEST_NUMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestFirst:
    """Smallest first, and who is large is passed only by what arrives soon enough after it: so nothing starves."""

    by_run_time: ClassVar[bool] = True
    """It goes by learnt run times, so they are looked up for it."""
    weight: int
    """How many times its size a task may be passed by later ones."""
    most_s: int
    """For how long at most."""

    def __post_init__(self) -> None:
        """Refuse what would not order by size."""
        if self.most_s < 1:
            raise ConfigurationError("must be at least 1", field="most_s")
        if not 1 <= self.weight <= 1_000_000:
            raise ConfigurationError("must be from 1 to 1000000", field="weight")

    def rank(self, task: RankInput) -> tuple[int, int]:
        """Priority, then arrival + weight x size, up to the bound; less what its path puts it ahead."""
        guard = min(self.weight * self.size_us(task), self.most_s * 1_000_000)
        return by_priority(task.priority), number(task.arrived_us + guard - ahead(task.path_us))

    def size_us(self, task: RankInput) -> int:
        """What it goes by."""
        raise NotImplementedError
