"""Adds attempts, ends and samples to the rows of their spans: in upkeep, each once, in a number of rows that is bounded.

Attempts come with the account of usage, in its transaction, under its mark; a sample is taken under the same mark.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category, TaskState
from slackwater_monitoring.receipts.account import Ended
from slackwater_monitoring.receipts.moments import EPOCH, SECOND, milliseconds
from slackwater_monitoring.rollups import layout
from slackwater_monitoring.rollups.layout import EVER, FINEST, KEPT_S, NONE, OTHERS, SCRIPTS, Dimension, Place
from slackwater_tasks.ledger.sql.snapshot import SLOT_KIND
from slackwater_tasks.read.tasks import word

SAMPLE_S: Final = FINEST
SPAN: Final = FINEST * SECOND
STARTED, LATE, DELAY_MS, QUEUE_MS, RUN_MS, RETRIED = map(
    int, (Place.STARTED, Place.LATE, Place.DELAY_MS, Place.QUEUE_MS, Place.RUN_MS, Place.RETRIED)
)
"""Places as plain numbers: to look up a member takes as long as to count."""
ZERO_S: Final = int(EPOCH.timestamp())
COUNTED: Final = 20_000
"""Up to so many waiting tasks are counted by category and handler; of more, about so many tell of all."""
NAMED: Final = "SELECT dimension, key FROM slackwater_monitoring_rollup WHERE grain = 0"
ADD: Final = """
INSERT INTO slackwater_monitoring_rollup AS r (grain, at, dimension, key, numbers)
SELECT given.grain, to_timestamp(given.at), given.dimension, given.key, given.numbers::bigint[]
FROM unnest(%s::int[], %s::float8[], %s::int[], %s::text[], %s::text[], %s::float8[])
    AS given(grain, at, dimension, key, numbers, kept)
WHERE given.grain = 0 OR to_timestamp(given.at) > clock_timestamp() - given.kept * interval '1 second'
ON CONFLICT (grain, at, dimension, key) DO UPDATE SET numbers = ARRAY(
    SELECT coalesce(had, 0) + coalesce(more, 0)
    FROM unnest(r.numbers, excluded.numbers) WITH ORDINALITY x(had, more, n) ORDER BY n)
"""
DUE: Final = """
UPDATE slackwater_monitoring_usagemark SET sampled_at = clock_timestamp() WHERE id = (
    SELECT id FROM slackwater_monitoring_usagemark WHERE id = 1
    AND (sampled_at IS NULL OR sampled_at <= clock_timestamp() - %s * interval '1 second') FOR UPDATE SKIP LOCKED)
RETURNING extract(epoch FROM sampled_at)::float8
"""
UNFINISHED: Final = "SELECT tenant_id, unfinished FROM slackwater_tenants_currentcounter WHERE unfinished > 0"
IN_FLIGHT: Final = named(f"""
SELECT l.tenant_id, i.category, coalesce(h.name, '{SCRIPTS}'), d.name, {SLOT_KIND}, l.state, count(*), sum(l.slot_milli)::bigint
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_line i ON i.id = l.line_id
LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id LEFT JOIN slackwater_resources_node d ON d.id = l.node_id
WHERE l.phase = :phase.IN_FLIGHT GROUP BY 1, 2, 3, 4, 5, 6
""")  # noqa: S608 - fragments of ours
WAITING: Final = named(f"""
SELECT i.category, coalesce(h.name, '{SCRIPTS}'), count(*) FROM slackwater_tasks_livetask l TABLESAMPLE SYSTEM (%s)
JOIN slackwater_tasks_line i ON i.id = l.line_id LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
WHERE l.phase <> :phase.IN_FLIGHT GROUP BY 1, 2
""")  # noqa: S608 - fragments of ours
SLOTS: Final = """
SELECT n.name, k.key, sum(k.value::bigint) FROM slackwater_resources_node n, jsonb_each_text(n.slots) k
WHERE n.state IN ('active', 'draining') AND n.lease_expires_at > clock_timestamp() GROUP BY 1, 2
"""
OLD: Final = """
DELETE FROM slackwater_monitoring_rollup WHERE (grain, at, dimension, key) IN (
    SELECT grain, at, dimension, key FROM slackwater_monitoring_rollup
    WHERE grain = %s AND at < clock_timestamp() - %s * interval '1 second' ORDER BY at LIMIT %s)
