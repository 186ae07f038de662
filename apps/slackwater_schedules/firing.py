"""Firing schedules that are due: claimed in batches, each firing a row, submitted in the same transaction.

Any number of processes may call :func:`fire_due` at once. A schedule is worked on under its row's lock, rows that
another holds are passed over, and all that a batch does becomes true together or not at all.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models.functions import Now

from scheduler_ext.core.errors import InvalidInput
from slackwater_schedules.models import Schedule
from slackwater_schedules.occurrences import Due, Missed, MissedPolicy, Plan, jitter, plan
from slackwater_schedules.recurrence import Rule
from slackwater_schedules.rules import read_rule
from slackwater_schedules.submission import Firing, submit_all
from slackwater_tasks.ledger.connection import execute, fetch_all, fetch_value

log = logging.getLogger(__name__)

BATCH: Final = 200
"""Schedules a transaction takes: it holds the counters of their tenants until it commits."""
FIRING_BUDGET: Final = 5_000
"""Firings a transaction writes, apart from those of its first schedule."""
STOPPED_S: Final = 8
"""A beat that was stopped inside a batch loses it after this time, so that another can take over."""

NEXT_DUE: Final = """
SELECT extract(epoch FROM next_due_at - clock_timestamp())::float8 FROM slackwater_schedules_schedule
WHERE next_due_at IS NOT NULL ORDER BY next_due_at LIMIT 1
"""
KNOWN: Final = """
SELECT f.schedule_id, f.fire_at FROM unnest(%s::uuid[], %s::timestamptz[]) AS u(schedule, fire_at)
JOIN slackwater_schedules_schedulefire f ON f.schedule_id = u.schedule AND f.fire_at = u.fire_at
"""
INSERT: Final = """
INSERT INTO slackwater_schedules_schedulefire AS f (schedule_id, tenant_id, fire_at, due_at, fired_at, lateness_ms,
    outcome, task_id, workflow_id, error, backfill, version)
SELECT u.schedule, u.tenant, u.fire_at, u.due_at, clock_timestamp(),
    greatest(0, extract(epoch FROM clock_timestamp() - u.due_at) * 1000)::bigint, u.outcome, u.task, u.workflow, u.error,
    %(backfill)s, u.version
FROM unnest(%(schedules)s::uuid[], %(tenants)s::bigint[], %(fires)s::timestamptz[], %(dues)s::timestamptz[],
    %(outcomes)s::text[], %(tasks)s::uuid[], %(workflows)s::uuid[], %(errors)s::text[], %(versions)s::int[])
    AS u(schedule, tenant, fire_at, due_at, outcome, task, workflow, error, version)
"""
REPLACE: Final = """
ON CONFLICT (schedule_id, fire_at) DO UPDATE SET fired_at = excluded.fired_at, lateness_ms = excluded.lateness_ms,
    outcome = excluded.outcome, task_id = excluded.task_id, workflow_id = excluded.workflow_id, error = excluded.error,
    backfill = true, version = excluded.version
WHERE f.outcome <> 'submitted'
"""
ADVANCE: Final = """
UPDATE slackwater_schedules_schedule s SET next_fire_at = u.fire_at, next_due_at = u.due_at
FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[]) AS u(id, fire_at, due_at) WHERE s.id = u.id
"""
PRUNE_FIRINGS: Final = """
DELETE FROM slackwater_schedules_schedulefire WHERE id = ANY(ARRAY(
    SELECT id FROM slackwater_schedules_schedulefire WHERE fired_at < statement_timestamp() - %s * interval '1 second'
    ORDER BY fired_at LIMIT %s FOR UPDATE SKIP LOCKED))
"""


def rule_of(schedule: Schedule) -> Rule:
    """The schedule's rule; ``InvalidInput`` when what is stored is no rule (any more)."""
    return read_rule(
        schedule.kind,
        schedule.rule,
        zone=schedule.time_zone,
        anchor=schedule.anchor_at,
        start=schedule.start_at,
        end=schedule.end_at,
    )


def due_time(schedule: Schedule, fire_at: datetime | None) -> datetime | None:
    """The time at which a firing is due: its own time and its jitter."""
    return None if fire_at is None else fire_at + jitter(schedule.pk.bytes, fire_at, schedule.jitter_s)


def seconds_to_next() -> float | None:
    """Seconds until the next schedule is due by the database's clock, negative when it is late; None without any."""
    found: float | None = fetch_value(NEXT_DUE)
    return found


