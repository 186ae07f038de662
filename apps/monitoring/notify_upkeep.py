"""The upkeep jobs of notifications and usage; sending itself has a thread of its own."""

from __future__ import annotations

from apps.monitoring import notify, usage
from apps.monitoring.notify_sending import disable_long_failing
from apps.tasks.connection import Database
from scheduler_ext.upkeep import Job

SPREAD = 500
PRUNE = 2_000
KEPT_DAYS = 30
"""The log of deliveries goes back this far."""
OLD_DELIVERIES = """
DELETE FROM monitoring_delivery WHERE id IN (
    SELECT id FROM monitoring_delivery ORDER BY id LIMIT %s)
AND created_at < clock_timestamp() - %s * interval '1 day'
"""


class NotifyUpkeep:
    """The jobs over one connection."""

    def __init__(self) -> None:
        self.db = Database("slackwater notify upkeep")

    def jobs(self) -> list[Job]:
        """All jobs with their intervals."""
        return [
            Job(name="events to deliver", every_s=0.25, run=self.spread),
            Job(name="usage", every_s=5.0, run=self.add_up),
            Job(name="receivers that fail for days", every_s=60.0, run=self.disable),
            Job(name="old deliveries", every_s=60.0, run=self.prune),
        ]

    def spread(self) -> int:
        """Turn what happened into deliveries, for each subscription that asked for it."""
        total = 0
        while (count := self.db.repeatable(lambda conn: notify.spread(conn, SPREAD))) and total < 10 * SPREAD:
            total += count
            if count < SPREAD:
                break
        return total

    def add_up(self) -> int:
        """Add attempts up to what tenants have used."""
        return self.db.repeatable(usage.add_up)

    def disable(self) -> int:
        """Send nothing more to receivers that have taken nothing for days."""
        return disable_long_failing(self.db)

    def prune(self) -> int:
        """Forget old deliveries, the oldest first."""
        return int(self.db.conn.execute(OLD_DELIVERIES, (PRUNE, KEPT_DAYS)).rowcount)

    def close(self) -> None:
        """Close the connection."""
        self.db.close()
