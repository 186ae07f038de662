"""The clock of a simulated run: ceiling windows that open and close, and execution rates.

The gate that refuses is the live one; here is only when it changes its answer. As live, what waits for a rate is parked
beside its line, and from each line as many go on as may start.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.ceiling_windows import next_change
from scheduler_ext.core.types import LineView
from scheduler_ext.round.gate import Gate
from scheduler_ext.simulation.model import Job, Trace

MICRO: Final = 1_000_000
IN_VAIN: Final = 256
"""The run ends after this many window changes that let nothing start: what waits would wait for ever."""


class Timers:
    """The timers of one run. Times are microseconds since it began."""

    def __init__(self, trace: Trace, gate: Gate, conf: SchedulerConf) -> None:
        self._gate = gate
        self._conf = conf
        self._begins_at = trace.begins_at
        self._limits = trace.limits
        self._back: list[tuple[int, int]] = []
        """When each counted start expires, and for which limit."""
        self._parked: dict[int, dict[int, tuple[LineView, list[tuple[tuple[int, int], int, Job]]]]] = {}
        """Parked jobs by limit and line, first in line first."""
        self._vain = 0
        self._turn: int | None = None
        for limit_id, limit in trace.limits.items():
            for age_us in limit.used_us:
                heappush(self._back, (max(1, limit.per_us - age_us), limit_id))
        if conf.ceiling_windows:
            self._look(0)

    @property
    def has_windows(self) -> bool:
        return self._turn is not None

    def due(self) -> int | None:
        """When something changes next; ``None`` when nothing will."""
        window = self._turn if self._vain < IN_VAIN else None
        back = self._back[0][0] if self._back else None
        return window if back is None else back if window is None else min(window, back)

    def follow(self, now: int) -> bool:
        """Advance to ``now``; True when something may start that could not before."""
        changed = False
        if self._turn is not None and self._turn <= now:
            self._look(now)
            self._vain += 1
            changed = True
        while self._back and self._back[0][0] <= now:
            self._gate.give_start(heappop(self._back)[1])
            changed = True
        return changed

    def _look(self, now: int) -> None:
        at = self._begins_at + now / MICRO
        self._gate.set_ceilings(self._conf, at)
        turn = next_change(self._conf.ceiling_windows, at)
        self._turn = None if turn is None else round((turn - self._begins_at) * MICRO)

    def started(self, job: Job, now: int) -> None:
        """Count the start of a job for the time frame of each of its limits."""
        self._vain = 0
        for limit_id in job.rates:
            heappush(self._back, (now + self._limits[limit_id].per_us, limit_id))

    def park(self, job: Job, line: LineView) -> None:
        """Park it beside its line, for whichever of its limits has least left."""
        limit_id = min(job.rates, key=self._gate.starts_left)
        lines = self._parked.setdefault(limit_id, {})
        heappush(lines.setdefault(line.line_id, (line, []))[1], (job.rank, job.index, job))

    def is_parked(self, job: Job) -> bool:
        return any(
            job.line is line and any(each is job for _, _, each in heap)
            for lines in self._parked.values()
            for line, heap in lines.values()
        )

    def going_on(self) -> Iterator[Job]:
        """The parked jobs whose limit allows a start again; they are parked no more."""
        for limit_id, lines in self._parked.items():
            count = self._gate.starts_left(limit_id)
            for line, heap in lines.values() if count > 0 else ():
                going = 0
                while heap and going < count:
                    job = heappop(heap)[2]
                    if job.line is line:  # else it has become urgent, and waits there
                        going += 1
                        yield job
