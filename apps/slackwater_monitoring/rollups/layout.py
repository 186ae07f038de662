"""What a row of figures holds, in which order, and of which spans of time rows are kept."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from scheduler_ext.core.states import FINAL, Outcome, TaskState


class Dimension(IntEnum):
    """What a row's key is."""

    ALL = 0
    TENANT = 1
    HANDLER = 2
    NODE = 3
    CATEGORY = 4
    SLOT = 5
    """A kind of slot: only what is sampled."""


class Place(IntEnum):
    """Where a single number stands; outcomes, final states and the three histograms follow these."""

    STARTED = 0
    """Attempts, in the span in which they began; known once they have ended."""
    LATE = 1
    """Of first starts, those after their task's latest start; and tasks that expired waiting."""
    DELAY_MS = 2
    QUEUE_MS = 3
    RUN_MS = 4
    SAMPLES = 5
    """How often queues and slots were looked at, in the rows of ``ALL``; elsewhere 0."""
    WAITING = 6
    """The sum of what waited each time."""
    USED_MILLI = 7
    """What the work in flight takes of its node's slots, at most all of them: what lies ahead there fills no more."""
    SLOTS_MILLI = 8
    RETRIED = 9
    """Attempts that were not the first of their task."""


EVER: Final = 0
KEPT_S: Final = {10: 3_600, 60: 86_400, 600: 8 * 86_400, 3_600: 35 * 86_400}
"""The spans in seconds, and for how long rows of each are kept. Rows of ``EVER`` stay while their key is in use."""
FINEST: Final = 10
MAX_KEYS: Final = 100
"""So many keys of a dimension have rows of their own; what belongs to others is added up under ``OTHERS``."""
PLACES_KEPT_FREE: Final = 10
OTHERS: Final = "(others)"
NONE: Final = "(none)"
SCRIPTS: Final = "(scripts)"
BOUNDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400,
)  # fmt: skip
"""Upper bounds of the histograms' buckets in seconds; one more holds what is longer."""
BOUNDS_US: Final = [round(bound * 1_000_000) for bound in BOUNDS]
BUCKETS: Final = len(BOUNDS) + 1
OUTCOMES: Final = len(Place)
STATES: Final = OUTCOMES + max(Outcome) + 1
DELAYS: Final = STATES + max(TaskState) + 1
"""From when a task was due (submitted, or its start time) to its first start."""
QUEUES: Final = DELAYS + BUCKETS
"""From an attempt's claim to its start."""
RUNS: Final = QUEUES + BUCKETS
LENGTH: Final = RUNS + BUCKETS
BAD: Final = frozenset({Outcome.FAILED, Outcome.CAP_EXCEEDED, Outcome.WORKER_LOST, Outcome.RESOURCE_EXCEEDED})
"""Outcomes that count as failures of an attempt."""
Numbers = Sequence[int]


def bucket(first: int, microseconds: int) -> int:
    """The place of the bucket for a time, of the histogram that begins at ``first``."""
    return first + bisect_left(BOUNDS_US, microseconds)


def histogram(numbers: Numbers, first: int) -> Numbers:
    return numbers[first : first + BUCKETS]


def ended(numbers: Numbers) -> int:
    """How many attempts ended."""
    return sum(numbers[OUTCOMES:STATES])


def failed(numbers: Numbers) -> int:
    """How many of these ended badly."""
    return sum(numbers[OUTCOMES + outcome] for outcome in BAD)


def finished(numbers: Numbers) -> dict[TaskState, int]:
    """How many tasks ended, by final state."""
    return {state: numbers[STATES + state] for state in sorted(FINAL)}


def quantile(counts: Numbers, part: float) -> float | None:
    """The time below which a part of a histogram lies, evenly within its bucket, as PromQL reads it."""
    rank = part * sum(counts)
    if not rank:
        return None
    for number, count in enumerate(counts[:-1]):
        if rank <= count:
            low = BOUNDS[number - 1] if number else 0.0
            return low + (BOUNDS[number] - low) * rank / count
        rank -= count
    return float(BOUNDS[-1])
