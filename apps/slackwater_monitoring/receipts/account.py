"""From attempts and ends to receipts and usage: one account, so that they agree to the last millionth.

An attempt is charged by the terms of its task's submission. Prices are exact; of what ended together in one day, tier and
category the sum is rounded, and each receipt has its part of it: so nothing is lost where runs are short.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import FINAL, Category, Outcome, TaskState
from slackwater_monitoring.receipts import moments
from slackwater_monitoring.receipts.moments import DAY, Texts, as_date, milliseconds
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
SELECT a.tenant_id, t.category, t.tier_id, CASE WHEN t.finished_at = a.finished_at THEN t.state END, a.outcome,
    t.handler, a.node_id, a.task_id::text, a.number, {FIRST}, t.submitted_at, coalesce(t.start_at, t.submitted_at),
    coalesce(CASE WHEN t.finished_at IS NULL THEN (
        SELECT l.latest_start FROM slackwater_tasks_livetask l WHERE l.task_id = t.id) END, t.latest_start),
    a.queued_at, a.started_at, a.finished_at, a.cpu_ms, a.peak_memory_mb, a.peak_disk_mb
FROM slackwater_tasks_attempt a JOIN slackwater_tasks_task t ON t.id = a.task_id
WHERE a.id > %(after)s AND a.id <= %(to)s ORDER BY a.id
"""  # noqa: S608 - a fragment of ours
# What ended while it waited has no attempt: its history tells of it.
ENDS = named("""
SELECT e.tenant_id, t.category, t.tier_id, e.to_state, NULL, t.handler, NULL, e.task_id::text, NULL, false, t.submitted_at,
    coalesce(t.start_at, t.submitted_at), t.latest_start, NULL, NULL, e.at, NULL, NULL, NULL
FROM slackwater_tasks_taskevent e JOIN slackwater_tasks_task t ON t.id = e.task_id
WHERE e.id > %(events_after)s AND e.id <= %(events_to)s AND e.to_state = ANY(%(final)s) AND e.from_state IS NOT NULL
    AND e.from_state <> :state.RUNNING ORDER BY e.id
""")
# Few: not one for each attempt.
NAMES = """
SELECT 'tenant', id, cell, 0, 0, 0 FROM slackwater_tenants_tenant WHERE id = ANY(%s)
UNION ALL SELECT 'node', id, name, 0, 0, 0 FROM slackwater_resources_node WHERE id = ANY(%s)
UNION ALL SELECT 'tier', id, slug, cpu_milli, memory_mb, disk_mb FROM slackwater_resources_tier WHERE id = ANY(%s)
"""


class Ended(NamedTuple):
    """An attempt that ended, or a task that ended without one. Moments: see ``moments.py``."""

    tenant: int
    category: int
    tier_id: int
    state: int | None
    outcome: int | None
    handler: str
    node_id: int | None
    task_id: str
    number: int | None
    first: bool
    """Whether its task begins with it: it is no retry, and no later turn."""
    submitted_at: int
    due_at: int
    latest_start: int | None
    queued_at: int | None
    started_at: int | None
    at: int
    cpu_ms: int | None
    peak_memory_mb: int | None
    peak_disk_mb: int | None

    @property
    def run_ms(self) -> int:
        """For how long resources were held."""
        return 0 if self.started_at is None else milliseconds(self.at - self.started_at)


class Tier(NamedTuple):
    """What its tasks may use."""

    slug: str
    cpu_milli: int
    memory_mb: int
    disk_mb: int


class Names:
    """What the ids of attempts stand for."""

    def __init__(self, conn: Any, rows: Sequence[Ended]) -> None:
        self.cells: dict[int, str] = {}
        self.nodes: dict[int | None, str] = {}
        self.tiers: dict[int, Tier] = {}
        ids = [
            list({row[place] for row in rows}) for place in map(Ended._fields.index, ("tenant", "node_id", "tier_id"))
        ]
        for kind, key, name, *sizes in conn.execute(NAMES, ids).fetchall():
            if kind == "tier":
                self.tiers[key] = Tier(name, *sizes)
            else:
                (self.cells if kind == "tenant" else self.nodes)[key] = name


class Receipt(NamedTuple):
    """One without its number: its canonical text (``chain.py``) is written at once, for there is one of every attempt."""

    tenant: int
    at: int
    """When what it tells of ended."""
    charged_micros: int
    before: str
    """What of its text stands before its number."""
    after: str

    def text(self, number: int) -> bytes:
        """The text that is hashed and kept."""
        return f"{self.before}{number}{self.after}".encode()


UsageKey = tuple[int, int, str, int]


