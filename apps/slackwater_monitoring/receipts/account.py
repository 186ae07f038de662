"""From attempts and ends to receipts and usage: one account, so that they agree to the last millionth.

An attempt is charged by the terms of its task's submission. Prices are exact; of what ended together in one day, tier and
category the sum is rounded, and each receipt has its part of it: so nothing is lost where runs are short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import FINAL, Category, Outcome, TaskState
from slackwater_monitoring.receipts.starts import Starts
from slackwater_monitoring.receipts.terms import Book, Terms
from slackwater_tasks.field_kinds import seconds
from slackwater_tasks.read.tasks import word

UNIT: Final = 3_600_000 * 1_000
"""A millionth, in the parts in which prices are exact: milliseconds of an hour, thousandths of a price."""
# Whether the task begins with it. A later turn of an attempt that made room has its number, and a fence above another's.
FIRST = """(a.number = 1 AND (a.fence = 1 OR NOT EXISTS (
    SELECT 1 FROM slackwater_tasks_attempt b WHERE b.task_id = a.task_id AND b.fence < a.fence)))"""
ATTEMPTS = f"""
SELECT a.tenant_id, a.task_id::text, n.cell, t.category, t.tier_id, r.slug, r.cpu_milli, r.memory_mb, r.disk_mb, t.submitted_at,
    coalesce(t.start_at, t.submitted_at), coalesce(l.latest_start, t.latest_start), a.finished_at,
    CASE WHEN t.finished_at = a.finished_at THEN t.state END, a.number, a.started_at, a.outcome, a.cpu_ms, a.peak_memory_mb,
    a.peak_disk_mb, t.handler, a.queued_at, d.name, {FIRST}
FROM slackwater_tasks_attempt a JOIN slackwater_tasks_task t ON t.id = a.task_id
JOIN slackwater_resources_tier r ON r.id = t.tier_id JOIN slackwater_tenants_tenant n ON n.id = a.tenant_id
LEFT JOIN slackwater_tasks_livetask l ON l.task_id = a.task_id LEFT JOIN slackwater_resources_node d ON d.id = a.node_id
WHERE a.id > %(after)s AND a.id <= %(to)s ORDER BY a.id
"""  # noqa: S608 - a fragment of ours
# What ended while it waited has no attempt: its history tells of it.
ENDS = named("""
SELECT e.tenant_id, e.task_id::text, n.cell, t.category, t.tier_id, r.slug, r.cpu_milli, r.memory_mb, r.disk_mb, t.submitted_at,
    coalesce(t.start_at, t.submitted_at), t.latest_start, e.at, e.to_state, NULL, NULL, NULL, NULL, NULL, NULL, t.handler,
    NULL, NULL, false
FROM slackwater_tasks_taskevent e JOIN slackwater_tasks_task t ON t.id = e.task_id
JOIN slackwater_resources_tier r ON r.id = t.tier_id JOIN slackwater_tenants_tenant n ON n.id = e.tenant_id
WHERE e.id > %(events_after)s AND e.id <= %(events_to)s AND e.to_state = ANY(%(final)s) AND e.from_state IS NOT NULL
    AND e.from_state <> :state.RUNNING ORDER BY e.id
