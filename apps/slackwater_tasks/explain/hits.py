"""Whether forecasts held: those shown are noted, checked against what happened, and their intervals widened by it.

Each side of the interval is stretched by a factor of its cell, which a miss on that side raises and everything else lowers,
towards one miss in ten on each side whatever the model gets wrong: adaptive conformal inference (I. Gibbs, E. Candès, NeurIPS
2021), with the width in place of the level. It lags behind bursts and pauses, so what the record lacks is made good: the more
misses it has, the fewer are aimed at (the quantile tracker with an integral, A. Angelopoulos, E. Candès, R. Tibshirani,
NeurIPS 2023).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import DatabaseError, transaction

from scheduler_ext.core.errors import first_line
from scheduler_ext.core.sql import named
from slackwater_tasks.ledger.connection import execute, fetch_all

log = logging.getLogger(__name__)

MAX_OPEN = 5_000
"""Forecasts of a cell that wait to be checked; what is shown beyond them is not checked."""
MISSES = 0.095
"""The part that is to miss on each side: a little less than one in ten, as every burst begins with some."""
GAIN = 3.0
"""For each part that the record has missed beyond that, so much less is aimed at, and the other way."""
FEWEST, MOST = 0.02, 0.18
"""No less and no more is aimed at."""
UNSURE = 20
"""So many checks the aim counts in the record: the first few say little."""
STEP = 0.2
"""A miss raises the logarithm of its side's factor by this, times 1 - aim; no miss lowers it by this times the aim."""
MOST_AT_ONCE = 5.0
"""No batch moves a factor by more than so many misses do: they were all shown with the same one."""
NARROWEST, WIDEST = 0.2, 30.0
KEPT = 0.998
"""Each that is checked leaves so much of those before it: the record is of about the last five hundred."""
GRAIN_S = 0.2
GRAIN_PART = 0.01
MOST_GRAIN_S = 10.0
"""A side that has no width of its own is taken to have this: so much, and this part of the wait, up to that."""

# The first that was shown stays: were the newest kept, asking again just before the start would make every one a hit.
SHOWN = """
INSERT INTO slackwater_tasks_forecast (task_id, cell, fence, earliest, latest)
SELECT %(id)s, %(cell)s, %(fence)s, %(earliest)s, %(latest)s
WHERE (SELECT count(*) FROM (SELECT 1 FROM slackwater_tasks_forecast WHERE cell = %(cell)s LIMIT %(most)s) x) < %(most)s
ON CONFLICT DO NOTHING
"""
RECORDS = "SELECT cell, hits, early, late, early_factor, late_factor FROM slackwater_tasks_forecastrecord"
# Those of a batch have one start in the live row, and each its own in the attempt. What is noted may come a moment later.
CHECK = named("""
WITH judged AS (
    SELECT f.task_id, CASE
        WHEN s.at < f.earliest THEN 'early' WHEN s.at <= f.latest THEN 'hits' WHEN s.at > f.latest THEN 'late'
        WHEN l.task_id IS NULL THEN 'gone' WHEN l.state <> :state.RUNNING AND f.latest < clock_timestamp() - interval '2 s'
        THEN 'late' END AS verdict
    FROM slackwater_tasks_forecast f LEFT JOIN slackwater_tasks_livetask l ON l.task_id = f.task_id
    LEFT JOIN LATERAL (SELECT coalesce(
        (SELECT a.started_at FROM slackwater_tasks_attempt a WHERE a.task_id = f.task_id AND a.fence > f.fence
            ORDER BY a.fence LIMIT 1),
        CASE WHEN l.state = :state.RUNNING AND l.batch <= 1 THEN l.started_at END) AS at) s ON true)
DELETE FROM slackwater_tasks_forecast f USING (SELECT * FROM judged WHERE verdict IS NOT NULL LIMIT %s) j
WHERE f.task_id = j.task_id RETURNING f.cell, j.verdict
""")
LOCKED = RECORDS + " WHERE cell = %s FOR UPDATE"
NEW = "INSERT INTO slackwater_tasks_forecastrecord (cell) VALUES (%s) ON CONFLICT DO NOTHING"
KEEP = """
UPDATE slackwater_tasks_forecastrecord SET hits = %s, early = %s, late = %s, early_factor = %s, late_factor = %s
WHERE cell = %s
"""


