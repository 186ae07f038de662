"""The numbers of the live page. Their cost grows with the tasks in flight or shown, never with those that wait."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import FINAL, Category, TaskState
from scheduler_ext.core.types import PER_CHILD, WorkKind
from slackwater_monitoring.alerts.rules import RULES
from slackwater_monitoring.rollups import read
from slackwater_monitoring.scaling_calls import calls
from slackwater_resources.components import SILENT_AFTER_S
from slackwater_tasks.ledger.connection import fetch_all, fetch_dicts, fetch_value
from slackwater_tasks.ledger.sql.snapshot import SLOT_KIND
from slackwater_tasks.read import shares
from slackwater_tasks.read.autoscaling import demands, waited_for, work
from slackwater_tasks.read.tasks import word

EXACT_LIVE = 20_000
"""Up to this many unfinished tasks are counted by state; of more, PostgreSQL's statistics tell the shares."""
LINES_LOOKED_AT = 300
LINES_SHOWN = 30
READY_COUNTED = 100
TENANTS_SHOWN = 10
DEAD_COUNTED = 1_000
FRESH_S = 1.0
"""The seconds for which a snapshot serves all requests."""

UNFINISHED = """
SELECT coalesce(sum(unfinished), 0)::bigint, count(*) FILTER (WHERE unfinished > 0) FROM slackwater_tenants_currentcounter
"""
BY_STATE = "SELECT state, count(*) FROM (SELECT state FROM slackwater_tasks_livetask LIMIT %s) few GROUP BY state"
IN_FLIGHT = named("SELECT state, count(*) FROM slackwater_tasks_livetask WHERE phase = :phase.IN_FLIGHT GROUP BY state")
SHARES = """
SELECT most_common_vals::text::int[], most_common_freqs::float8[] FROM pg_stats
WHERE schemaname = current_schema() AND tablename = 'slackwater_tasks_livetask' AND attname = 'state'
"""
# The active lines by a loose scan of the ready index: one descent a line, whatever the backlog. What is counted of each is asked
# for in the index's order, or a line of a few is looked for through the whole table while another has nearly all.
LINES = named("""
WITH RECURSIVE active AS (
    (SELECT line_id, 1 AS n FROM slackwater_tasks_livetask WHERE phase = :phase.READY ORDER BY line_id LIMIT 1)
    UNION ALL
    SELECT (SELECT l.line_id FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id > a.line_id
            ORDER BY l.line_id LIMIT 1), a.n + 1
    FROM active a WHERE a.line_id IS NOT NULL AND a.n < %(lines)s)
SELECT t.slug AS tenant, t.paused OR n.paused AS paused, n.category, r.slug AS tier, w.ready,
    extract(epoch FROM clock_timestamp() - h.submitted_at)::float8 AS head_waits_s
FROM active a JOIN slackwater_tasks_line n ON n.id = a.line_id JOIN slackwater_tenants_tenant t ON t.id = n.tenant_id
JOIN slackwater_resources_tier r ON r.id = n.tier_id
CROSS JOIN LATERAL (
    SELECT count(*)::int AS ready FROM (
        SELECT 1 FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id = n.id
        ORDER BY l.rank_group, l.rank, l.task_id LIMIT %(most)s + 1) x) w
LEFT JOIN LATERAL (
    SELECT k.submitted_at FROM slackwater_tasks_task k WHERE k.id = (
        SELECT l.task_id FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id = n.id
        ORDER BY l.rank_group, l.rank, l.task_id LIMIT 1)) h ON true
ORDER BY w.ready DESC, h.submitted_at LIMIT %(shown)s
""")
# A lost one stays in sight for a day, or until it is back under its name.
NODES = """
SELECT n.id, n.name, n.cell,
       CASE WHEN n.state = 'lost' OR n.lease_expires_at > clock_timestamp() THEN n.state ELSE 'silent' END AS state,
       n.capacity, n.slots::text, extract(epoch FROM clock_timestamp() - n.heartbeat_at)::float8 AS silent_s
FROM slackwater_resources_node n WHERE n.state IN ('starting', 'active', 'draining') OR (
    n.state = 'lost' AND n.heartbeat_at > clock_timestamp() - interval '1 day' AND NOT EXISTS (
        SELECT 1 FROM slackwater_resources_node o WHERE o.cell = n.cell AND o.name = n.name AND o.id > n.id))
ORDER BY n.cell, n.name LIMIT 200
"""
# Short tasks share process slots, and hold of their tier what they hold of a slot.
USED = named(f"""
SELECT l.node_id, {SLOT_KIND} AS kind, count(*) FILTER (WHERE l.state = :state.QUEUED)::int AS queued,
    count(*) FILTER (WHERE l.state = :state.RUNNING)::int AS running, sum(l.slot_milli)::bigint AS milli,
    sum(r.cpu_milli * l.slot_milli / 1000)::bigint AS cpu, sum(r.memory_mb::bigint * l.slot_milli / 1000)::bigint AS memory
FROM slackwater_tasks_livetask l JOIN slackwater_tasks_line i ON i.id = l.line_id
    JOIN slackwater_resources_tier r ON r.id = i.tier_id LEFT JOIN slackwater_resources_handler h ON h.id = l.handler_id
WHERE l.phase = :phase.IN_FLIGHT GROUP BY 1, 2
""")  # noqa: S608 - a fragment of ours
LEADERS = """
SELECT cell, holder, epoch, expires_at > clock_timestamp() AS leads,
    extract(epoch FROM clock_timestamp() - renewed_at)::float8 AS renewed_s_ago, stolen
FROM slackwater_tasks_leader ORDER BY cell
"""
# Those that left, or have been silent for long, are for the list of components to tell.
COMPONENTS = """
SELECT kind, cell, hostname || ':' || pid AS where, beat_at >= clock_timestamp() - %s * interval '1 second' AS alive,
       greatest(0, extract(epoch FROM clock_timestamp() - beat_at))::float8 AS silent_s,
       greatest(0, extract(epoch FROM clock_timestamp() - started_at))::float8 AS up_s
FROM slackwater_resources_component WHERE left_at IS NULL AND beat_at > clock_timestamp() - interval '10 minutes'
ORDER BY kind, cell, id LIMIT 200
"""
TENANTS = """
SELECT t.id, t.slug AS tenant, t.plan_id AS plan, c.unfinished, c.urgent_unfinished AS urgent, t.paused, p.weight,
    (SELECT sum(o.on_time)::float8 / nullif(sum(o.started), 0) FROM slackwater_monitoring_ontime o
     WHERE o.tenant_id = t.id AND o.day = (clock_timestamp() AT TIME ZONE 'UTC')::date) AS on_time
FROM slackwater_tenants_currentcounter c JOIN slackwater_tenants_tenant t ON t.id = c.tenant_id
    JOIN slackwater_tenants_plan p ON p.id = t.plan_id
WHERE c.unfinished > 0 ORDER BY c.unfinished DESC, t.slug LIMIT %s
"""
DEAD = "SELECT count(*) FROM (SELECT 1 FROM slackwater_tasks_deadletter LIMIT %s) few"
ALERTS = """
SELECT id, rule, cell, subject, detail, acknowledged_by, extract(epoch FROM raised_at)::float8 AS raised_at
FROM slackwater_monitoring_alert WHERE cleared_at IS NULL AND raised_at IS NOT NULL ORDER BY acknowledged_at NULLS FIRST, id
LIMIT 50
"""