""")


class Ended(NamedTuple):
    """An attempt that ended, or a task that ended without one."""

    tenant: int
    task_id: str
    cell: str
    category: int
    tier_id: int
    tier: str
    cpu_milli: int
    memory_mb: int
    disk_mb: int
    submitted_at: datetime
    due_at: datetime
    latest_start: datetime | None
    at: datetime
    state: int | None
    number: int | None
    started_at: datetime | None
    outcome: int | None
    cpu_ms: int | None
    peak_memory_mb: int | None
    peak_disk_mb: int | None
    handler: str
    queued_at: datetime | None
    node: str | None
    first: bool
    """Whether its task begins with it: it is no retry, and no later turn."""

    @property
    def run_ms(self) -> int:
        """For how long resources were held."""
        if self.started_at is None:
            return 0
        return max(0, round((self.at - self.started_at).total_seconds() * 1000))


UsageKey = tuple[int, Any, str, int]


class Account:
    """What is accounted at once."""

    def __init__(self, conn: Any, marks: dict[str, int], starts: Starts) -> None:
        rows = [Ended(*row) for row in conn.execute(ATTEMPTS, marks).fetchall()]
        ends = conn.execute(ENDS, {**marks, "final": [int(state) for state in FINAL]}).fetchall()
        starts.look(conn, marks["after"], marks["to"])
        for row in rows:
            starts.add(row.tenant, row.cell, row.category, row.started_at)
        self.rows = rows + [Ended(*row) for row in ends]
        self.usage: dict[UsageKey, list[int]] = defaultdict(lambda: [0] * 5)
        """By tenant, day, tier and category: attempts, succeeded, run and CPU in milliseconds, price in millionths."""
        self._starts = starts
        self._exact: dict[UsageKey, int] = defaultdict(int)

    def receipts(self, conn: Any) -> Iterator[tuple[int, datetime, dict[str, Any]]]:
        """Whose it is, when it ended, and its receipt without a number."""
        book = Book(conn, sorted({row.tenant for row in self.rows}))
        for row in self.rows:
            terms = book.of(row.tenant, row.submitted_at)
            yield row.tenant, row.at, _receipt(row, terms, self._charge(row, terms), self._before(row))

    def _charge(self, row: Ended, terms: Terms) -> int:
        """What an attempt costs: its part of the rounded sum of those before it and itself."""
        if row.number is None:
            return 0
        key, run_ms = (row.tenant, row.at.astimezone(UTC).date(), row.tier, row.category), row.run_ms
        before = self._exact[key]
        exact = terms.attempt_micros * UNIT + run_ms * terms.hour_micros(row.tier_id, row.category)
        self._exact[key] = before + exact
        charged = _rounded(before + exact) - _rounded(before)
        succeeded = int(row.outcome == Outcome.SUCCEEDED)
        for n, value in enumerate((1, succeeded, run_ms, row.cpu_ms or 0, charged)):
            self.usage[key][n] += value
        return charged

    def _before(self, row: Ended) -> dict[str, int] | None:
        """Who went before it, of its first start; ``None`` for what did not start then."""
        if not row.first:
            return None
        return self._starts.before(row.tenant, row.cell, row.category, row.due_at, row.started_at)


def _rounded(exact: int) -> int:
    return (2 * exact + UNIT) // (2 * UNIT)


def _receipt(row: Ended, terms: Terms, charged: int, before: dict[str, int] | None) -> dict[str, Any]:
    started, latest = row.started_at, row.latest_start
    late_ms = 0
    if latest is not None and (row.first or row.number is None):
        late_ms = max(0, round(((started or row.at) - latest).total_seconds() * 1000))
    return {
        "task_id": row.task_id,
        "attempt": row.number,
        "state": None if row.state is None else word(TaskState(row.state)),
        "outcome": None if row.outcome is None else word(Outcome(row.outcome)),
        "ended_at": moment(row.at),
        "tier": row.tier,
        "category": word(Category(row.category)),
        "promised": {
            "submitted_at": moment(row.submitted_at),
            "latest_start": None if latest is None else moment(latest),
            "attempt_micros": terms.attempt_micros,
            "hour_micros": terms.hour_micros(row.tier_id, row.category) // 1000,
            "terms": terms.version,
            "order": terms.order,
            "share": terms.share,
        },
        "kept": {
            "started_at": None if started is None else moment(started),
            "late_by_s": seconds(late_ms),
            "held_s": seconds(row.run_ms),
            "cpu_milli": row.cpu_milli,
            "memory_mb": row.memory_mb,
            "disk_mb": row.disk_mb,
            "cpu_s": seconds(row.cpu_ms),
            "peak_memory_mb": row.peak_memory_mb,
            "peak_disk_mb": row.peak_disk_mb,
            "before": before,
        },
        "charged_micros": charged,
    }


def moment(at: datetime) -> str:
    """A time as receipts have it: UTC, with all six digits."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def usage_columns(usage: dict[UsageKey, list[int]]) -> Sequence[list[Any]]:
    """The rows of usage as columns, in the order of their keys: everybody locks them so."""
    keys = sorted(usage)
    return [*map(list, zip(*keys, strict=True)), *map(list, zip(*(usage[key] for key in keys), strict=True))]