def fire_due(limit: int = BATCH) -> Counter[str]:
    """Fire up to ``limit`` schedules whose time has come by the database's clock, in one transaction.

    Returns how many ``schedules`` that were, and how many firings had each outcome.
    """
    with transaction.atomic():
        # Local to this transaction.
        fetch_value("SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [f"{STOPPED_S}s"])
        # Unscoped: a beat serves all tenants.
        due = Schedule.objects.unscoped().filter(next_due_at__lte=Now()).order_by("next_due_at", "tenant_id")
        claimed = list(due.annotate(db_now=Now()).select_for_update(skip_locked=True)[:limit])
        return fire_locked(claimed, claimed[0].db_now) if claimed else Counter()


def fire_locked(schedules: Sequence[Schedule], now: datetime) -> Counter[str]:
    """Fire schedules whose rows the caller has locked, and move each on to its next firing."""
    firings: list[Firing] = []
    worked: list[Schedule] = []
    for schedule in schedules:
        if len(firings) >= FIRING_BUDGET:
            break
        worked.append(schedule)
        firings += _plan(schedule, now)
    firings = _new(firings)
    submit_all([firing for firing in firings if firing.due.run])
    write_fires(firings)
    _advance(worked)
    return Counter(schedules=len(worked)) + Counter(str(firing.outcome) for firing in firings)


def _plan(schedule: Schedule, now: datetime) -> list[Firing]:
    """The schedule's firings that are due; moves its next firing on, in memory."""
    first = schedule.next_fire_at
    if first is None or schedule.paused:
        schedule.next_due_at = None
        return []
    try:
        found = plan_of(schedule, first, now)
    except InvalidInput as error:
        log.exception("schedule %s of tenant %s is stopped: its rule is none", schedule.name, schedule.tenant_id)
        broken = Firing(schedule=schedule, due=Due(fire_at=first, due_at=schedule.next_due_at or first, run=False))
        broken.fail(error)
        schedule.next_fire_at = schedule.next_due_at = None
        return [broken]
    schedule.next_fire_at, schedule.next_due_at = found.next_fire, due_time(schedule, found.next_fire)
    return [Firing(schedule=schedule, due=due) for due in found.due]


def plan_of(schedule: Schedule, first: datetime, now: datetime) -> Plan:
    """The firings of a schedule that are due at ``now``, from its firing ``first`` on."""
    policy = MissedPolicy(
        kind=Missed(schedule.missed),
        after=timedelta(seconds=schedule.missed_after_s),
        limit=schedule.missed_limit,
        window=timedelta(seconds=schedule.missed_window_s),
    )
    return plan(rule_of(schedule), first, now, policy, seed=schedule.pk.bytes, jitter_s=schedule.jitter_s)


def _new(firings: list[Firing]) -> list[Firing]:
    """Leave out firings that have a row: a backfill may have made them. Safe under the schedules' locks."""
    if not firings:
        return []
    known = set(fetch_all(KNOWN, ([f.schedule.pk for f in firings], [f.due.fire_at for f in firings])))
    return [f for f in firings if (f.schedule.pk, f.due.fire_at) not in known] if known else firings


def write_fires(firings: Sequence[Firing], *, backfill: bool = False) -> None:
    """Write the firings' rows. One that exists already undoes the whole transaction, except that a backfill replaces
    what was not submitted."""
    if not firings:
        return
    params: dict[str, Any] = {
        "schedules": [f.schedule.pk for f in firings],
        "tenants": [f.schedule.tenant_id for f in firings],
        "fires": [f.due.fire_at for f in firings],
        "dues": [f.due.due_at for f in firings],
        "outcomes": [str(f.outcome) for f in firings],
        "tasks": [f.task_id for f in firings],
        "workflows": [f.workflow_id for f in firings],
        "errors": [f.error for f in firings],
        "versions": [f.schedule.version for f in firings],
        "backfill": backfill,
    }
    execute(INSERT + (REPLACE if backfill else ""), params)


def _advance(schedules: Sequence[Schedule]) -> None:
    execute(
        ADVANCE, ([s.pk for s in schedules], [s.next_fire_at for s in schedules], [s.next_due_at for s in schedules])
    )


def prune_fires(older_than_s: int, limit: int) -> int:
    """Delete up to ``limit`` rows of firings older than that; returns how many."""
    return execute(PRUNE_FIRINGS, (older_than_s, limit))
