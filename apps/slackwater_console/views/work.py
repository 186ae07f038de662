"""Workflows and dead letters: their lists, the page of one, and running a part of it again."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html

from scheduler_ext.core.plain_text import counted
from slackwater_api.v1.shapes.common import OUTCOMES, STATUSES
from slackwater_console.acts import button, buttons
from slackwater_console.page import At, page, tell
from slackwater_console.rest import Refused
from slackwater_console.templatetags.console import badge, moment, money
from slackwater_console.views.tasks import box, filters, what
from slackwater_tasks.read import workflow_runs
from slackwater_tenants.scoping import tenant_scope

WORKFLOW_FILTERS: Final[dict[str, tuple[str, list[str], str]]] = {
    "status": ("Status", STATUSES, ""),
    "name_pattern": ("Name", [], "photo *"),
    "tag": ("Tag", [], ""),
    "submitted_after": ("Submitted from", [], "2030-01-31T09:00Z"),
    "submitted_before": ("until", [], ""),
}
DEAD_FILTERS: Final[dict[str, tuple[str, list[str], str]]] = {
    "handler_pattern": ("Handler", [], "mail.*"),
    "name_pattern": ("Name", [], ""),
    "outcome": ("Outcome", OUTCOMES, ""),
    "tag": ("Tag", [], ""),
    "at_after": ("From", [], "2030-01-31T09:00Z"),
    "at_before": ("until", [], ""),
}


def _workflow_row(at: At, item: dict[str, Any]) -> list[Any]:
    name = item["name"] or f"…{item['id'][-8:]}"
    return [
        format_html('<a href="{}">{}</a>', at.url("workflow", item["id"]), name),
        badge(item["status"]),
        item["task_count"],
        moment(item["submitted_at"]),
        moment(item["finished_at"]),
        ", ".join(item["tags"]),
    ]


@page
def workflows(at: At) -> HttpResponse:
    """The list, newest first."""
    found = at.list("workflows", _workflow_row, tuple(WORKFLOW_FILTERS))
    head = ("Workflow", "Status", "Tasks", "Submitted", "Ended", "Tags")
    return at.show("list", title="Workflows", head=head, filters=filters(WORKFLOW_FILTERS, found["asked"]), **found)


@page
def workflow(at: At, workflow_id: UUID) -> HttpResponse:
    """One workflow: its tasks by state, its graph and its timeline."""
    found = at.get(f"workflows/{workflow_id}")
    acts = buttons(at, workflow_id=workflow_id)
    counts = [(state, count) for state, count in found["counts"].items() if count]
    shown = acts("retry_workflow") if found["finished_at"] else acts("cancel_workflow")
    return at.show(
        "workflow", section="workflows", title=found["name"] or "Workflow", workflow=found, counts=counts, acts=shown,
        reason=not found["finished_at"],
    )  # fmt: skip


@page
def rerun(at: At, workflow_id: UUID, task_id: UUID) -> HttpResponse:
    """Runs a workflow again from one of its tasks on, after a page that tells how many tasks that are and their price."""
    at.person.require("submit")
    where, wanted = f"workflows/{workflow_id}/retry", {"task_id": str(task_id)}
    try:
        if at.request.method == "POST":
            count = len(at.ask("POST", where, wanted)["task_ids"])
            messages.success(at.request, counted(count, "task runs", plural="tasks run") + " again.")
            return redirect(at.url("workflow", workflow_id))
        quote = at.ask("POST", where, wanted, query={"dry_run": "true"})
    except Refused as refused:
        if refused.status in {403, 404}:
            raise
        tell(at, refused)
        return redirect(at.url("task", task_id))
    first = at.get(f"tasks/{task_id}")
    return at.show(
        "rerun", section="workflows", title=f"Run again from {first['name'] or what(first)} on", quote=quote,
        first=at.url("task", task_id), price=money(quote["price"]["expected_micros"]),
        most=money(quote["price"]["most_micros"]),
    )  # fmt: skip


@page
def picture(at: At, workflow_id: UUID) -> HttpResponse:
    """The tasks of a workflow as its graph and its timeline take them."""
    found = at.get(f"workflows/{workflow_id}")  # it says who may see it
    submitted_at = parse_datetime(found["submitted_at"])
    assert submitted_at is not None
    with tenant_scope(at.person.tenant.pk):
        shown = workflow_runs.picture(workflow_id, submitted_at, timezone.now())
    return JsonResponse({**shown, "final": found["finished_at"] is not None})


def _letter(at: At, item: dict[str, Any]) -> list[Any]:
    task_id = item["task_id"]
    name = item["name"] or f"…{task_id[-8:]}"
    return [
        box(task_id, name),
        format_html('<a href="{}">{}</a>', at.url("task", task_id), name),
        what(item),
        (item["outcome"] or "–").replace("_", " "),
        moment(item["at"]),
        format_html('<div class="sw-error" title="{0}">{0}</div>', item["reason"]),
        button(at, "requeue", task_id),
    ]


@page
def dead_letters(at: At) -> HttpResponse:
    """The list, latest first."""
    found = at.list("dead-letters", _letter, tuple(DEAD_FILTERS))
    head = ("", "Task", "Handler", "Outcome", "Since", "Reason", "")
    return at.show(
        "list", title="Dead letters", head=head, filters=filters(DEAD_FILTERS, found["asked"]),
        bulk=buttons(at)("requeue_chosen"), empty="No task has used up its attempts.", **found,
    )  # fmt: skip
