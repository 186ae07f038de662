"""The numbers of the live page. Their cost grows with the tasks in flight or shown, never with those that wait."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import FINAL, Category, TaskState
from slackwater_dashboard.throughput import INTERVAL_S, Throughput
from slackwater_monitoring.alerts.rules import RULES
from slackwater_resources.components import SILENT_AFTER_S
from slackwater_tasks.read.autoscaling import demands
from slackwater_tasks.read.tasks import word

EXACT_LIVE = 20_000
"""Up to this many unfinished tasks are counted by state; of more, PostgreSQL's statistics tell the shares."""
LINES_LOOKED_AT = 300
LINES_SHOWN = 30
READY_COUNTED = 100
TENANTS_SHOWN = 10
RECENT = 300
"""Attempts that the delays are taken from."""
DEAD_COUNTED = 1_000
FRESH_S = 1.0
"""The seconds for which a snapshot serves all requests."""

NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
UNFINISHED = """
SELECT coalesce(sum(unfinished), 0)::bigint, count(*) FILTER (WHERE unfinished > 0) FROM slackwater_tenants_tenantcounter
"""
BY_STATE = "SELECT state, count(*) FROM (SELECT state FROM slackwater_tasks_livetask LIMIT %s) few GROUP BY state"
IN_FLIGHT = named("SELECT state, count(*) FROM slackwater_tasks_livetask WHERE phase = :phase.IN_FLIGHT GROUP BY state")
SHARES = """
SELECT most_common_vals::text::int[], most_common_freqs::float8[] FROM pg_stats
WHERE schemaname = current_schema() AND tablename = 'slackwater_tasks_livetask' AND attname = 'state'
"""
# The active lines by a loose scan of the ready index: one descent a line, whatever the backlog.
LINES = named("""
WITH RECURSIVE active AS (
    (SELECT line_id, 1 AS n FROM slackwater_tasks_livetask WHERE phase = :phase.READY ORDER BY line_id LIMIT 1)
    UNION ALL
    SELECT (SELECT l.line_id FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id > a.line_id
            ORDER BY l.line_id LIMIT 1), a.n + 1
    FROM active a WHERE a.line_id IS NOT NULL AND a.n < %(lines)s)
SELECT t.slug, t.paused OR n.paused, n.category, r.slug, w.ready, extract(epoch FROM h.submitted_at)::float8
FROM active a JOIN slackwater_tasks_line n ON n.id = a.line_id JOIN slackwater_tenants_tenant t ON t.id = n.tenant_id
JOIN slackwater_resources_tier r ON r.id = n.tier_id
CROSS JOIN LATERAL (
    SELECT count(*)::int AS ready FROM (
        SELECT 1 FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id = n.id
            LIMIT %(most)s + 1) x) w
LEFT JOIN LATERAL (
    SELECT k.submitted_at FROM slackwater_tasks_task k WHERE k.id = (
        SELECT l.task_id FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id = n.id
        ORDER BY l.rank_group, l.rank, l.task_id LIMIT 1)) h ON true
ORDER BY w.ready DESC, h.submitted_at LIMIT %(shown)s
""")
NODES = named("""
SELECT n.id, n.name, n.cell, n.state, n.capacity, n.slots::text,
       extract(epoch FROM clock_timestamp() - n.heartbeat_at)::float8,
       n.lease_expires_at > clock_timestamp(),
       coalesce(f.queued, 0)::int, coalesce(f.running, 0)::int, coalesce(f.slot_milli, 0)::int,
       coalesce(f.cpu, 0)::bigint, coalesce(f.memory, 0)::bigint
FROM slackwater_resources_node n LEFT JOIN (
    SELECT l.node_id, count(*) FILTER (WHERE l.state = :state.QUEUED) AS queued,
        count(*) FILTER (WHERE l.state = :state.RUNNING) AS running,
           sum(l.slot_milli) FILTER (WHERE l.state = :state.RUNNING) AS slot_milli,
           sum(r.cpu_milli * l.slot_milli / 1000) FILTER (WHERE l.state = :state.RUNNING) AS cpu,
           sum(r.memory_mb::bigint * l.slot_milli / 1000) FILTER (WHERE l.state = :state.RUNNING) AS memory
    FROM slackwater_tasks_livetask l JOIN slackwater_tasks_line i ON i.id = l.line_id
        JOIN slackwater_resources_tier r ON r.id = i.tier_id
    WHERE l.phase = :phase.IN_FLIGHT GROUP BY l.node_id) f ON f.node_id = n.id
WHERE n.state IN ('active', 'draining') ORDER BY n.cell, n.name LIMIT 200
""")
LEADERS = """
SELECT cell, holder, epoch, expires_at > clock_timestamp(), extract(epoch FROM clock_timestamp() - renewed_at)::float8
FROM slackwater_tasks_leader ORDER BY cell
"""
# Those that left, or have been silent for long, are for the list of components to tell.
COMPONENTS = """
SELECT kind, cell, hostname, pid, extract(epoch FROM clock_timestamp() - beat_at)::float8,
       extract(epoch FROM clock_timestamp() - started_at)::float8
FROM slackwater_resources_component WHERE left_at IS NULL AND beat_at > clock_timestamp() - interval '10 minutes'
ORDER BY kind, cell, id LIMIT 200
"""
TENANTS = """
SELECT t.slug, c.unfinished, c.urgent_unfinished, t.paused, p.weight
FROM slackwater_tenants_tenantcounter c JOIN slackwater_tenants_tenant t ON t.id = c.tenant_id
    JOIN slackwater_tenants_plan p ON p.id = t.plan_id
WHERE c.unfinished > 0 ORDER BY c.unfinished DESC, t.slug LIMIT %s
"""
DEAD = "SELECT count(*) FROM (SELECT 1 FROM slackwater_tasks_deadletter LIMIT %s) few"
ALERTS = """
SELECT id, rule, cell, subject, detail, acknowledged_by, extract(epoch FROM raised_at)::float8
FROM slackwater_monitoring_alert WHERE cleared_at IS NULL AND raised_at IS NOT NULL ORDER BY acknowledged_at NULLS FIRST, id
LIMIT 50
"""
# A retried task's delay holds its back-off, so only first attempts tell how quickly work starts. A node's clock may
# be behind the database's: below 0 is 0.
DELAYS = """
SELECT percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY delay),
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY run)
FROM (
    SELECT greatest(0, extract(epoch FROM a.started_at - greatest(t.submitted_at, t.start_at)))::float8 AS delay,
           extract(epoch FROM a.finished_at - a.started_at)::float8 AS run
    FROM (SELECT * FROM slackwater_tasks_attempt ORDER BY id DESC LIMIT %s) a JOIN slackwater_tasks_task t ON t.id = a.task_id
    WHERE a.number = 1) recent
"""


