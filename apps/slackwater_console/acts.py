"""What the console's buttons do: each is one request to the REST interface, which checks, does and notes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from slackwater_console.page import At, page, tell
from slackwater_console.rest import Refused

ID: Final = re.compile(r"<\w+:(\w+)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One act on one thing."""

    name: str
    label: str
    route: str
    """Its address below the tenant's, and the REST interface's unless ``asks`` says another."""
    told: str
    """What was done, for the next page."""
    back: str
    """The page that it leads to: it takes the first of the address's ids, or none."""
    scope: str = "submit"
    """The scope that it needs, so that a button nobody may press is not shown; the interface checks it all the same."""
    asks: str = ""
    method: str = "POST"
    body: Callable[[QueryDict], Any] = lambda _: None
    shows: str = ""
    """A field of the answer that is shown once, on a page of its own: a key, a secret."""
    danger: bool = False

    def do(self, at: At, ids: dict[str, Any]) -> Any:
        """Ask for it."""
        where = ID.sub(lambda found: str(ids[found[1]]), self.asks or self.route)
        return at.ask(self.method, where, self.body(at.request.POST))


def _why(data: QueryDict) -> dict[str, Any]:
    reason = " ".join(data.get("reason", "").split())[:150]
    return {"reason": reason} if reason else {}


def _chosen(data: QueryDict) -> dict[str, Any]:
    return {"filter": {"id": data.getlist("id")}}


TASK, WORKFLOW, SCHEDULE = "tasks/<uuid:task_id>", "workflows/<uuid:workflow_id>", "schedules/<uuid:schedule_id>"
KEY, MEMBER, HOOK = "keys/<str:key_id>", "members/<uuid:member_id>", "webhooks/<uuid:webhook_id>"
ACTS: Final = {
    act.name: act
    for act in (
        Act(name="cancel_task", label="Cancel", route=f"{TASK}/cancel", scope="cancel", danger=True, body=_why,
            told="The task was cancelled; if it runs it was asked to end.", back="task"),
        Act(name="cancel_with", label="Cancel with what needs it", route=f"{TASK}/cancel-dependents", scope="cancel",
            asks=f"{TASK}/cancel", body=lambda data: {**_why(data), "dependents": True}, danger=True,
            told="The task was cancelled, with all that needs it.", back="task"),
        Act(name="retry_task", label="Run again", route=f"{TASK}/retry", told="The task runs again.", back="task"),
        Act(name="cancel_tasks", label="Cancel the chosen", route="tasks/cancel", scope="cancel", body=_chosen,
            told="The chosen tasks that had not ended were cancelled.", back="tasks", danger=True),
        Act(name="retry_tasks", label="Run the chosen again", route="tasks/retry", body=_chosen,
            told="The chosen tasks that had failed run again.", back="tasks"),
        Act(name="requeue", label="Run again", route="dead-letters/<uuid:task_id>/retry",
            told="The task runs again.", back="dead_letters"),
        Act(name="requeue_chosen", label="Run the chosen again", route="dead-letters/retry", asks="tasks/retry",
            body=_chosen, told="The chosen tasks run again.", back="dead_letters"),
        Act(name="cancel_workflow", label="Cancel", route=f"{WORKFLOW}/cancel", scope="cancel", body=_why, danger=True,
            told="What waited in the workflow was cancelled, what runs was asked to end.", back="workflow"),
        Act(name="retry_workflow", label="Run again from what failed", route=f"{WORKFLOW}/retry",
            told="What failed in the workflow runs again.", back="workflow", body=lambda _: {}),
        Act(name="run_schedule", label="Fire now", route=f"{SCHEDULE}/run", told="It has fired.", back="schedule"),
        Act(name="pause_schedule", label="Pause", route=f"{SCHEDULE}/pause", asks=SCHEDULE, method="PATCH",
            body=lambda _: {"paused": True}, told="The schedule is paused.", back="schedule"),
        Act(name="resume_schedule", label="Resume", route=f"{SCHEDULE}/resume", asks=SCHEDULE, method="PATCH",
            body=lambda _: {"paused": False}, told="The schedule goes on.", back="schedule"),
        Act(name="delete_schedule", label="Remove", route=f"{SCHEDULE}/delete", asks=SCHEDULE, method="DELETE",
            told="The schedule was removed; the tasks it submitted stay.", back="schedules", danger=True),
        Act(name="rotate_key", label="Replace", route=f"{KEY}/rotate", scope="manage", shows="key", body=lambda _: {},
            told="The new key; the old one has ended.", back="keys"),
        Act(name="rotate_key_slowly", label="Replace within a day", route=f"{KEY}/rotate-slowly", asks=f"{KEY}/rotate",
            scope="manage", shows="key", body=lambda _: {"overlap_s": 86_400},
            told="The new key; the old one ends in a day.", back="keys"),
        Act(name="revoke_key", label="Revoke", route=f"{KEY}/revoke", asks=KEY, method="DELETE", scope="manage",
            told="The key was revoked.", back="keys", danger=True),
        Act(name="delete_member", label="Remove", route=f"{MEMBER}/delete", asks=MEMBER, method="DELETE",
            scope="manage", told="The member was removed, with the keys it had.", back="members", danger=True),
        Act(name="pause_all", label="Pause all work", route="organization/pause", asks="organization", method="PATCH",
            scope="manage", body=lambda _: {"paused": True}, told="Tasks are accepted, and none is started.",
            back="limits", danger=True),
        Act(name="resume_all", label="Resume", route="organization/resume", asks="organization", method="PATCH",
            scope="manage", body=lambda _: {"paused": False}, told="Work goes on.", back="limits"),
        Act(name="ping_webhook", label="Send a test", route=f"{HOOK}/ping", scope="manage",
            told="A test message is on its way: the deliveries tell what becomes of it.", back="webhook"),
        Act(name="rotate_webhook", label="New secret", route=f"{HOOK}/rotate", scope="manage", shows="secret",
            told="The new secret; the old one signs beside it for a day.", back="webhook"),
        Act(name="disable_webhook", label="Disable", route=f"{HOOK}/disable", asks=HOOK, method="PATCH", scope="manage",
            body=lambda _: {"enabled": False}, told="Nothing more is sent.", back="webhook"),
        Act(name="enable_webhook", label="Enable", route=f"{HOOK}/enable", asks=HOOK, method="PATCH", scope="manage",
            body=lambda _: {"enabled": True}, told="It is sent to again.", back="webhook"),
        Act(name="delete_webhook", label="Remove", route=f"{HOOK}/delete", asks=HOOK, method="DELETE", scope="manage",
            told="The webhook was removed.", back="webhooks", danger=True),
        Act(name="replay_delivery", label="Send again", route=f"{HOOK}/deliveries/<uuid:delivery_id>/replay",
            scope="manage", told="It is sent again.", back="webhook"),
    )
}  # fmt: skip