@dataclass(frozen=True, slots=True)
class Record:
    """How a cell's forecasts have held lately."""

    hits: float = 0.0
    early: float = 0.0
    late: float = 0.0
    early_factor: float = 1.0
    late_factor: float = 1.0

    @property
    def checked(self) -> int:
        """How many the rate rests on."""
        return round(self.hits + self.early + self.late)

    @property
    def hit_rate(self) -> float | None:
        """The part that lay inside its interval; ``None`` before any was checked."""
        return round(self.hits / (self.hits + self.early + self.late), 3) if self.checked else None

    def widened(self, low: float, likely: float, high: float, floor: float = 0.0) -> tuple[float, float, float]:
        """An interval (seconds from now) as the record asks for; nothing starts before ``floor``."""
        likely = max(likely, floor)
        grain = min(GRAIN_S + GRAIN_PART * likely, MOST_GRAIN_S)
        early, late = max(grain, likely - max(low, floor)), max(grain, high - likely)
        return max(floor, likely - self.early_factor * early), likely, likely + self.late_factor * late

    def after(self, hits: int, early: int, late: int) -> Record:
        """The record when so many more were checked."""
        count = hits + early + late
        kept = KEPT**count
        all_hits, all_early, all_late = self.hits * kept + hits, self.early * kept + early, self.late * kept + late
        checked = all_hits + all_early + all_late
        return Record(
            all_hits, all_early, all_late,
            _steered(self.early_factor, early, count, _aim(all_early, checked)),
            _steered(self.late_factor, late, count, _aim(all_late, checked)),
        )  # fmt: skip


def _aim(missed: float, of: float) -> float:
    """The part that is to miss next, with so much of the record missed."""
    beyond = (missed - MISSES * of) / (of + UNSURE)
    return max(FEWEST, min(MOST, MISSES - GAIN * beyond))


def _steered(factor: float, missed: int, of: int, aim: float) -> float:
    pull = max(-MOST_AT_ONCE, min(MOST_AT_ONCE, missed - aim * of))
    return min(WIDEST, max(NARROWEST, factor * math.exp(STEP * pull)))


def records() -> dict[str, Record]:
    """By cell."""
    return {cell: Record(*numbers) for cell, *numbers in fetch_all(RECORDS)}


def note_shown(task_id: UUID, cell: str, fence: int, start: dict[str, datetime]) -> None:
    """Note a forecast that is shown. One that cannot be noted (on a read replica, say) is shown all the same."""
    values = {"id": task_id, "cell": cell, "fence": fence, "most": MAX_OPEN}
    try:
        with transaction.atomic():
            execute(SHOWN, {**values, "earliest": start["earliest"], "latest": start["latest"]})
    except DatabaseError as error:
        log.info("a forecast is not noted: %s", first_line(error))


def check(conn: Any, most: int) -> int:
    """Compare forecasts with what happened, and steer the intervals to come; returns how many were settled."""
    settled: list[tuple[str, str]] = conn.execute(CHECK, (most,)).fetchall()
    for cell in sorted({cell for cell, verdict in settled if verdict != "gone"}):
        conn.execute(NEW, (cell,))
        _, *numbers = conn.execute(LOCKED, (cell,)).fetchone()
        record = Record(*numbers).after(*_counted(verdict for at, verdict in settled if at == cell))
        values = (record.hits, record.early, record.late, record.early_factor, record.late_factor, cell)
        conn.execute(KEEP, values)
    return len(settled)


def _counted(verdicts: Iterable[str]) -> tuple[int, int, int]:
    found = list(verdicts)
    return found.count("hits"), found.count("early"), found.count("late")
