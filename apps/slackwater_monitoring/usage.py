"""Usage of tenants, receipts, and figures over time: attempts accounted for, each exactly once, in batches.

Attempts have rising numbers, but a number may become visible after a larger one did: its transaction was slower. So a
range is added up in two steps. First its end is noted, with the newest transaction of that moment; only when that one
and all before it are over is the range complete, and taken. No flag stands in an attempt, and no index follows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from django.db.models import Sum

from scheduler_ext.core.errors import DoesNotFit, InvalidInput
from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category
from slackwater_monitoring.models import OnTime, Usage
from slackwater_monitoring.receipts import pages
from slackwater_monitoring.receipts.account import Account, columns
from slackwater_monitoring.receipts.moments import DAY
from slackwater_monitoring.receipts.starts import Starts
from slackwater_monitoring.rollups import fill
from slackwater_tasks.field_kinds import seconds
from slackwater_tasks.read.tasks import word

MAX_BATCH: Final = 2_000
"""Soon followed by another when it is full: what it costs stands in docs/performance.md."""
MAX_DAYS: Final = 400

MARK = """
SELECT done, seen, events_done, events_seen, pg_snapshot_xmin(pg_current_snapshot()) >= seen_by::xid8
FROM slackwater_monitoring_usagemark WHERE id = 1 FOR UPDATE SKIP LOCKED
"""
# Where there is one that another process holds, it is not waited for.
FIRST_MARK = """
INSERT INTO slackwater_monitoring_usagemark (id, done, seen, seen_by) SELECT 1, 0, 0, '0'
WHERE NOT EXISTS (SELECT 1 FROM slackwater_monitoring_usagemark WHERE id = 1) ON CONFLICT DO NOTHING
"""
ADD_UP = """
INSERT INTO slackwater_monitoring_usage AS u (tenant_id, day, tier, category, attempts, succeeded, run_ms, cpu_ms, price_micros)
SELECT * FROM unnest(%s::bigint[], %s::date[], %s::text[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[])
ON CONFLICT (tenant_id, day, tier, category) DO UPDATE SET attempts = u.attempts + excluded.attempts,
    succeeded = u.succeeded + excluded.succeeded, run_ms = u.run_ms + excluded.run_ms,
    cpu_ms = u.cpu_ms + excluded.cpu_ms, price_micros = u.price_micros + excluded.price_micros
"""
# First attempts against their latest starts.
KEPT_PROMISES = """
INSERT INTO slackwater_monitoring_ontime AS o (tenant_id, day, tier, category, handler, started, on_time)
SELECT * FROM unnest(%s::bigint[], %s::date[], %s::text[], %s::int[], %s::text[], %s::bigint[], %s::bigint[])
ON CONFLICT (tenant_id, day, tier, category, handler) DO UPDATE SET started = o.started + excluded.started,
    on_time = o.on_time + excluded.on_time
"""
# What was measured, for hints of smaller tiers: see ``sizing.py``. Handlers: alone, and long enough.
MEASURE = named("""
INSERT INTO slackwater_monitoring_sizing AS s (tenant_id, kind, name, tier_id, runs, exceeded, cpu_milli, memory_mb, disk_mb)
SELECT a.tenant_id, CASE WHEN t.handler <> '' THEN 'handler' WHEN t.script_path <> '' THEN 'script_path'
        ELSE 'script' END AS kind, coalesce(nullif(t.handler, ''), nullif(t.script_path, ''), t.script_sha256) AS name,
    t.tier_id, count(*), count(*) FILTER (WHERE a.outcome = :outcome.RESOURCE_EXCEEDED),
    (array_agg(least(1000000, a.cpu_ms * 1000::float8
        / greatest(1, extract(epoch FROM a.finished_at - a.started_at) * 1000))::int ORDER BY a.id DESC))[1:%(kept)s],
    (array_agg(a.peak_memory_mb ORDER BY a.id DESC))[1:%(kept)s],
    (array_agg(a.peak_disk_mb ORDER BY a.id DESC))[1:%(kept)s]
FROM slackwater_tasks_attempt a JOIN slackwater_tasks_task t ON t.id = a.task_id
WHERE a.id > %(after)s AND a.id <= %(to)s AND a.cpu_ms IS NOT NULL
    AND a.outcome IN (:outcome.SUCCEEDED, :outcome.FAILED, :outcome.CAP_EXCEEDED, :outcome.RESOURCE_EXCEEDED)
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
ON CONFLICT (tenant_id, kind, name, tier_id) DO UPDATE SET runs = s.runs + excluded.runs,
    exceeded = s.exceeded + excluded.exceeded, cpu_milli = (excluded.cpu_milli || s.cpu_milli)[1:%(kept)s],
    memory_mb = (excluded.memory_mb || s.memory_mb)[1:%(kept)s],
    disk_mb = (excluded.disk_mb || s.disk_mb)[1:%(kept)s], updated_at = clock_timestamp()
""")
KEPT_RUNS: Final = 200
# Asked first, in a statement of its own: whoever has one of these numbers is then among the transactions noted.
LAST = """
SELECT CASE WHEN a.is_called THEN a.last_value ELSE 0 END, CASE WHEN e.is_called THEN e.last_value ELSE 0 END
FROM slackwater_tasks_attempt_id_seq a, slackwater_tasks_taskevent_id_seq e
"""
NOTE = """
UPDATE slackwater_monitoring_usagemark SET done = %(done)s, seen = %(seen)s, events_done = %(events_done)s,
    events_seen = %(events_seen)s, seen_by = pg_snapshot_xmax(pg_current_snapshot())::text WHERE id = 1
"""


_starts = Starts()


def add_up(conn: Any) -> int:
    """Account for the next range of attempts, and of ends without one, in the transaction of ``conn``.

    Returns how many numbers it had.
    """
    row = conn.execute(MARK).fetchone()
    if row is None:
        conn.execute(FIRST_MARK)  # or another process is at it
        return 0
    done, seen, events_done, events_seen, complete = row
    if not complete:
        return 0
    if seen > done or events_seen > events_done:
        marks = {"after": done, "to": seen, "events_after": events_done, "events_to": events_seen}
        _account(conn, marks)
    last, last_event = conn.execute(LAST).fetchone()
    conn.execute(NOTE, {"done": seen, "seen": _next(seen, last), "events_done": events_seen,
                        "events_seen": _next(events_seen, last_event)})  # fmt: skip
    return int(max(seen - done, events_seen - events_done))


def _next(seen: int, last: int) -> int:
    return min(seen + MAX_BATCH, max(seen, last))


def _account(conn: Any, marks: dict[str, int]) -> None:
    account = Account(conn, marks, _starts)
    pages.write(conn, account.receipts(conn))
    if usage := account.usage:
        conn.execute(ADD_UP, columns(usage))
    if promises := _promises(account):
        conn.execute(KEPT_PROMISES, columns(promises))
    if any(row.cpu_ms is not None for row in account.rows):
        conn.execute(MEASURE, {**marks, "kept": KEPT_RUNS})
    fill.attempts(conn, account.rows, account.names.nodes)


def _promises(account: Account) -> dict[tuple[int, int, str, int, str], list[int]]:
    """Of first starts with a latest one, how many there were and how many were in time."""
    found: dict[tuple[int, int, str, int, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in account.rows:
        if row.first and row.latest_start is not None and row.started_at is not None:
            tier = account.names.tiers[row.tier_id].slug
            counts = found[row.tenant, row.started_at // DAY, tier, row.category, row.handler]
            counts[0] += 1
            counts[1] += row.started_at <= row.latest_start
    return found


def days(since: str | None, until: str | None, fields: tuple[str, str]) -> tuple[date, date]:
    """The first and the last day asked for: the present month up to today, where they are not given."""
    today = datetime.now(UTC).date()
    last = _day(until, fields[1]) or today
    return _day(since, fields[0]) or min(last, today).replace(day=1), last


def _day(text: str | None, field: str) -> date | None:
    if text is None:
        return None
    with suppress(ValueError):
        if len(text) == 10:
            return date.fromisoformat(text)
    raise InvalidInput("must be a day: 2030-01-31", field=field)


def read(tenant_id: int, first: date, last: date) -> dict[str, Any]:
    """The usage of a tenant from ``first`` to ``last`` (days in UTC, both included), and its sum.

    What ended in the last few seconds may not be in yet. Prices are in millionths of the unit the platform charges in.
    """
    if last < first:
        raise DoesNotFit("must not be before since", field="until")
    if last - first > timedelta(days=MAX_DAYS):
        raise DoesNotFit(f"must be at most {MAX_DAYS} days after since", field="until")
    rows = list(
        Usage.objects.unscoped()  # the tenant is named
        .filter(tenant_id=tenant_id, day__gte=first, day__lte=last)
        .order_by("day", "tier", "category")
    )
    return {
        "since": first,
        "until": last,
        "total": _shown(rows),
        "on_time": _on_time(tenant_id, first, last),
        "items": [
            {"day": row.day, "tier": row.tier, "category": word(Category(row.category)), **_shown([row])}
            for row in rows
        ],
    }


def _on_time(tenant_id: int, first: date, last: date) -> list[dict[str, Any]]:
    """How many tasks began, and how many by their latest start, by line (tier and category) and handler."""
    rows = OnTime.objects.unscoped().filter(tenant_id=tenant_id, day__gte=first, day__lte=last)  # the tenant is named
    sums = rows.values("tier", "category", "handler").annotate(of=Sum("started"), kept=Sum("on_time"))
    return [
        {
            "tier": row["tier"], "category": word(Category(row["category"])), "handler": row["handler"],
            "started": row["of"], "on_time": row["kept"], "rate": row["kept"] / row["of"],
        }
        for row in sums.order_by("tier", "category", "handler")
    ]  # fmt: skip


def _shown(rows: Iterable[Usage]) -> dict[str, Any]:
    found = list(rows)
    return {
        "attempts": sum(row.attempts for row in found),
        "succeeded": sum(row.succeeded for row in found),
        "run_s": seconds(sum(row.run_ms for row in found)),
        "cpu_s": seconds(sum(row.cpu_ms for row in found)),
        "price_micros": sum(row.price_micros for row in found),
    }
