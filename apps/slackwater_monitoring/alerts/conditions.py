"""The conditions that hold now, by the ledger and its database's clock. Reads tasks in flight and the last attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any, Final

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category
from slackwater_conf import conf
from slackwater_monitoring.alerts.rules import Rule
from slackwater_monitoring.health import redis_error
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.ledger.sql.snapshot import ACTIVE_LINES
from slackwater_tasks.read.autoscaling import demands
from slackwater_tasks.read.tasks import word

RECENT: Final = 20_000
"""Attempts looked at, the newest."""
MIN_ATTEMPTS: Final = 20
"""Fewer attempts within a minute raise no alert about failures."""
REDIS_TIMEOUT_S: Final = 1.0

NODES = named("""
SELECT n.cell, n.name, 'nothing runs on it' FROM slackwater_resources_node n
WHERE n.state = 'active' AND n.lease_expires_at > %(now)s AND n.started_at < %(now)s - %(for)s * interval '1 second'
    AND NOT EXISTS (SELECT 1 FROM slackwater_tasks_livetask l WHERE l.phase = :phase.IN_FLIGHT AND l.node_id = n.id)
    AND NOT EXISTS (
        SELECT 1 FROM (SELECT node_id, finished_at FROM slackwater_tasks_attempt ORDER BY id DESC LIMIT %(recent)s) a
        WHERE a.node_id = n.id AND a.finished_at > %(now)s - %(for)s * interval '1 second')
""")
LOST = """
SELECT DISTINCT n.cell, n.name, 'it ran on ' || n.hostname FROM slackwater_resources_node n
WHERE (n.state = 'lost' OR n.state IN ('starting', 'active', 'draining') AND n.lease_expires_at < %(now)s)
    AND n.heartbeat_at > %(now)s - %(for)s * interval '1 second'
    AND NOT EXISTS (
        SELECT 1 FROM slackwater_resources_node x WHERE x.cell = n.cell AND x.name = n.name AND x.started_at > n.started_at)
"""
# 2 failed, 4 over its cap, 6 lost, 7 over its tier.
FAILURES = named("""
SELECT n.cell, count(*) FILTER (WHERE a.finished_at > %(now)s - interval '60 seconds'),
       count(*) FILTER (WHERE a.finished_at > %(now)s - interval '60 seconds'
           AND a.outcome IN (:outcome.FAILED, :outcome.CAP_EXCEEDED, :outcome.WORKER_LOST, :outcome.RESOURCE_EXCEEDED)),
       count(*) FILTER (WHERE a.finished_at <= %(now)s - interval '60 seconds'),
       count(*) FILTER (WHERE a.finished_at <= %(now)s - interval '60 seconds'
           AND a.outcome IN (:outcome.FAILED, :outcome.CAP_EXCEEDED, :outcome.WORKER_LOST, :outcome.RESOURCE_EXCEEDED))
FROM (SELECT node_id, outcome, finished_at FROM slackwater_tasks_attempt ORDER BY id DESC LIMIT %(recent)s) a
JOIN slackwater_resources_node n ON n.id = a.node_id GROUP BY 1
""")
UNLED = """
SELECT c.cell, '', '' FROM (
    SELECT cell FROM slackwater_tenants_tenant UNION
    SELECT cell FROM slackwater_resources_node WHERE state = 'active' AND lease_expires_at > %(now)s) c
LEFT JOIN slackwater_tasks_leader l ON l.cell = c.cell
WHERE l.cell IS NULL OR l.expires_at < %(now)s - %(for)s * interval '1 second'
"""
SILENT = """
SELECT p.cell, '', 'the last sign of life was ' || round(extract(epoch FROM %(now)s - p.beat_at)) || ' s ago'
FROM slackwater_monitoring_pulse p WHERE p.kind = %(rule)s AND p.beat_at < %(now)s - %(for)s * interval '1 second'
"""
STUCK = named("""
SELECT t.cell, 'claims', count(*) || ' claims are not taken back'
FROM slackwater_tasks_livetask l JOIN slackwater_tenants_tenant t ON t.id = l.tenant_id
WHERE l.phase = :phase.IN_FLIGHT AND l.state = :state.QUEUED
    AND l.claim_expires_at < %(now)s - %(for)s * interval '1 second' GROUP BY 1