@dataclass(slots=True)
class _Memory:
    """The last snapshot of this process, and the counts behind its throughput."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    taken: float = float("-inf")
    value: dict[str, Any] = field(default_factory=dict)
    throughput: Throughput = field(default_factory=Throughput)


_memory = _Memory()


def snapshot() -> dict[str, Any]:
    """The numbers now, at most :data:`FRESH_S` old, as JSON takes them. Times are seconds of the Unix epoch."""
    with _memory.lock:
        if time.monotonic() - _memory.taken > FRESH_S:
            _memory.value = _read(_memory.throughput)
            _memory.taken = time.monotonic()
        return _memory.value


def forget() -> None:
    """Drop the cached snapshot: for another database in the same process."""
    with _memory.lock:
        _memory.taken, _memory.throughput = float("-inf"), Throughput()


def _read(throughput: Throughput) -> dict[str, Any]:
    with connection.cursor() as wrapped:
        cur: Any = _Answering(wrapped)
        now = cur.execute(NOW).fetchone()[0]
        series = throughput.series(cur, now)
        delay, run = cur.execute(DELAYS, [RECENT]).fetchone()
        return {
            "now": now,
            "states": _states(cur),
            "dead_letters": _bounded(cur.execute(DEAD, [DEAD_COUNTED + 1]).fetchone()[0], DEAD_COUNTED),
            "lines": _lines(cur, now),
            "nodes": [_node(row) for row in cur.execute(NODES).fetchall()],
            "leaders": [_leader(row) for row in cur.execute(LEADERS).fetchall()],
            "components": [_component(row) for row in cur.execute(COMPONENTS).fetchall()],
            "tenants": [_tenant(row) for row in cur.execute(TENANTS, [TENANTS_SHOWN]).fetchall()],
            "alerts": [_alert(row) for row in cur.execute(ALERTS).fetchall()],
            "throughput": {"interval_s": INTERVAL_S, "series": series},
            "demand": [
                {"cell": d.cell, "slots": d.slots, "demand": d.demand, "wanted": d.wanted, "ratio": d.ratio}
                for d in demands()
            ],
            "start_delay": _percentiles(delay),
            "run_time": _percentiles(run),
        }


class _Answering:
    """Django's cursor whose ``execute`` returns the cursor, as psycopg's does."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def execute(self, query: str, params: Any = None) -> Any:
        self._cursor.execute(query, params)
        return self._cursor


