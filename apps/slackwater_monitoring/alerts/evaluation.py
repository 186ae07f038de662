"""Raising and clearing alerts: a condition must last before it raises one, and be over as long before it clears.

Any number of processes may watch: each look is one transaction under a lock that only one gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from scheduler_ext.core.errors import Conflict
from slackwater_conf import conf
from slackwater_monitoring.alerts.conditions import Signal, signals
from slackwater_monitoring.alerts.rules import Rule, rules
from slackwater_monitoring.alerts.sender import receivers
from slackwater_monitoring.models import Alert, AlertNotice
from slackwater_tasks.ledger.connection import execute, fetch_all

LOCK: Final = 0x51AC_A1E7
FORGET_AFTER_S: Final = 60.0
"""A condition that nobody has checked for this long counts as new."""
PULSE = """
INSERT INTO slackwater_monitoring_pulse (kind, cell, beat_at) VALUES (%(kind)s, %(cell)s, clock_timestamp())
ON CONFLICT (kind, cell) DO UPDATE SET beat_at = excluded.beat_at
"""
TURN = f"""{PULSE} WHERE slackwater_monitoring_pulse.beat_at < clock_timestamp() - %(every)s * interval '1 second'"""


def pulse(kind: str) -> None:
    """Note that a process of this kind (``beat``, ``upkeep``) is at work in this cell."""
    execute(PULSE, {"kind": kind, "cell": conf().cell})


def is_turn(every_s: float) -> bool:
    """Whether nobody in this cell has looked for so long; then it counts as looked."""
    return execute(TURN, {"kind": "alerts", "cell": conf().cell, "every": every_s}) > 0


def look(now: datetime | None = None) -> list[Alert]:
    """Look once; returns the alerts that were raised or cleared. ``now``: other than the database's clock, in tests."""
    known = rules()
    with transaction.atomic():
        [(alone, clock)] = fetch_all("SELECT pg_try_advisory_xact_lock(%s), clock_timestamp()", (LOCK,))
        if not alone:
            return []
        moment = now or clock
        changed = _apply(known, signals(known, moment), moment)
        AlertNotice.objects.bulk_create(
            AlertNotice(alert=alert, event="cleared" if alert.cleared_at else "raised", channel=channel, due_at=moment)
            for alert in changed
            for channel in channels()
        )
        return changed


def channels() -> list[str]:
    """The configured channels; each page and the metrics show alerts in any case."""
    webhook = ["webhook"] if conf().alert_webhook else []
    return ["email", *webhook] if receivers() else webhook


def _apply(known: Mapping[str, Rule], found: Sequence[Signal], now: datetime) -> list[Alert]:
    open_alerts = {(a.rule, a.cell, a.subject): a for a in Alert.objects.filter(cleared_at=None)}
    changed = []
    for signal in found:
        alert = open_alerts.pop(signal.key, None)
        if alert is None and signal.raises:
            alert = Alert(rule=signal.rule, cell=signal.cell, subject=signal.subject, since=now, last_seen_at=now)
        if alert is not None and _holds(alert, signal, known[signal.rule], now):
            changed.append(alert)
    return changed + [one for one in open_alerts.values() if _is_over(one, known.get(one.rule), now)]


def _holds(alert: Alert, signal: Signal, rule: Rule, now: datetime) -> bool:
    """Note that the condition holds; True when that raises the alert."""
    if alert.raised_at is None and not signal.raises:
        alert.delete()
        return False
    if alert.raised_at is None and now - alert.last_seen_at > timedelta(seconds=FORGET_AFTER_S):
        alert.since = now
    alert.last_seen_at, alert.quiet_since, alert.detail = now, None, signal.detail[:300]
    raised = alert.raised_at is None and now - alert.since >= timedelta(seconds=rule.after_s)
    if raised:
        alert.raised_at = now
    alert.save()
    return raised


def _is_over(alert: Alert, rule: Rule | None, now: datetime) -> bool:
    """Note that the condition is over; True when that clears the alert. One that was never raised is deleted."""
    if alert.raised_at is None:
        alert.delete()
        return False
    alert.quiet_since = alert.quiet_since or now
    cleared = rule is None or now - alert.quiet_since >= timedelta(seconds=rule.clear_after_s)
    if cleared:
        alert.cleared_at = now
    alert.save()
    return cleared


def acknowledge(alert: Alert, actor: str) -> None:
    """Acknowledge an alert. ``Conflict`` when it is acknowledged already, or over."""
    free = Alert.objects.filter(pk=alert.pk, acknowledged_at=None, cleared_at=None).exclude(raised_at=None)
    if not free.update(acknowledged_at=timezone.now(), acknowledged_by=actor[:120]):
        raise Conflict("it is over, or somebody has acknowledged it already")
    alert.refresh_from_db()