def buttons(at: At, **ids: Any) -> Callable[..., list[tuple[str, Act]]]:
    """Of some acts those that the person may do to a thing, each with its address."""

    def shown(*names: str) -> list[tuple[str, Act]]:
        acts = [ACTS[name] for name in names]
        return [(at.url(act.name, *ids.values()), act) for act in acts if at.person.may(act.scope)]

    return shown


def button(at: At, name: str, *ids: Any) -> SafeString | str:
    """A button in a row of a list, whose form it is in; nothing for who may not."""
    act = ACTS[name]
    if not at.person.may(act.scope):
        return ""
    kind = " sw-danger" if act.danger else ""
    return format_html('<button formaction="{}" class="sw-button{}">{}</button>', at.url(name, *ids), kind, act.label)


def view_of(act: Act) -> Any:
    """The view behind a button."""

    def done(at: At, **ids: Any) -> HttpResponse:
        back = at.url(act.back, *([] if act.back.endswith("s") else list(ids.values())[:1]))
        try:
            answer = act.do(at, ids)
        except Refused as refused:
            if refused.status in {403, 404}:
                raise
            tell(at, refused)
        else:
            if act.shows:
                return at.show("once", title=act.told, secret=answer[act.shows], back=back)
            messages.success(at.request, act.told)
        return redirect(back)

    return require_POST(page(done))


def urls() -> list[URLPattern]:
    """The addresses of all acts."""
    return [path(f"<slug:slug>/{act.route}/", view_of(act), name=act.name) for act in ACTS.values()]