def _bounded(count: int, most: int) -> dict[str, Any]:
    return {"count": min(count, most), "more": count > most}


def _component(row: Sequence[Any]) -> dict[str, Any]:
    kind, cell, hostname, pid, silent_s, up_s = row
    return {
        "kind": kind, "cell": cell, "where": f"{hostname}:{pid}", "alive": silent_s <= SILENT_AFTER_S,
        "silent_s": max(0.0, silent_s), "up_s": max(0.0, up_s),
    }  # fmt: skip


def _percentiles(pair: list[float] | None) -> dict[str, float] | None:
    return {"p50": pair[0], "p95": pair[1]} if pair else None


def _states(cur: Any) -> dict[str, Any]:
    """Unfinished tasks by state: counted while they are few, else in flight counted and the rest by statistics."""
    unfinished, tenants = cur.execute(UNFINISHED).fetchone()
    live = [state for state in TaskState if state not in FINAL]
    if unfinished <= EXACT_LIVE:
        counts = dict(cur.execute(BY_STATE, [EXACT_LIVE * 2]).fetchall())
        exact = True
    else:
        counts = dict(cur.execute(IN_FLIGHT).fetchall())
        values, shares = cur.execute(SHARES).fetchone() or (None, None)
        waiting = max(0, unfinished - sum(counts.values()))
        known = {s: f for s, f in zip(values or [], shares or [], strict=True) if s not in (4, 5)}
        total = sum(known.values()) or 1.0
        counts |= {state: round(waiting * share / total) for state, share in known.items()}
        exact = False
    return {
        "unfinished": unfinished,
        "tenants": tenants,
        "exact": exact,
        "by_state": {word(state): int(counts.get(state, 0)) for state in live},
    }


def _lines(cur: Any, now: float) -> list[dict[str, Any]]:
    values = {"lines": LINES_LOOKED_AT, "most": READY_COUNTED, "shown": LINES_SHOWN}
    return [
        {
            "tenant": tenant,
            "paused": paused,
            "category": word(Category(category)),
            "tier": tier,
            "ready": _bounded(ready, READY_COUNTED),
            "head_waits_s": max(0.0, now - since) if since is not None else None,
        }
        for tenant, paused, category, tier, ready, since in cur.execute(LINES, values).fetchall()
    ]


def _node(row: tuple[Any, ...]) -> dict[str, Any]:
    pk, name, cell, state, capacity, slots, silent_s, alive, queued, running, milli, cpu, memory = row
    slots = json.loads(slots)
    total = sum(int(count) for kind, count in slots.items() if kind != "script") or sum(map(int, slots.values()))

    def permille(used: float, of: float) -> int:
        return min(1_000, round(1_000 * used / of)) if of else 0

    return {
        "id": pk,
        "name": name,
        "cell": cell,
        "state": state if alive else "silent",
        "slots": slots,
        "queued": queued,
        "running": running,
        "slots_permille": permille(milli, total * 1_000),
        "cpu_permille": permille(cpu, capacity[0] if capacity else 0),
        "memory_permille": permille(memory, capacity[1] if len(capacity) > 1 else 0),
        "silent_s": silent_s,
    }


def _leader(row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("cell", "holder", "epoch", "leads", "renewed_s_ago"), row, strict=True))


def _alert(row: tuple[Any, ...]) -> dict[str, Any]:
    names = ("id", "rule", "cell", "subject", "detail", "acknowledged_by", "raised_at")
    return {**dict(zip(names, row, strict=True)), "says": RULES[row[1]].says if row[1] in RULES else ""}


def _tenant(row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("tenant", "unfinished", "urgent", "paused", "weight"), row, strict=True))
