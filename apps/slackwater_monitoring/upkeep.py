"""The upkeep jobs of notifications, usage and alerts; sending itself has a thread of its own."""

from __future__ import annotations

from typing import Any

from scheduler_ext.upkeep import Job
from slackwater_conf import conf
from slackwater_monitoring import usage
from slackwater_monitoring.alerts.evaluation import PULSE
from slackwater_monitoring.notify import deliveries
from slackwater_monitoring.notify.sender import disable_long_failing
from slackwater_tasks.ledger import hints
from slackwater_tasks.ledger.connection import Database

MAX_EVENTS_SPREAD = 500
MAX_PRUNED = 2_000
KEPT_DAYS = 30
"""The log of deliveries goes back this far."""
PULSE_S = 2.0
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


class MonitoringUpkeep:
    """The jobs over one connection."""

    def __init__(self) -> None:
        self.db = Database("slackwater notify upkeep")

    def jobs(self) -> list[Job]:
        return [
            Job(name="events to deliver", every_s=0.25, run=self.spread),
            Job(name="usage", every_s=5.0, run=self.add_up, full=usage.MAX_BATCH),
            Job(name="receivers that fail for days", every_s=60.0, run=self.disable),
            Job(name="old deliveries", every_s=60.0, run=self.prune, full=MAX_PRUNED),
            Job(name="sign of life", every_s=PULSE_S, run=self.pulse),
            Job(name="old alerts", every_s=60.0, run=self.forget_alerts),
            Job(name="old logins", every_s=60.0, run=self.forget_logins, full=MAX_PRUNED),
        ]

    def spread(self) -> int:
        """Turn events into deliveries for the subscriptions that want them, and notices on live streams."""
        total = 0
        while (count := self._spread()) and total < 10 * MAX_EVENTS_SPREAD:
            total += count
            if count < MAX_EVENTS_SPREAD:
                break
        return total

    def _spread(self) -> int:
        notices: list[deliveries.Notice] = []

        def work(conn: Any) -> int:
            notices.clear()
            return deliveries.spread(conn, MAX_EVENTS_SPREAD, notices)

        count = self.db.repeatable(work)
        hints.tell_changes(notices)
        return count

    def add_up(self) -> int:
        """Add attempts to the usage of tenants."""
        return self.db.repeatable(usage.add_up)

    def disable(self) -> int:
        """Disable receivers that have accepted nothing for days."""
        return disable_long_failing(self.db)

    def prune(self) -> int:
        """Forget old deliveries, the oldest first."""
        return int(self.db.conn.execute(OLD_DELIVERIES, (MAX_PRUNED, KEPT_DAYS)).rowcount)

    def pulse(self) -> int:
        """Note that upkeep runs its jobs; otherwise an alert is raised."""
        self.db.conn.execute(PULSE, {"kind": "upkeep", "cell": conf().cell})
        return 0

    def forget_alerts(self) -> int:
        """Forget alerts that were over long ago."""
        return int(self.db.conn.execute(OLD_ALERTS, (ALERTS_KEPT_DAYS,)).rowcount)

    def forget_logins(self) -> int:
        return int(self.db.conn.execute(OLD_LOGINS, (LOGINS_KEPT_DAYS, MAX_PRUNED)).rowcount)

    def close(self) -> None:
        self.db.close()