"""
# Places are of the keys with most attempts of the last two days, less some for those that come anew.
IDLE: Final = """
WITH lately AS (
    SELECT dimension, key, sum(numbers[%(started)s]) AS started FROM slackwater_monitoring_rollup
    WHERE grain = 3600 AND at > clock_timestamp() - interval '2 days' GROUP BY 1, 2),
ranked AS (
    SELECT e.dimension, e.key, l.started, row_number() OVER (
        PARTITION BY e.dimension ORDER BY l.started DESC NULLS LAST, e.key) AS place
    FROM slackwater_monitoring_rollup e LEFT JOIN lately l USING (dimension, key)
    WHERE e.grain = 0 AND e.dimension = ANY(%(bounded)s) AND e.key <> %(others)s)
DELETE FROM slackwater_monitoring_rollup r USING ranked k
WHERE r.grain = 0 AND r.dimension = k.dimension AND r.key = k.key AND (k.started IS NULL OR k.place > %(most)s)
"""
BOUNDED: Final = (Dimension.TENANT, Dimension.HANDLER, Dimension.NODE)
Key = tuple[int, Dimension, str]
"""When the finest span began, and what the row is of."""


class Rows:
    """Numbers to be added, by finest span, dimension and key."""

    def __init__(self) -> None:
        self.numbers: dict[Key, list[int]] = defaultdict(lambda: [0] * layout.LENGTH)

    def add(self, at: float, dimension: Dimension, key: str, numbers: Iterable[tuple[int, int]]) -> None:
        """Add to some places of a row."""
        row = self.numbers[int(at) // FINEST * FINEST, dimension, key]
        for place, number in numbers:
            row[place] += number

    def write(self, conn: Any) -> None:
        """Add all to the rows of each grain, in the order of their keys: everybody locks them so."""
        if not self.numbers:
            return
        known = self._named(conn)
        grains: dict[tuple[int, int, int, str], list[int]] = {}
        for (at, dimension, key), numbers in self.numbers.items():
            own = key if dimension not in BOUNDED or key in known[dimension] else OTHERS
            for grain in (EVER, *KEPT_S):
                place = (grain, at // grain * grain if grain else 0, int(dimension), own)
                had = grains.get(place)
                grains[place] = numbers if had is None else [a + b for a, b in zip(had, numbers, strict=True)]
        keys = sorted(grains)
        columns = [list(column) for column in zip(*keys, strict=True)]
        texts = [f"{{{','.join(map(str, grains[key]))}}}" for key in keys]
        conn.execute(ADD, (*columns, texts, [KEPT_S.get(grain, 0) for grain, *_ in keys]))

    def _named(self, conn: Any) -> dict[int, set[str]]:
        """The keys that have rows of their own: those that had, then the most frequent while there is room."""
        known: dict[int, set[str]] = defaultdict(set)
        for dimension, key in conn.execute(NAMED).fetchall():
            if key != OTHERS:
                known[dimension].add(key)
        counts: Counter[tuple[Dimension, str]] = Counter()
        for (_, dimension, key), numbers in self.numbers.items():
            counts[dimension, key] += numbers[Place.STARTED]
        for (dimension, key), _ in counts.most_common():
            if len(known[dimension]) < layout.MAX_KEYS:
                known[dimension].add(key)
        return known


def attempts(conn: Any, ended: Iterable[Ended], nodes: Mapping[int | None, str]) -> None:
    """Add attempts and ends that are accounted for now, in the account's transaction."""
    # First those that are of the same keys together, by span: there is one of every attempt.
    alike: dict[tuple[int, int, str, int | None], Spans] = defaultdict(Spans)
    for row in ended:
        spans = alike[row.tenant, row.category, row.handler, row.node_id]
        over = spans[row.at // SPAN]
        if row.state is not None:
            over[layout.STATES + row.state] += 1
        if row.started_at is None or row.outcome is None:
            over[LATE] += row.state == TaskState.EXPIRED
            continue
        _begun(row, row.started_at, spans[row.started_at // SPAN])
        run_ms = row.run_ms
        over[layout.OUTCOMES + row.outcome] += 1
        over[layout.bucket(layout.RUNS, 1000 * run_ms)] += 1
        over[RUN_MS] += run_ms
    rows = Rows()
    for (tenant, category, handler, node), spans in alike.items():
        keys = _keys(str(tenant), category, handler or SCRIPTS, nodes.get(node, NONE))
        for span, numbers in spans.items():
            places = [(place, number) for place, number in enumerate(numbers) if number]
            for dimension, key in keys:
                rows.add(ZERO_S + span * FINEST, dimension, key, places)
    rows.write(conn)


class Spans(defaultdict[int, list[int]]):
    """Numbers by finest span."""

    def __init__(self) -> None:
        super().__init__(lambda: [0] * layout.LENGTH)


def _begun(row: Ended, started_at: int, began: list[int]) -> None:
    """Add what is counted where an attempt began."""
    began[STARTED] += 1
    began[RETRIED] += row.number != 1
    if row.first:
        delay = started_at - max(row.due_at, row.submitted_at)
        began[layout.bucket(layout.DELAYS, delay)] += 1
        began[DELAY_MS] += milliseconds(delay)
        began[LATE] += row.latest_start is not None and started_at > row.latest_start
    if row.queued_at is not None:
        queued = started_at - row.queued_at
        began[layout.bucket(layout.QUEUES, queued)] += 1
        began[QUEUE_MS] += milliseconds(queued)


def _keys(tenant: str, category: int, handler: str, node: str) -> tuple[tuple[Dimension, str], ...]:
    return (
        (Dimension.ALL, ""), (Dimension.TENANT, tenant), (Dimension.HANDLER, handler), (Dimension.NODE, node),
        (Dimension.CATEGORY, word(Category(category))),
    )  # fmt: skip


# -- what waits and what is in use, looked at every few seconds ---------------------------------------------------------
def sample(conn: Any) -> int:
    """Add a look at queues and slots, if none was taken lately; returns 1 if it was."""
    due = conn.execute(DUE, (SAMPLE_S,)).fetchone()
    if due is None:
        return 0
    rows = Rows()
    for dimension, key, place, number in _sampled(conn):
        rows.add(due[0], dimension, key, [(place, number)])
    rows.add(due[0], Dimension.ALL, "", [(Place.SAMPLES, 1)])
    rows.write(conn)
    return 1


def _sampled(conn: Any) -> Iterator[tuple[Dimension, str, Place, int]]:
    waiting: Counter[tuple[Dimension, str]] = Counter()
    held: Counter[tuple[str | None, str]] = Counter()
    queued = 0
    for tenant, unfinished in conn.execute(UNFINISHED).fetchall():
        waiting[Dimension.TENANT, str(tenant)] = unfinished
    for tenant, category, handler, node, kind, state, count, milli in conn.execute(IN_FLIGHT).fetchall():
        held[node, kind] += milli
        if state == TaskState.RUNNING:
            waiting[Dimension.TENANT, str(tenant)] -= count
            continue
        queued += count
        for one in _keys("", category, handler, node or NONE)[2:]:
            waiting[one] += count
    for node, kind, slots in conn.execute(SLOTS).fetchall():
        yield Dimension.SLOT, kind, Place.USED_MILLI, min(held[node, kind], 1000 * slots)
        yield Dimension.SLOT, kind, Place.SLOTS_MILLI, 1000 * slots
    total = sum(max(0, n) for (dimension, _), n in waiting.items() if dimension == Dimension.TENANT)
    yield Dimension.ALL, "", Place.WAITING, total
    unclaimed = max(0, total - queued)
    waiting[Dimension.NODE, NONE] += unclaimed
    waiting.update(_unclaimed(conn, unclaimed))
    for (dimension, key), number in waiting.items():
        if number > 0:
            yield dimension, key, Place.WAITING, number


def _unclaimed(conn: Any, total: int) -> Counter[tuple[Dimension, str]]:
    """What waits and is not claimed, by category and handler, so that each sums up to ``total``."""
    found: Counter[tuple[Dimension, str]] = Counter()
    rows = conn.execute(WAITING, (min(100.0, 100.0 * COUNTED / max(1, total)),)).fetchall() if total else []
    looked_at = sum(count for *_, count in rows)
    for category, handler, count in rows:
        part = round(count * total / looked_at)
        found[Dimension.CATEGORY, word(Category(category))] += part
        found[Dimension.HANDLER, handler] += part
    return found


# -- what goes ----------------------------------------------------------------------------------------------------------
def forget(conn: Any, most: int) -> int:
    """Delete rows of spans that are kept no longer, and free the places of keys that were not in use lately."""
    gone = max(conn.execute(OLD, (grain, kept, most)).rowcount for grain, kept in KEPT_S.items())
    values = {
        "started": Place.STARTED + 1, "bounded": [int(one) for one in BOUNDED], "others": OTHERS,
        "most": layout.MAX_KEYS - layout.PLACES_KEPT_FREE,
    }  # fmt: skip
    conn.execute(IDLE, values)
    return int(gone)
