"""The work that a forecast runs forward: what waits and runs, how long each lasts, and what may come in meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final
from uuid import UUID

from scheduler_ext.core.run_times import Buckets, Quantiles, RunTime, bucket_of
from scheduler_ext.core.types import WorkKind
from slackwater_tasks.ledger.round_store import PgRoundStore

SHORTEST_S: Final = 10.0
LONGEST_S: Final = 600.0
"""Each future goes on as the last stretch did, over and over. Its length is drawn: each order of magnitude as likely."""
MOST: Final = 300
"""So many that came in lately are looked at, and so many come in one future."""
SOON_S: Final = 60.0
"""Clocks of submitters are so far ahead at most."""
# Ids tell the time of submission. Those that callers make (Celery's own) do not, and such work is not foreseen.
LATELY: Final = """
SELECT t.id::text, extract(epoch FROM clock_timestamp() - t.submitted_at)::float8, t.tenant_id, l.line_id, t.category,
       t.tier_id, t.handler, t.kind, t.priority, t.total_attempts = 1, t.cap_ms, t.delay_tolerance_ms
FROM slackwater_tasks_task t LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id
WHERE t.id >= %s AND t.id < %s AND t.start_at IS NULL ORDER BY t.id DESC LIMIT %s
"""
FIRST: Final = "SELECT id FROM slackwater_tasks_task ORDER BY id LIMIT 1"


class Spread:
    """The distribution of the run times of such tasks."""

    def __init__(self, learnt: RunTime, buckets: Buckets) -> None:
        """Where only the mean is known: from half of it to twice."""
        self.learnt = learnt
        self._known = Quantiles(buckets or {bucket_of(learnt.mean_us * 2 ** (n / 10)): 1.0 for n in range(-10, 11)})

    def left_us(self, ran_us: float, drawn: float) -> float:
        """How much longer a task runs that has run for ``ran_us``; ``drawn``, from 0 to 1, picks one possibility.

        One that has outrun all that was seen runs for up to twice as long again.
        """
        within = self._known.part_within(ran_us)
        return self._known.at(within + drawn * (1 - within)) - ran_us if within < 1 else 2 * drawn * ran_us


@dataclass(slots=True)
class Waiting:
    """One task of the simulated cell; times in seconds from now."""

    task_id: str
    tenant_id: int
    line_id: int
    handler: str
    rank: tuple[int, int] = (0, 0)
    arrives_s: float = 0.0
    """Before now, for what came in lately."""
    elapsed_s: float | None = None
    """Set for a task in flight."""
    mutex_key: str | None = None
    mutex_limit: int = 1
    priority: int = 0
    parents: Sequence[str] = ()
    rates: tuple[int, ...] = ()
    kind: WorkKind = WorkKind.PROCESS
    cap_s: float = 3600.0
    tolerance_s: float | None = None
    """From its arrival to its latest start, which may have passed."""
    spread: Spread | None = None
    """``None``: nothing is learnt of its run time."""


def lately(store: PgRoundStore, now: float) -> tuple[list[Waiting], float]:
    """What came in lately and may start; and for how long that is known, in seconds."""
    first, end = (UUID(int=int(at * 1000) << 80) for at in (now - LONGEST_S, now + SOON_S))
    known = store.reference
    ids = {name: handler_id for handler_id, (name, *_) in known.handlers.items()}
    plain = {(i.tenant_id, int(i.category), i.tier_id): n for n, i in known.lines.items()
             if i.labels is None and not i.workflow}  # fmt: skip
    rows = store.db.conn.execute(LATELY, (first, end, MOST)).fetchall()
    # Nothing is known of the time before the first task of all, nor of that before the last that were read.
    began = now - rows[-1][1] if len(rows) == MOST else _began(store)
    found = []
    for row in rows:
        task_id, age_s, tenant, line, category, tier, handler, kind, priority, by_itself, cap_ms, tolerance_ms = row
        line, handler_id = line or plain.get((tenant, category, tier)), ids.get(handler)
        if line not in known.lines or known.lines[line].paused or handler_id in known.paused:
            continue
        found.append(Waiting(
            task_id, tenant, line, handler, arrives_s=min(0.0, -age_s), priority=priority, cap_s=cap_ms / 1000,
            rates=store.rates.of(tenant, handler_id, None), kind=store.reference.kind_of(kind, handler_id, by_itself),
            tolerance_s=tolerance_ms / 1000,
        ))  # fmt: skip
    return found, min(LONGEST_S, max(SHORTEST_S, now - began))


def _began(store: PgRoundStore) -> float:
    """When the first task of all came."""
    row = store.db.conn.execute(FIRST).fetchone()
    return (row[0].int >> 80) / 1000 if row else 0.0


def again(seen: Sequence[Waiting], known_s: float, rng: Random, *, until_s: float) -> Iterator[Waiting]:
    """What comes in in one future: the last stretch of ``seen``, whose length is drawn, over and over."""
    stretch_s = SHORTEST_S * math.exp(rng.random() * math.log(known_s / SHORTEST_S))
    within = [each for each in seen if -each.arrives_s < stretch_s]
    left, begin_s = MOST if within else 0, 0.0
    while left > 0 and begin_s < until_s:
        for each in within:
            at_s = begin_s + stretch_s + each.arrives_s
            if at_s < until_s:
                left -= 1
                yield replace(each, task_id=f"later {left}", arrives_s=at_s)
        begin_s += stretch_s
