"""Telling the administrators, once for each change, tried again until it arrives: by e-mail and by webhook."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from scheduler_ext.core.errors import SlackwaterError
from slackwater_monitoring.alerts.rules import RULES
from slackwater_monitoring.models import Alert, AlertNotice
from slackwater_monitoring.notify.webhook_client import NotSent, post
from slackwater_monitoring.notify.webhook_signature import signature
from slackwater_tasks.submission.webhook_address import parse_url

log = logging.getLogger(__name__)

AT_ONCE: Final = 100
SECONDS: Final = 15.0
LEASE_S: Final = 60.0
BACK_OFF_S: Final = (5, 30, 120, 600, 1800)
TRIES: Final = 20
"""Some nine hours in all; the alert itself stays on the pages."""


def tell() -> int:
    """Tell what is due; returns how many notices arrived. One that dies while it tells leaves them to the others."""
    arrived = 0
    for channel, send in (("email", _mail), ("webhook", _post)):
        notices = _claim(channel)
        if channel == "email":
            arrived += _sent(notices, send) if notices else 0
        else:
            arrived += sum(_sent([one], send) for one in notices)
    return arrived


def _claim(channel: str) -> list[AlertNotice]:
    with transaction.atomic():
        now = timezone.now()
        due = AlertNotice.objects.select_for_update(skip_locked=True, of=("self",)).select_related("alert")
        found = list(
            due.filter(channel=channel, done_at=None, due_at__lte=now, tries__lt=TRIES).order_by("id")[:AT_ONCE]
        )
        AlertNotice.objects.filter(pk__in=[one.pk for one in found]).update(
            tries=F("tries") + 1, due_at=now + timedelta(seconds=LEASE_S)
        )
    return found


def _sent(notices: Sequence[AlertNotice], send: Any) -> int:
    rows = AlertNotice.objects.filter(pk__in=[one.pk for one in notices])
    try:
        send(notices)
    except (OSError, NotSent, SlackwaterError) as problem:  # what SMTP raises is an OSError
        error = str(problem)[:300] or type(problem).__name__
        log.warning("administrators not told of %s: %s", notices[0].alert, error)
        wait = BACK_OFF_S[min(notices[0].tries, len(BACK_OFF_S) - 1)]
        rows.update(error=error, due_at=timezone.now() + timedelta(seconds=wait))
        return 0
    return rows.update(done_at=timezone.now(), error="")


def receivers() -> list[str]:
    """Those of the settings; where there are none, the administrators that have an address."""
    named: list[str] = settings.SLACKWATER_ALERTS["EMAILS"]
    if named:
        return named
    people = get_user_model()._default_manager.filter(is_active=True, is_superuser=True).exclude(email="")
    return list(people.order_by("email").values_list("email", flat=True))


def _mail(notices: Sequence[AlertNotice]) -> None:
    to = receivers()
    if not to:
        raise NotSent("no administrator has an e-mail address any more, and SLACKWATER_ALERT_EMAILS names none")
    first = f"{notices[0].event}: {notices[0].alert}"
    more = f" (and {len(notices) - 1} more)" if len(notices) > 1 else ""
    lines = [f"{_moment(one)}  {one.event}: {one.alert}{_detail(one.alert)}" for one in notices]
    where = (
        f"{settings.PUBLIC_URL}/admin/slackwater_monitoring/alert/"
        if settings.PUBLIC_URL
        else "the admin, under Alerts"
    )
    EmailMessage(
        subject=" ".join(f"[Slackwater] {first}{more}".split())[:200],
        body="\n".join([*lines, "", f"Acknowledge: {where}", ""]),
        from_email=settings.SLACKWATER_NOTIFY["EMAIL_FROM"], to=to, headers={"Auto-Submitted": "auto-generated"},
    ).send()  # fmt: skip


def _moment(notice: AlertNotice) -> str:
    moment = notice.alert.cleared_at if notice.event == "cleared" else notice.alert.raised_at
    return moment.isoformat(timespec="seconds") if moment else ""


def _detail(alert: Alert) -> str:
    return f" ({alert.detail})" if alert.detail else ""


def payload(notice: AlertNotice) -> dict[str, Any]:
    """What a webhook is sent."""
    alert = notice.alert
    return {
        "type": f"alert.{notice.event}",
        "timestamp": _moment(notice),
        "data": {
            "alert_id": alert.pk, "rule": alert.rule, "says": RULES[alert.rule].says if alert.rule in RULES else "",
            "cell": alert.cell, "subject": alert.subject, "detail": alert.detail,
            "since": alert.since.isoformat(), "raised_at": alert.raised_at and alert.raised_at.isoformat(),
            "cleared_at": alert.cleared_at and alert.cleared_at.isoformat(), "acknowledged_by": alert.acknowledged_by,
        },
    }  # fmt: skip


def _post(notices: Sequence[AlertNotice]) -> None:
    (notice,) = notices
    body = json.dumps(payload(notice)).encode()
    message, moment, secret = (
        f"alert-{notice.pk}",
        int(time.time()),
        settings.SLACKWATER_ALERTS["WEBHOOK_SECRET"],
    )
    headers = {
        "Content-Type": "application/json", "User-Agent": "Slackwater-Alerts/1", "webhook-id": message,
        "webhook-timestamp": str(moment),
    }  # fmt: skip
    if secret:
        headers["webhook-signature"] = signature([secret], message, moment, body)
    # The operator's own address: it may lie in the operator's own network.
    target = parse_url(settings.SLACKWATER_ALERTS["WEBHOOK"], private=True)
    answer = asyncio.run(post(target, headers, body, private=True, seconds=SECONDS))
    if not answer.is_good:
        raise NotSent(f"the webhook answered {answer.status}")
