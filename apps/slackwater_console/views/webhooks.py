"""Webhooks: the list, the page of one with its deliveries, a new one."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse
from django.utils.html import format_html

from slackwater_api.v1.shapes.notify import CHANNELS, DELIVERY_STATES, EVENT_NAMES
from slackwater_console.acts import button, buttons
from slackwater_console.forms import Field, make
from slackwater_console.page import At, page
from slackwater_console.templatetags.console import badge, clock, moment
from slackwater_console.views.tasks import filters

FIELDS: Final = (
    Field(name="channel", label="Sent", kind="choice", choices=CHANNELS, required=True, value="webhook",
          help="By e-mail: to the admins; task: where each task says."),
    Field(name="url", label="Address", help="https://…"),
    Field(name="events", label="Events", kind="several", choices=EVENT_NAMES, value=["task.failed"]),
    Field(name="handlers", label="Only of handlers", kind="list", help="By comma: mail.*, report.build"),
    Field(name="tags", label="Only with tags", kind="list", help="By comma."),
    Field(name="description", label="What it is for"),
    Field(name="include_result", label="With what a task returned", kind="flag"),
)  # fmt: skip
LOG: Final[dict[str, tuple[str, list[str], str]]] = {
    "state": ("State", DELIVERY_STATES, ""),
    "event": ("Event", [*EVENT_NAMES, "ping"], ""),
    "task_id": ("Task", [], "its id"),
}


def _row(at: At, item: dict[str, Any]) -> list[Any]:
    state = "on" if item["enabled"] else "off"
    return [
        format_html('<a href="{}">{}</a>', at.url("webhook", item["id"]), item["url"] or item["channel"]),
        state
        if not item["failing_since"]
        else format_html("{}, failing since {}", state, moment(item["failing_since"])),
        ", ".join(item["events"]),
        item["description"] or "–",
    ]


@page
def webhooks(at: At) -> HttpResponse:
    """The list; the secret of a new one is shown once, in the answer to its form."""
    made = make(at, "webhooks", FIELDS)
    found = at.list("webhooks", _row)
    return at.show(
        "list", title="Webhooks", head=("Address", "State", "Events", "What it is for"), may_make=at.person.may("manage"),
        form={"title": "A new webhook", "label": "Make", "fields": made.fields, "url": at.url("webhooks")},
        secret=made.answer and made.answer["secret"], **{**found, "refused": made.refused or found["refused"]},
    )  # fmt: skip


@page
def webhook(at: At, webhook_id: UUID) -> HttpResponse:
    """One webhook, and its deliveries with their attempts."""
    found = at.get(f"webhooks/{webhook_id}")
    names = ("channel", "events", "handlers", "tags", "description", "disabled_reason", "failing_since")
    acts = buttons(at, webhook_id=webhook_id)

    def delivery(at: At, item: dict[str, Any]) -> list[Any]:
        last = item["log"][-1] if item["log"] else {"status": None, "error": None}
        task = format_html('<a href="{}">task</a>', at.url("task", item["task_id"])) if item["task_id"] else ""
        return [
            item["event"], badge(item["state"]), task, item["attempts"], last["status"] or last["error"] or "–",
            clock(item["created_at"]), moment(item["next_attempt_at"] or item["delivered_at"]),
            button(at, "replay_delivery", webhook_id, item["id"]),
        ]  # fmt: skip

    log = at.list(f"webhooks/{webhook_id}/deliveries", delivery, tuple(LOG))
    return at.show(
        "list", section="webhooks", title=found["url"] or found["channel"], heading="Deliveries",
        facts=[(name.replace("_", " "), found[name]) for name in names if found[name]],
        acts=acts("ping_webhook", f"{'dis' if found['enabled'] else 'en'}able_webhook", "rotate_webhook", "delete_webhook"),
        head=("Event", "State", "Of", "Attempts", "Last answer", "Made", "Next or delivered", ""),
        filters=filters(LOG, log["asked"]), empty="None was sent yet.", **log,
    )  # fmt: skip
