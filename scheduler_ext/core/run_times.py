"""Run times as counts in logarithmic buckets: quantiles that are wrong by 5 % at most, and that can be merged.

The buckets are those of DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees", VLDB 2019): bucket ``b`` holds what lies in (GAMMA^(b-1), GAMMA^b] microseconds.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate
from math import ceil, log
from typing import Final

ACCURACY: Final = 0.05
"""A quantile is this wrong at most, as a part of it."""
GAMMA: Final = (1 + ACCURACY) / (1 - ACCURACY)
MEMORY: Final = 1000
"""What was learnt before counts as so many runs at most beside what is learnt now."""
LONG: Final = 0.9
"""The quantile by which a run is taken to have ended where another relies on it."""
_LOG_GAMMA: Final = log(GAMMA)
_DIGITS: Final = re.compile(r"\d+")

Buckets = Mapping[int, float]


def bucket_of(us: float) -> int:
    """The bucket of a run time in microseconds; what is shorter than one counts as one."""
    return ceil(log(us) / _LOG_GAMMA) if us > 1 else 0


def middle_of(bucket: int) -> float:
    """The run time that stands for a bucket: within ``ACCURACY`` of all in it."""
    return float(2 * GAMMA**bucket / (1 + GAMMA))


def merged(before: Buckets, new: Buckets) -> dict[int, float]:
    """Both together; the older part forgets, so that it weighs no more than ``MEMORY`` runs."""
    keep = min(1.0, MEMORY / (sum(before.values()) or 1.0))
    both = {bucket: count * keep for bucket, count in before.items()}
    for bucket, count in new.items():
        both[bucket] = both.get(bucket, 0.0) + count
    return both


class Quantiles:
    """The quantiles of what was counted, at least one run."""

    __slots__ = ("_places", "_sums", "mean_us")

    def __init__(self, buckets: Buckets) -> None:
        found = sorted((bucket, count) for bucket, count in buckets.items() if count > 0)
        self._places = [middle_of(bucket) for bucket, _ in found]
        self._sums = list(accumulate(count for _, count in found))
        products = (place * count for place, (_, count) in zip(self._places, found, strict=True))
        self.mean_us = sum(products) / self._sums[-1]

    def at(self, part: float) -> float:
        """The run time (microseconds) that ``part`` of the runs do not exceed."""
        place = bisect_left(self._sums, part * self._sums[-1])
        return self._places[min(place, len(self._places) - 1)]

    def part_within(self, us: float) -> float:
        """Which part of the runs did not exceed ``us``."""
        place = bisect_right(self._places, us)
        return self._sums[place - 1] / self._sums[-1] if place else 0.0


def pattern_of(name: str) -> str:
    """A task's name with each number as ``#``: what runs every night under another date is one thing."""
    return _DIGITS.sub("#", name)


def script_keys(sha256: str, path: str, name: str) -> list[str]:
    """By what the run times of a script are learnt: itself, and the pattern of its name."""
    keys = [f"script:{(sha256 or path)[:64]}"]
    return [*keys, f"name:{pattern_of(name)}"[:200]] if name else keys
