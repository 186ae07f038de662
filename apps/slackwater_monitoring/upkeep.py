"""The upkeep jobs of notifications, usage and alerts; sending itself has a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from scheduler_ext.upkeep import Job
from slackwater_conf import conf
from slackwater_monitoring import usage
from slackwater_monitoring.alerts.evaluation import PULSE
from slackwater_monitoring.notify import deliveries, tenant_events, workflow_events
from slackwater_monitoring.notify.sender import disable_long_failing
from slackwater_monitoring.receipts import pages, terms
from slackwater_monitoring.rollups import fill
from slackwater_tasks.ledger import hints
from slackwater_tasks.ledger.connection import Database

MAX_EVENTS_SPREAD = 500
MAX_ENDED = 200
MAX_PRUNED = 2_000
KEPT_DAYS = 30
"""The log of deliveries goes back this far."""
PULSE_S = 4.0
ALERTS_KEPT_DAYS = 90
LOGINS_KEPT_DAYS = 365
OLD_LOGINS = """
DELETE FROM slackwater_monitoring_login WHERE id IN (
    SELECT id FROM slackwater_monitoring_login WHERE at < clock_timestamp() - %s * interval '1 day' ORDER BY id LIMIT %s)
"""
OLD_ALERTS = """
WITH old AS (
    SELECT id FROM slackwater_monitoring_alert WHERE cleared_at < clock_timestamp() - %s * interval '1 day'),
notices AS (DELETE FROM slackwater_monitoring_alertnotice n USING old WHERE n.alert_id = old.id)
DELETE FROM slackwater_monitoring_alert a USING old WHERE a.id = old.id
"""
OLD_DELIVERIES = """
DELETE FROM slackwater_monitoring_delivery WHERE id IN (
    SELECT id FROM slackwater_monitoring_delivery ORDER BY id LIMIT %s)
AND created_at < clock_timestamp() - %s * interval '1 day'
"""


def jobs(db: Database, delivers: Callable[[], None] = lambda: None) -> list[Job]:
    """All jobs with their intervals, over upkeep's connection; ``delivers`` is called when there are new deliveries."""

    def delete(statement: str, *params: int) -> Callable[[], int]:
        return lambda: int(db.conn.execute(statement, params).rowcount)

    return [
        Job(name="events to deliver", every_s=0.25, run=partial(spread, db, delivers), over=("events",)),
        Job(
            name="ended workflows",
            every_s=0.5,
            run=partial(end_workflows, db),
            full=MAX_ENDED,
            over=("workflows",),
        ),
        Job(name="failed firings and quotas", every_s=5.0, run=partial(_told, db, tenant_events.tell_soon, MAX_ENDED)),
        Job(name="keys that expire", every_s=60.0, run=partial(_told, db, tenant_events.tell_later, MAX_ENDED)),
        Job(name="terms", every_s=5.0, run=partial(db.repeatable, terms.note)),
        Job(name="usage", every_s=5.0, run=partial(db.repeatable, usage.add_up), full=usage.MAX_BATCH),
        Job(name="sample of queues and slots", every_s=2.0, run=_sampling(db), ordinary=True),
        Job(
            name="old figures",
            every_s=60.0,
            run=partial(db.repeatable, partial(fill.forget, most=MAX_PRUNED)),
            full=MAX_PRUNED,
        ),
        Job(name="receivers that fail for days", every_s=60.0, run=partial(disable_long_failing, db)),
        Job(name="old deliveries", every_s=60.0, run=delete(OLD_DELIVERIES, MAX_PRUNED, KEPT_DAYS), full=MAX_PRUNED),
        Job(name="sign of life", every_s=PULSE_S, run=partial(pulse, db)),
        Job(name="old receipts", every_s=60.0, run=delete(pages.OLD, pages.KEPT_DAYS, MAX_PRUNED), full=MAX_PRUNED),
        Job(name="old alerts", every_s=60.0, run=delete(OLD_ALERTS, ALERTS_KEPT_DAYS)),
        Job(name="old logins", every_s=60.0, run=delete(OLD_LOGINS, LOGINS_KEPT_DAYS, MAX_PRUNED), full=MAX_PRUNED),
    ]


def _sampling(db: Database) -> Callable[[], int]:
    """Take a sample when one is due; after one of this process's own there is none to ask for in a while."""
    next_at = 0.0

    def sample() -> int:
        nonlocal next_at
        if time.monotonic() < next_at:
            return 0
        taken = db.repeatable(fill.sample)
        next_at = time.monotonic() + (fill.SAMPLE_S - 1.0) * taken
        return taken

    return sample


def spread(db: Database, delivers: Callable[[], None] = lambda: None) -> int:
    """Turn events into deliveries for the subscriptions that want them, and notices on live streams."""
    total = 0
    while (count := _spread(db)) and total < 10 * MAX_EVENTS_SPREAD:
        total += count
        delivers()
        if count < MAX_EVENTS_SPREAD:
            break
    return total


def _spread(db: Database) -> int:
    return _told(db, deliveries.spread, MAX_EVENTS_SPREAD)


def end_workflows(db: Database) -> int:
    """Mark workflows as ended whose tasks all have; tell who asked for that, and live streams."""
    return _told(db, workflow_events.end_workflows, MAX_ENDED)


def _told(db: Database, job: Callable[[Any, int, list[deliveries.Notice]], int], most: int) -> int:
    """Do a job that may be repeated, and tell live streams what it noted at last."""
    notices: list[deliveries.Notice] = []

    def work(conn: Any) -> int:
        notices.clear()
        return job(conn, most, notices)

    count = db.repeatable(work)
    hints.tell_changes(notices)
    return count


def pulse(db: Database) -> int:
    """Note that upkeep runs its jobs; otherwise an alert is raised."""
    db.conn.execute(PULSE, {"kind": "upkeep", "cell": conf().cell})
    return 0
