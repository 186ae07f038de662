"""Turns priority and level into the group of a rank, which must fit 32 signed bits."""

from __future__ import annotations

from math import log2
from typing import Final

HIGHEST_PRIORITY: Final = 1000
"""Priorities are counted from -1000 to 1000; what lies outside counts as the nearest."""
LEVELS: Final = 1 << 20
"""Levels (or cycles) that are told apart."""
AHEAD: Final = 100
"""Steps for each doubling of a path: paths are told apart that differ by a hundredth."""
LARGEST_NUMBER: Final = (1 << 63) - 1


def by_priority(priority: int) -> int:
    """Group that puts higher priority first."""
    return -max(-HIGHEST_PRIORITY, min(HIGHEST_PRIORITY, priority))


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
    return max(-LARGEST_NUMBER, min(LARGEST_NUMBER, value))
