"""Workflows, schedules and dead letters: their lists, and the page of one."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html

from slackwater_api.v1.shapes.common import OUTCOMES, STATUSES
from slackwater_console.acts import button, buttons
from slackwater_console.page import At, page
from slackwater_console.templatetags.console import badge, clock, moment
from slackwater_console.views.tasks import box, filters, what
from slackwater_schedules.models import ScheduleFire
from slackwater_tasks.read import workflow_runs
from slackwater_tenants.scoping import tenant_scope

WORKFLOW_FILTERS: Final[dict[str, tuple[str, list[str], str]]] = {
    "status": ("Status", STATUSES, ""),
    "name_pattern": ("Name", [], "photo *"),
    "tag": ("Tag", [], ""),
    "submitted_after": ("Submitted from", [], "2030-01-31T09:00Z"),
    "submitted_before": ("until", [], ""),
}
SCHEDULE_FILTERS: Final[dict[str, tuple[str, list[str], str]]] = {
    "name_pattern": ("Name", [], "report *"),
    "handler": ("Handler", [], ""),
    "paused": ("Paused", ["true", "false"], ""),
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
def picture(at: At, workflow_id: UUID) -> HttpResponse:
    """The tasks of a workflow as its graph and its timeline take them."""
    found = at.get(f"workflows/{workflow_id}")  # it says who may see it
    submitted_at = parse_datetime(found["submitted_at"])
    assert submitted_at is not None
    with tenant_scope(at.person.tenant.pk):
        shown = workflow_runs.picture(workflow_id, submitted_at, timezone.now())
    return JsonResponse({**shown, "final": found["finished_at"] is not None})


def _schedule_row(at: At, item: dict[str, Any]) -> list[Any]:
    submits = item["task"] and what({"handler": None, **item["task"]})
    return [
        format_html('<a href="{}">{}</a>', at.url("schedule", item["id"]), item["name"]),
        item["kind"],
        submits or "a workflow",
        badge("paused") if item["paused"] else moment(item["next_firing_at"]),
        item["time_zone"],
    ]


@page
def schedules(at: At) -> HttpResponse:
    """The list, by name."""
    found = at.list("schedules", _schedule_row, tuple(SCHEDULE_FILTERS))
    head = ("Schedule", "Kind", "Submits", "Fires next", "Time zone")
    return at.show("list", title="Schedules", head=head, filters=filters(SCHEDULE_FILTERS, found["asked"]), **found)


def _firing(at: At, item: dict[str, Any]) -> list[Any]:
    kind, found = ("workflow", item["workflow_id"]) if item["workflow_id"] else ("task", item["task_id"])
    link = format_html('<a href="{}">{}</a>', at.url(kind, found), kind) if found else item["error"] or ""
    return [clock(item["fire_at"]), badge(item["outcome"]), moment(item["fired_at"]), link]


FIRING_FILTERS: Final[dict[str, tuple[str, list[str], str]]] = {
    "outcome": ("Outcome", list(ScheduleFire.Outcome.values), "")
}


@page
def schedule(at: At, schedule_id: UUID) -> HttpResponse:
    """One schedule: what it submits, when it fires next, and its firings."""
    found = at.get(f"schedules/{schedule_id}")
    acts = buttons(at, schedule_id=schedule_id)
    facts = [
        ("kind", found["kind"]),
        ("rule", found["rule"]),
        ("time zone", found["time_zone"]),
        ("overlap", found["overlap"]),
        ("missed firings", found["missed"]),
        ("fires next", [clock(each) for each in found["next_firings"][:5]]),
        ("changed by", found["updated_by"]),
    ]
    firings = at.list(f"schedules/{schedule_id}/firings", _firing, tuple(FIRING_FILTERS))
    return at.show(
        "list", section="schedules", title=found["name"], facts=facts, told=found["workflow"] or found["task"],
        acts=acts("run_schedule", "resume_schedule" if found["paused"] else "pause_schedule", "delete_schedule"),
        head=("For", "Outcome", "Fired", "Submitted"), empty="It has not fired yet.",
        filters=filters(FIRING_FILTERS, firings["asked"]), **firings,
    )  # fmt: skip


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
