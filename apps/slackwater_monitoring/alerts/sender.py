"""Notices to the administrators, one for each change of an alert: by e-mail and by webhook, until they arrive."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import parseaddr
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.db import connection

from scheduler_ext.core.errors import ConfigurationError, InvalidInput, SlackwaterError
from slackwater_conf import conf
from slackwater_monitoring.alerts.rules import RULES
from slackwater_monitoring.models import Alert, AlertNotice
from slackwater_monitoring.notify.webhook_client import NotSent, post
from slackwater_monitoring.notify.webhook_signature import key_of, signed_headers
from slackwater_monitoring.outbox import DATABASE_AWAY, LeasedOutbox, Sent, back_off_s, outcomes
from slackwater_tasks.field_kinds import utc_text
from slackwater_tasks.submission.webhook_address import parse_url

log = logging.getLogger(__name__)

MAX_BATCH: Final = 100
TIMEOUT_S: Final = 15.0
BACK_OFF_S: Final = (5, 30, 120, 600, 1800)
MAX_TRIES: Final = 20
"""Some nine hours in all; the alert itself stays on the pages."""

CLAIM = """
WITH due AS (
    SELECT id FROM slackwater_monitoring_alertnotice
    WHERE channel = %(channel)s AND done_at IS NULL AND due_at <= clock_timestamp() AND tries < %(max_tries)s
    ORDER BY id LIMIT %(most)s FOR UPDATE SKIP LOCKED)
UPDATE slackwater_monitoring_alertnotice n SET tries = n.tries + 1,
    due_at = clock_timestamp() + %(lease)s * interval '1 second'
FROM due WHERE n.id = due.id RETURNING n.id
"""
RECORD = f"""
UPDATE slackwater_monitoring_alertnotice n SET done_at = CASE WHEN u.arrived THEN clock_timestamp() END,
    due_at = clock_timestamp() + coalesce(u.wait, 0) * interval '1 second', error = u.note->>'error'
FROM {outcomes("bigint")} WHERE n.id = u.id AND n.tries = u.token AND n.done_at IS NULL
"""  # noqa: S608 - statements of ours
NOTICES: Final = LeasedOutbox(claim_sql=CLAIM, record_sql=RECORD)

Send = Callable[[Sequence[AlertNotice]], None]


def send_due() -> int:
    """Send the notices that are due; returns how many arrived."""
    mails, posts = _claimed("email"), _claimed("webhook")
    return (_sent(mails, _mail) if mails else 0) + sum(_sent([one], _post) for one in posts)


def _claimed(channel: str) -> list[AlertNotice]:
    rows = NOTICES.claim(connection, channel=channel, max_tries=MAX_TRIES, most=MAX_BATCH)
    found = AlertNotice.objects.select_related("alert").filter(pk__in=[row[0] for row in rows])
    return list(found.order_by("pk"))


def _sent(notices: Sequence[AlertNotice], send: Send) -> int:
    error = ""
    try:
        send(notices)
    except DATABASE_AWAY:
        raise
    except Exception as problem:
        error = str(problem)[:300] or type(problem).__name__
        known = isinstance(problem, (OSError, NotSent, SlackwaterError))  # what SMTP raises is an OSError
        log.warning("administrators not told of %s: %s", notices[0].alert, error, exc_info=not known)
    wait_s = back_off_s(BACK_OFF_S, notices[0].tries, random.Random()) if error else None
    note = {"error": error}
    NOTICES.record(
        connection, [Sent(id=one.pk, token=one.tries, arrived=not error, wait_s=wait_s, note=note) for one in notices]
    )
    return 0 if error else len(notices)


def receivers() -> list[str]:
    """The addresses of the settings; where there are none, those of the administrators."""
    named = list(conf().alert_emails)
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
        f"{conf().public_url}/admin/slackwater_monitoring/alert/" if conf().public_url else "the admin, under Alerts"
    )
    EmailMessage(
        subject=" ".join(f"[Slackwater] {first}{more}".split())[:200],
        body="\n".join([*lines, "", f"Acknowledge: {where}", ""]),
        from_email=conf().email_from, to=to, headers={"Auto-Submitted": "auto-generated"},
    ).send()  # fmt: skip


def _moment(notice: AlertNotice) -> str:
    moment = notice.alert.cleared_at if notice.event == "cleared" else notice.alert.raised_at
    return moment.isoformat(timespec="seconds") if moment else ""


def _detail(alert: Alert) -> str:
    return f" ({alert.detail})" if alert.detail else ""


def payload(notice: AlertNotice) -> dict[str, Any]:
    """The payload of a webhook."""
    alert = notice.alert
    return {
        "type": f"alert.{notice.event}",
        "timestamp": _moment(notice),
        "data": {
            "alert_id": alert.pk, "rule": alert.rule, "says": RULES[alert.rule].says if alert.rule in RULES else "",
            "cell": alert.cell, "subject": alert.subject, "detail": alert.detail,
            "since": utc_text(alert.since), "raised_at": alert.raised_at and utc_text(alert.raised_at),
            "cleared_at": alert.cleared_at and utc_text(alert.cleared_at), "acknowledged_by": alert.acknowledged_by,
        },
    }  # fmt: skip


def _post(notices: Sequence[AlertNotice]) -> None:
    (notice,) = notices
    tell("alert_webhook", "Slackwater-Alerts/1", f"alert-{notice.pk}", json.dumps(payload(notice)).encode())


# -- the operator's own addresses -----------------------------------------------------------------------------------------
def tell(setting: str, agent: str, message_id: str, body: bytes) -> None:
    """Post a message to the address that ``setting`` has.

    ``NotSent`` when it does not arrive; ``ConfigurationError`` names a setting that cannot be used.
    """
    for fault in (*_address(setting), *_secret()):
        raise fault
    keys = [secret] if (secret := conf().alert_webhook_secret) else []
    headers = signed_headers(agent, keys, message_id, int(time.time()), body)
    target = parse_url(getattr(conf(), setting), private=True)
    answer = asyncio.run(post(target, headers, body, private=True, seconds=TIMEOUT_S))
    if not answer.is_good:
        raise NotSent(f"it answered {answer.status}")


def faults() -> Iterator[ConfigurationError]:
    """What of the settings cannot be used to tell the operator of anything, each with the name of the setting."""
    for setting in ("alert_webhook", "scale_webhook"):
        if getattr(conf(), setting):
            yield from _address(setting)
    yield from _secret()
    for each in conf().alert_emails:
        local, _, domain = parseaddr(each)[1].rpartition("@")
        if not local or not domain:
            yield ConfigurationError(f"{each!r} is no e-mail address", field="SLACKWATER_ALERT_EMAILS")


def _address(setting: str) -> Iterator[ConfigurationError]:
    """The fault of an address, if it has one. It is the operator's own: it may lie in the operator's own network."""
    try:
        parse_url(getattr(conf(), setting), private=True)
    except InvalidInput as error:
        yield ConfigurationError(error.message, field=f"SLACKWATER_{setting.upper()}")


def _secret() -> Iterator[ConfigurationError]:
    """The fault of the secret, if it has one: what it is stays unsaid."""
    if secret := conf().alert_webhook_secret:
        try:
            key_of(secret)
        except ValueError:
            yield ConfigurationError("must be whsec_ and a key in base64", field="SLACKWATER_ALERT_WEBHOOK_SECRET")
