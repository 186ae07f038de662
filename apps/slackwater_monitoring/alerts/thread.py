"""The thread that watches for alerts. Upkeep runs one and beat runs one, so that each is missed by the other.

They take turns: one look in each interval is enough, and the other looks when one is gone.
"""

from __future__ import annotations

import logging

from slackwater_conf import conf
from slackwater_monitoring.alerts import evaluation, sender
from slackwater_monitoring.alerts.rules import rules
from slackwater_monitoring.outbox import SendingThread

log = logging.getLogger(__name__)

EARLY = 0.9
"""A look is due again after this part of the interval, so that whoever looked last time can be in time."""


class AlertThread(SendingThread):
    """Looks every few seconds for alerts, and sends the notices of what has changed."""

    name = "alerts"

    def __init__(self) -> None:
        """``ConfigurationError`` when a rule cannot be."""
        rules()
        super().__init__(poll_s=conf().alerts_every_s)
        self.first_look_s = self.poll_s

    def step(self) -> float:
        """Look once, then send what is due."""
        if not evaluation.is_turn(EARLY * self.poll_s):
            return self.poll_s
        for alert in evaluation.look():
            log.warning("alert %s: %s", "cleared" if alert.cleared_at else "raised", alert)
        sender.send_due()
        return self.poll_s
