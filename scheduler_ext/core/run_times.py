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
"""The largest error of a quantile, as a part of its value."""
GAMMA: Final = (1 + ACCURACY) / (1 - ACCURACY)
MEMORY: Final = 1000
"""Older runs count as at most this many beside the newer ones."""
LONG: Final = 0.9
"""The quantile taken as the end of a run where another task relies on it."""
_LOG_GAMMA: Final = log(GAMMA)
_DIGITS: Final = re.compile(r"\d+")

Buckets = Mapping[int, float]


def bucket_of(us: float) -> int:
    """The bucket of a run time in microseconds; run times below one count as one."""
    return ceil(log(us) / _LOG_GAMMA) if us > 1 else 0


def middle_of(bucket: int) -> float:
    """The run time a bucket stands for: within ``ACCURACY`` of every run in it."""
    return float(2 * GAMMA**bucket / (1 + GAMMA))


def merged(before: Buckets, new: Buckets) -> dict[int, float]:
    """Merge older and newer counts; the older part is scaled down to at most ``MEMORY`` runs."""
    keep = min(1.0, MEMORY / (sum(before.values()) or 1.0))
    both = {bucket: count * keep for bucket, count in before.items()}
    for bucket, count in new.items():
        both[bucket] = both.get(bucket, 0.0) + count
    return both


class Quantiles:
    """The quantiles of the counted runs, of which there must be at least one."""

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
        """The part of the runs that did not exceed ``us``."""
        place = bisect_right(self._places, us)
        return self._sums[place - 1] / self._sums[-1] if place else 0.0


def pattern_of(name: str) -> str:
    """A task's name with each number as ``#``, so that a nightly task whose name has a date is one pattern."""
    return _DIGITS.sub("#", name)


def script_keys(sha256: str, path: str, name: str) -> list[str]:
    """The keys under which a script's run times are learnt: its content, and the pattern of its name."""
    keys = [f"script:{(sha256 or path)[:64]}"]
    return [*keys, f"name:{pattern_of(name)}"[:200]] if name else keys
