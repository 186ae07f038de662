"""E-mail to a tenant's owners: the events of a minute in one message, through Django's backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage

from slackwater_conf import conf
from slackwater_monitoring.notify.webhook_client import NotSent

OWNERS = """
SELECT u.email, t.name FROM slackwater_tenants_tenant t
LEFT JOIN slackwater_tenants_membership m ON m.tenant_id = t.id AND m.role = 'owner'
LEFT JOIN {users} u ON u.id = m.user_id AND u.is_active AND u.email <> ''
WHERE t.id = %s ORDER BY u.email
"""
SHOWN: Final = 50
"""Events listed in a message; the others are counted."""


def send_digest(conn: Any, tenant_id: int, payloads: Sequence[Mapping[str, Any]]) -> None:
    """Send one message with these events; ``NotSent`` when nobody is there to read it, ``OSError`` from SMTP."""
    users = get_user_model()._meta.db_table
    rows = conn.execute(OWNERS.format(users=users), (tenant_id,)).fetchall()
    owners = [row[0] for row in rows if row[0]]
    if not owners:
        raise NotSent("no owner of the tenant has an e-mail address")
    message = EmailMessage(
        subject=subject(rows[0][1], payloads), body=body(payloads),
        from_email=conf().email_from, to=owners,
        headers={"Auto-Submitted": "auto-generated"},
    )  # fmt: skip
    message.send()


def subject(tenant: str, payloads: Sequence[Mapping[str, Any]]) -> str:
    """The most frequent events with their counts: ``Acme: 3 failed, 1 late``."""
    counts = Counter(_word(payload["type"]) for payload in payloads)
    text = f"{tenant}: " + ", ".join(f"{count} {word}" for word, count in counts.most_common(4))
    return " ".join(text.split())[:200]


def body(payloads: Sequence[Mapping[str, Any]]) -> str:
    """One line for each event, oldest first."""
    lines = [_line(payload) for payload in sorted(payloads, key=lambda one: str(one["timestamp"]))]
    more = [f"… and {len(lines) - SHOWN} more."] if len(lines) > SHOWN else []
    end = "You get this because your organisation asked to be told by e-mail; its owners can change that."
    return "\n".join([*lines[:SHOWN], *more, "", end, ""])


def _word(event: str) -> str:
    return event.removeprefix("task.").replace("_", " ").replace(".", " ")


def _line(payload: Mapping[str, Any]) -> str:
    data = payload["data"]
    what = data.get("name") or data.get("handler") or data.get("quota") or "task"
    ids = ("task_id", "workflow_id", "schedule_id", "key_id")
    of = next((data[name] for name in ids if data.get(name)), f"{data.get('used')} of {data.get('limit')}")
    text = f"{payload['timestamp']}  {_word(payload['type'])}: {what} ({of})"
    if data.get("reason"):
        text += f": {data['reason']}"
    if data.get("try_again_at"):
        text += f"; try again at {data['try_again_at']}"
    return " ".join(text.split())