class Account:
    """What is accounted at once."""

    def __init__(self, conn: Any, marks: dict[str, int], starts: Starts) -> None:
        cursor = moments.cursor(conn)
        attempts = [Ended._make(row) for row in cursor.execute(ATTEMPTS, marks).fetchall()]
        ends = cursor.execute(ENDS, {**marks, "final": [int(state) for state in FINAL]}).fetchall()
        rows = attempts + [Ended._make(row) for row in ends]
        self.names = names = Names(conn, rows)
        cells, tiers = names.cells, names.tiers
        self.rows = [
            row for row in rows if row.tenant in cells and row.tier_id in tiers
        ]  # but of those that go just now
        starts.look(cursor, marks["after"], marks["to"])
        starts.add(
            (row.tenant, cells[row.tenant], row.category, row.started_at)
            for row in self.rows
            if row.started_at is not None
        )
        self._starts = starts
        self._used: dict[UsageKey, list[int]] = defaultdict(lambda: [0] * 6)

    @property
    def usage(self) -> dict[UsageKey, list[int]]:
        """By tenant, day, tier and category: attempts, succeeded, run and CPU in milliseconds, price in millionths."""
        return {key: used[:5] for key, used in self._used.items()}

    def receipts(self, conn: Any) -> Iterator[Receipt]:
        """A receipt of each, in their order."""
        tiers, cells = self.names.tiers, self.names.cells
        book = Book(conn, sorted(cells))
        forms: dict[tuple[Any, ...], Form] = {}
        texts = Texts()
        for row in self.rows:
            terms, run_ms = book.of(row.tenant, row.submitted_at), row.run_ms
            key = terms.version, *row[:5]
            form = forms.get(key)
            if form is None:
                form = forms[key] = Form(row, terms, tiers[row.tier_id], texts)
            charged = 0 if row.number is None else self._charge(row, form, run_ms)
            before = None  # of what did not start for the first time nobody went before it
            if row.first and row.started_at is not None:
                before = self._starts.before(row.tenant, cells[row.tenant], row.category, row.due_at, row.started_at)
            yield form.receipt(row, run_ms, charged, before)

    def _charge(self, row: Ended, form: Form, run_ms: int) -> int:
        """What an attempt costs: its part of the rounded sum of those before it and itself."""
        used = self._used[row.tenant, row.at // DAY, form.tier.slug, row.category]
        used[5] = exact = used[5] + form.attempt + run_ms * form.hour
        charged = (exact + UNIT // 2) // UNIT - used[4]
        used[0] += 1
        used[1] += form.succeeded
        used[2] += run_ms
        used[3] += row.cpu_ms or 0
        used[4] += charged
        return charged


class Form:
    """What attempts of one tenant, tier and category that ended alike, under the same terms, have in common."""

    def __init__(self, row: Ended, terms: Terms, tier: Tier, texts: Texts) -> None:
        self._moment = texts.of
        self._promised: tuple[int | None, int | None] = None, None
        self._after = ""
        self.tier = tier
        self.hour = terms.hour_micros(row.tier_id, row.category)
        self.attempt = terms.attempt_micros * UNIT
        """What one costs, and a millisecond of it, exactly."""
        self.succeeded = int(row.outcome == Outcome.SUCCEEDED)
        self._ended = f'"category":{_word(Category, row.category)},"charged_micros":'
        self._cpu, self._disk = f',"cpu_milli":{tier.cpu_milli},"cpu_s":', f',"disk_mb":{tier.disk_mb},"held_s":'
        self._memory = f',"memory_mb":{tier.memory_mb},"peak_disk_mb":'
        self._outcome = (
            f',"outcome":{_word(Outcome, row.outcome)},"promised":{{"attempt_micros":{terms.attempt_micros},'
            f'"hour_micros":{self.hour // 1000},"latest_start":'
        )
        self._order = f',"order":{json.dumps(terms.order)},"share":{json.dumps(terms.share)},"submitted_at":'
        self._state = f',"terms":{terms.version}}},"state":{_word(TaskState, row.state)},"task_id":"'
        self._tier = f'","tier":{json.dumps(tier.slug)}}}'

    def receipt(self, row: Ended, run_ms: int, charged: int, before: tuple[int, int, int] | None) -> Receipt:
        """That of one attempt. Names stand in the order of the canonical text."""
        started, late_ms = row.started_at, 0
        if row.latest_start is not None and (row.first or row.number is None):
            late_ms = milliseconds((row.at if started is None else started) - row.latest_start)
        ahead = "null"
        if before is not None:
            ahead = f'{{"category":{before[1]},"order":{before[0]},"share":{before[2]}}}'
        moment, peak_mb, peak_disk_mb = self._moment, row.peak_memory_mb, row.peak_disk_mb
        promised = row.latest_start, row.submitted_at
        if promised != self._promised:  # tasks of one submission share it
            self._promised = promised
            self._after = (
                f"{self._outcome}{moment(row.latest_start)}{self._order}{moment(row.submitted_at)}{self._state}"
            )
        return Receipt(
            row.tenant, row.at, charged,
            f'{{"attempt":{"null" if row.number is None else row.number},{self._ended}{charged},"ended_at":{moment(row.at)},'
            f'"kept":{{"before":{ahead}{self._cpu}{_seconds(row.cpu_ms)}{self._disk}{_seconds(run_ms)},"late_by_s":{_seconds(late_ms)}'
            f'{self._memory}{"null" if peak_disk_mb is None else peak_disk_mb},"peak_memory_mb":'
            f'{"null" if peak_mb is None else peak_mb},"started_at":{moment(started)}}},"number":',
            f"{self._after}{row.task_id}{self._tier}",
        )  # fmt: skip


def _word(kind: type[IntEnum], number: int | None) -> str:
    return "null" if number is None else json.dumps(word(kind(number)))


@lru_cache(maxsize=10_000)
def _seconds(milliseconds: int | None) -> str:
    return json.dumps(seconds(milliseconds))


def columns(counts: Mapping[Any, Sequence[int]]) -> Sequence[list[Any]]:
    """Rows of counts by tenant, day and more as columns, in the order of their keys: everybody locks them so."""
    keys = sorted(counts)
    tenants, days, *more = map(list, zip(*keys, strict=True))
    return [tenants, [*map(as_date, days)], *more, *map(list, zip(*(counts[key] for key in keys), strict=True))]