@dataclass(slots=True)
class _Memory:
    """The last snapshot of this process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    taken: float = float("-inf")
    value: dict[str, Any] = field(default_factory=dict)


_memory = _Memory()


def snapshot() -> dict[str, Any]:
    """The numbers now, at most :data:`FRESH_S` old, as JSON takes them. Times are seconds of the Unix epoch."""
    with _memory.lock:
        if time.monotonic() - _memory.taken > FRESH_S:
            _memory.value = _read()
            _memory.taken = time.monotonic()
        return _memory.value


def _read() -> dict[str, Any]:
    asking = work()
    return {
        "now": fetch_value(read.NOW),
        "states": _states(),
        "dead_letters": _bounded(fetch_value(DEAD, [DEAD_COUNTED + 1]), DEAD_COUNTED),
        "lines": _lines(),
        "nodes": _nodes(),
        "leaders": fetch_dicts(LEADERS),
        "components": fetch_dicts(COMPONENTS, [SILENT_AFTER_S]),
        "tenants": fetch_dicts(TENANTS, [TENANTS_SHOWN]),
        "shares": shares.shares(waited_for(asking)),
        "rounds": shares.rounds(),
        "alerts": _alerts(),
        "scaling": calls(),
        **read.lately(),
        "demand": [
            {
                "cell": d.cell,
                "kind": f"{d.kind} {d.labels}".rstrip(),
                "slots": d.slots,
                "demand": d.demand,
                "wanted": d.wanted,
                "ratio": d.ratio,
            }
            for d in demands(asking)
        ],
    }


def brief() -> dict[str, Any]:
    """Of the same numbers those that ``top`` shows, and nothing that it does not."""
    return {"states": _states(), "alerts": _alerts(), **read.lately()}


def _alerts() -> list[dict[str, Any]]:
    return [{**row, "says": RULES[row["rule"]].says if row["rule"] in RULES else ""} for row in fetch_dicts(ALERTS)]


def _bounded(count: int, most: int) -> dict[str, Any]:
    return {"count": min(count, most), "more": count > most}


def _states() -> dict[str, Any]:
    """Unfinished tasks by state: counted while they are few, else in flight counted and the rest by statistics."""
    [(unfinished, tenants)] = fetch_all(UNFINISHED)
    live = [state for state in TaskState if state not in FINAL]
    exact = unfinished <= EXACT_LIVE
    if exact:
        counts = dict(fetch_all(BY_STATE, [EXACT_LIVE * 2]))
    else:
        counts = dict(fetch_all(IN_FLIGHT))
        waiting = max(0, unfinished - sum(counts.values()))
        known = {
            state: share
            for values, shares in fetch_all(SHARES)
            for state, share in zip(values or [], shares or [], strict=True)
            if state not in (TaskState.QUEUED, TaskState.RUNNING)
        }
        total = sum(known.values()) or 1.0
        counts |= {state: round(waiting * share / total) for state, share in known.items()}
    return {
        "unfinished": unfinished,
        "tenants": tenants,
        "exact": exact,
        "by_state": {word(state): int(counts.get(state, 0)) for state in live},
    }


def _lines() -> list[dict[str, Any]]:
    values = {"lines": LINES_LOOKED_AT, "most": READY_COUNTED, "shown": LINES_SHOWN}
    return [
        {**row, "category": word(Category(row["category"])), "ready": _bounded(row["ready"], READY_COUNTED)}
        for row in fetch_dicts(LINES, values)
    ]


def _nodes() -> list[dict[str, Any]]:
    used: dict[int, list[dict[str, Any]]] = {}
    for row in fetch_dicts(USED):
        used.setdefault(row["node_id"], []).append(row)
    return [_node(used.get(row["id"], []), **row) for row in fetch_dicts(NODES)]


def _node(used: list[dict[str, Any]], *, capacity: list[int], slots: str, **row: Any) -> dict[str, Any]:
    """One node; how much of its slots is in use is told of the kind of which it is most."""
    each = json.loads(slots)

    def permille(used: float, of: float) -> int:
        return min(1_000, round(1_000 * used / of)) if of else 0

    def held(name: str) -> float:
        """Those that run many to a child take their part of the tier."""
        return sum(float(part[name]) / PER_CHILD.get(WorkKind(part["kind"]), 1) for part in used)

    return {
        **row,
        "slots": each,
        "queued": sum(part["queued"] for part in used),
        "running": sum(part["running"] for part in used),
        "slots_permille": max((permille(part["milli"], 1_000 * each.get(part["kind"], 0)) for part in used), default=0),
        "cpu_permille": permille(held("cpu"), capacity[0]),
        "memory_permille": permille(held("memory"), capacity[1]),
    }
