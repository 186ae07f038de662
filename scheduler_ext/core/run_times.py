"""Run times as counts in logarithmic buckets: quantiles that are wrong by 5 % at most, and that can be merged.

The buckets are those of DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees", VLDB 2019): bucket ``b`` holds what lies in (GAMMA^(b-1), GAMMA^b] microseconds.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil, log
from typing import Final, NamedTuple

ACCURACY: Final = 0.05
"""The largest error of a quantile, as a part of its value."""
GAMMA: Final = (1 + ACCURACY) / (1 - ACCURACY)
MEMORY: Final = 1000
"""Older runs count as at most this many beside the newer ones."""
LONG: Final = 0.9
"""The quantile taken as the end of a run where another task relies on it."""
LEARNT_FROM: Final = 5
"""A run time counts as learnt after this many runs."""
TENANTS: Final = 3
"""What a tenant is shown rests on a handler's run times over all tenants from so many tenants on."""
_LOG_GAMMA: Final = log(GAMMA)
OF_SCRIPTS: Final = ("script:", "name:")
"""What the keys begin with that are not handlers."""
VARYING: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?=[a-f]{0,7}[0-9])[0-9a-f]{8,}|[0-9]+"
"""What varies in the names of tasks that are alike: UUIDs, hashes in hexadecimal digits, and numbers.

A regular expression that PostgreSQL reads as Python does, so that a statement finds the same patterns.
"""
_VARYING: Final = re.compile(VARYING)

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
    """A task's name with ``#`` for what varies, so that a nightly task whose name has a date or an id is one pattern."""
    return _VARYING.sub("#", name)


def script_keys(sha256: str, path: str, name: str) -> list[str]:
    """The keys under which a script's run times are learnt: its content, and the pattern of its name."""
    keys = [f"script:{(sha256 or path)[:64]}"]
    return [*keys, f"name:{pattern_of(name)}"[:200]] if name else keys


class RunTime(NamedTuple):
    """How long a task is expected to run, in microseconds."""

    mean_us: int
    long_us: int
    """What nine in ten runs do not exceed: the end of a run where another task relies on it."""

    def within(self, cap_us: int) -> RunTime:
        """The same of a task that ends at its cap."""
        return (
            self
            if self.long_us <= cap_us and self.mean_us <= cap_us
            else RunTime(*(min(each, cap_us) for each in self))
        )


class RunTimes:
    """What is learnt of run times, and which of it holds for a task: the same for all who ask, live or simulated."""

    __slots__ = ("_least", "_own", "_sums")

    def __init__(self, rows: Iterable[tuple[int, str, float, float]] = (), *, least: int = 1) -> None:
        """``rows``: see :meth:`read`; ``least``: of how many tenants a handler's run times must be known to serve others."""
        self._least = least
        self._own: dict[tuple[int, str], RunTime] = {}
        """By tenant and key."""
        self._sums: dict[str, tuple[int, int, int]] = {}
        """Of each handler over all tenants: the sums of the means and of the long ones, and how many tenants."""
        self.read(rows)

    def __bool__(self) -> bool:
        return bool(self._own)

    def read(self, rows: Iterable[tuple[int, str, float, float]]) -> None:
        """Take over (tenant, key, mean, what nine in ten do not exceed), each learnt from enough runs."""
        for tenant, key, mean_us, long_us in rows:
            self.put(tenant, key, RunTime(max(1, int(mean_us)), max(1, int(long_us))))

    def put(self, tenant: int, key: str, found: RunTime) -> None:
        """Take over what is learnt of a tenant under a key."""
        mean_us, long_us = found
        count = 1
        if (before := self._own.get((tenant, key))) is not None:
            mean_us, long_us, count = mean_us - before.mean_us, long_us - before.long_us, 0
        self._own[tenant, key] = found
        if not key.startswith(OF_SCRIPTS):  # no script is another tenant's
            means, longs, tenants = self._sums.get(key, (0, 0, 0))
            self._sums[key] = means + mean_us, longs + long_us, tenants + count

    def of(self, tenant: int, keys: Sequence[str]) -> RunTime | None:
        """What a tenant's task with these keys is expected to take; ``None`` while nothing is learnt.

        The tenant's own under the first key that is known; else that of the handler over all tenants, each counting alike.
        """
        for key in keys:
            if (own := self._own.get((tenant, key))) is not None:
                return own
        for key in keys:
            means, longs, tenants = self._sums.get(key, (0, 0, 0))
            if tenants >= self._least:
                return RunTime(means // tenants, longs // tenants)
        return None

    def whose(self, tenant: int, keys: Sequence[str]) -> tuple[int | None, str] | None:
        """The tenant and the key of that; ``None`` in place of the tenant: all of them."""
        own = next((key for key in keys if (tenant, key) in self._own), None)
        if own is not None:
            return tenant, own
        common = next((key for key in keys if self._sums.get(key, (0, 0, 0))[2] >= self._least), None)
        return None if common is None else (None, common)


def remaining_s(ran_s: float | None, expected_s: float | None, cap_s: float) -> float:
    """How much longer a task is expected to run that has run for ``ran_s`` (``None``: it has not begun).

    One that has outrun its expectation is expected to run for as long again; none runs beyond its cap.
    """
    ran = max(0.0, ran_s or 0.0)
    left = max(0.0, cap_s - ran)
    if expected_s is None:
        return left
    return min(left, expected_s - ran if ran < expected_s else ran)
