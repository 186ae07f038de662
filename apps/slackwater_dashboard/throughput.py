"""How many attempts ended in the last minutes, without an index on the time they ended.

Attempts are written as they end, so their row numbers rise with time. The first row of each interval is found by
bisection over the primary key, once: an interval that has passed never changes. Between two such rows few attempts
are counted, many are told by the difference of their numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from scheduler_ext.core.sql import named
from slackwater_tasks.ledger.connection import fetch_all, fetch_value

INTERVAL_S = 10
INTERVALS = 30
COUNTED = 2_000
"""Rows between two boundaries up to which they are counted, with their outcomes."""
KEPT = 4 * INTERVALS

NEWEST = "SELECT id FROM slackwater_tasks_attempt ORDER BY id DESC LIMIT 1"
OLDEST = "SELECT id FROM slackwater_tasks_attempt ORDER BY id LIMIT 1"
AT_OR_AFTER = """
SELECT id, extract(epoch FROM finished_at)::float8 FROM slackwater_tasks_attempt WHERE id >= %s ORDER BY id LIMIT 1
"""
COUNT = named("""
SELECT count(*), count(*) FILTER (WHERE outcome NOT IN (:outcome.SUCCEEDED, :outcome.RETRY, :outcome.CANCELLED,
    :outcome.HANDED_BACK, :outcome.YIELDED)) FROM slackwater_tasks_attempt WHERE id >= %s AND id < %s
""")


class Throughput:
    """Remembers where intervals began. One per process; losing it costs a few milliseconds."""

    def __init__(self) -> None:
        self._first: OrderedDict[int, int] = OrderedDict()
        self._passed: dict[int, tuple[int, int | None]] = {}

    def series(self, now: float) -> list[dict[str, Any]]:
        """The last intervals, oldest first: when each began, how many attempts ended, how many of them badly.

        ``now`` is the database's time in seconds of the Unix epoch. ``bad`` is ``None`` where they were too many
        to be looked at. The newest interval is the one that is still running.
        """
        newest = fetch_value(NEWEST)
        last = int(now // INTERVAL_S)
        slots = range(last - INTERVALS + 1, last + 1)
        if newest is None:
            return [{"at": slot * INTERVAL_S, "ended": 0, "bad": 0} for slot in slots]
        end = newest + 1
        found: list[dict[str, Any]] = []
        for slot in reversed(slots):
            first = self._boundary(slot, end, settled=slot < last)
            ended, bad = self._count(slot, first, end, passed=slot < last - 1)
            found.append({"at": slot * INTERVAL_S, "ended": ended, "bad": bad})
            end = first
        return found[::-1]

    def _boundary(self, slot: int, end: int, *, settled: bool) -> int:
        """The number of the first attempt that ended in or after an interval; ``end`` when there is none."""
        known = self._first.get(slot)
        if known is not None:
            return min(known, end)
        found = self._bisect(slot * INTERVAL_S, end)
        # A row may still come in late for the interval before; one interval of patience is enough for that.
        if settled:
            self._first[slot] = found
            while len(self._first) > KEPT:
                self._passed.pop(self._first.popitem(last=False)[0], None)
        return found

    @staticmethod
    def _bisect(moment: float, end: int) -> int:
        oldest = fetch_value(OLDEST)
        low = end if oldest is None else oldest
        # Gallop back from the end: the interval asked for lies near it.
        step = 1_024
        high = end
        while end - step > low:
            rows = fetch_all(AT_OR_AFTER, (end - step,))
            if not rows or rows[0][1] >= moment:
                high = end - step
                step *= 4
                continue
            low = end - step
            break
        while low < high:
            middle = (low + high) // 2
            rows = fetch_all(AT_OR_AFTER, (middle,))
            if not rows or rows[0][1] >= moment:
                high = middle
            else:
                low = rows[0][0] + 1
        return min(low, end)

    def _count(self, slot: int, first: int, end: int, *, passed: bool) -> tuple[int, int | None]:
        if slot in self._passed:
            return self._passed[slot]
        answer: tuple[int, int | None]
        if end <= first:
            answer = (0, 0)
        elif end - first > COUNTED:
            answer = (end - first, None)
        else:
            [answer] = fetch_all(COUNT, (first, end))
        if passed and slot in self._first:
            self._passed[slot] = answer
        return answer