""")
LATE = named(f"""{ACTIVE_LINES}
SELECT t.cell, n.category, extract(epoch FROM %(now)s - min(h.latest_start))::float8
FROM active a JOIN slackwater_tasks_line n ON n.id = a.line_id JOIN slackwater_tenants_tenant t ON t.id = n.tenant_id
CROSS JOIN LATERAL (
    SELECT l.latest_start FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id = a.line_id
    ORDER BY l.rank_group, l.rank, l.task_id LIMIT 1) h
WHERE NOT (n.paused OR t.paused) AND h.latest_start < %(now)s - %(for)s * interval '1 second' GROUP BY 1, 2
""")  # noqa: S608 - statements of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A condition that holds now."""

    rule: str
    cell: str = ""
    subject: str = ""
    detail: str = ""
    raises: bool = True
    """False: not bad enough to raise an alert, but enough to keep one open."""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.rule, self.cell, self.subject)


Check = Callable[[Rule, datetime], Iterable[Signal]]


def signals(rules: Mapping[str, Rule], now: datetime) -> list[Signal]:
    """The conditions that hold at ``now``, for the rules that are enabled."""
    return [
        signal
        for name, rule in rules.items()
        if rule.enabled
        for signal in CHECKS[name](rule, now)
    ]  # fmt: skip


def _rows(query: str, rule: Rule, now: datetime, name: str = "") -> list[tuple[Any, ...]]:
    return fetch_all(query, {"now": now, "for": rule.threshold, "recent": RECENT, "rule": name})


def _told_by(query: str, name: str) -> Check:
    """The check of a rule that one statement tells: it selects the cell, the subject and the detail."""
    return lambda rule, now: (
        Signal(rule=name, cell=cell, subject=subject, detail=detail)
        for cell, subject, detail in _rows(query, rule, now, name)
    )


def _capacity(rule: Rule, now: datetime) -> Iterator[Signal]:
    del now
    for one in demands():
        if one.demand and one.slots < one.wanted * rule.threshold:
            detail = (
                f"{one.slots:.0f} {one.kind} slots for a demand of {ceil(one.demand)}; {ceil(one.wanted)} are wanted"
            )
            subject = f"{one.kind} {one.labels}"[:120].rstrip()
            yield Signal(rule="capacity_low", cell=one.cell, subject=subject, detail=detail)


def _failures(rule: Rule, now: datetime) -> Iterator[Signal]:
    for cell, total, bad, total_before, bad_before in _rows(FAILURES, rule, now):
        part, before = bad / max(1, total), bad_before / max(1, total_before)
        if total >= MIN_ATTEMPTS and bad and part >= rule.threshold / 2:
            yield Signal(
                rule="failures_rising", cell=cell, raises=part >= rule.threshold and part >= 2 * before,
                detail=f"{bad} of {total} attempts in the last minute; {before:.1%} before",
            )  # fmt: skip


def _queue(rule: Rule, now: datetime) -> Iterator[Signal]:
    yield from _told_by(STUCK, "queue")(rule, now)
    if error := redis_error(REDIS_TIMEOUT_S):
        yield Signal(rule="queue", cell=conf().cell, subject="redis", detail=f"Redis does not answer: {error}")


def _late(rule: Rule, now: datetime) -> Iterator[Signal]:
    for cell, category, late in _rows(LATE, rule, now):
        detail = f"by {late:.0f} s"
        yield Signal(rule="work_late", cell=cell, subject=word(Category(category)), detail=detail)


CHECKS: Final[Mapping[str, Check]] = {
    "node_unused": _told_by(NODES, "node_unused"), "node_failed": _told_by(LOST, "node_failed"),
    "capacity_low": _capacity, "failures_rising": _failures, "dispatcher": _told_by(UNLED, "dispatcher"),
    "beat": _told_by(SILENT, "beat"), "upkeep": _told_by(SILENT, "upkeep"), "queue": _queue, "work_late": _late,
}  # fmt: skip
"""By the names of the rules."""
