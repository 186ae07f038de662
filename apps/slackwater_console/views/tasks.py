"""Tasks: the list with its filters, and the page of one, which follows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.utils.html import format_html
from django.utils.http import content_disposition_header
from django.utils.safestring import SafeString

from scheduler_ext.core.states import FINAL, UNCLAIMED, ClientStatus
from slackwater_api.v1.shapes.common import CATEGORIES, STATES
from slackwater_console.acts import buttons
from slackwater_console.page import At, page
from slackwater_console.rest import fetch
from slackwater_console.templatetags.console import badge, fact, moment
from slackwater_tasks.admin.task_page import WAITS_FOR
from slackwater_tasks.models import Task
from slackwater_tenants.scoping import tenant_scope

FILTERS: Final[dict[str, tuple[str, list[str], str]]] = {
    "status": ("Status", [status.label for status in ClientStatus], ""),
    "state": ("State", list(STATES), ""),
    "category": ("Category", list(CATEGORIES), ""),
    "handler_pattern": ("Handler", [], "mail.*"),
    "name_pattern": ("Name", [], "report *"),
    "tag": ("Tag", [], ""),
    "node": ("Node", [], "its name"),
    "error": ("Error", [], "timed out"),
    "schedule": ("Schedule", [], "its name or id"),
    "submitted_after": ("Submitted from", [], "2030-01-31T09:00Z"),
    "submitted_before": ("until", [], ""),
    "workflow_id": ("Workflow", [], "its id"),
}
OUTPUT_FILTERS: Final[dict[str, tuple[str, list[str], str]]] = {
    "text": ("Lines with", [], "timed out"),
    "handler": ("Handler", [], "its whole name"),
    "workflow_id": ("Workflow", [], "its id"),
}
HEAD: Final = ("", "Task", "State", "Handler", "Category", "Tier", "Submitted", "Ended", "Attempts", "Reason")
WAITING: Final = frozenset(state.name.lower() for state in UNCLAIMED)
ENDED: Final = frozenset(state.name.lower() for state in FINAL)
LINES: Final = 500
LOOK_MS: Final = 60
"""A search that no index answers looks back so long; a link goes on from there."""
OF_FILE: Final = frozenset({"HTTP_RANGE", "HTTP_IF_RANGE", "HTTP_IF_NONE_MATCH"})
"""What a browser says that goes on with a download."""
SHOWN: Final = (
    "name", "handler", "script", "script_path", "category", "tier", "priority", "tags", "metadata", "submitted_by",
    "delay_tolerance_s", "on_late", "latest_start", "late_by_s", "start_at", "execution_cap_s", "total_attempts",
    "depends_on", "condition", "mutex_key", "rate_key", "node",
)  # fmt: skip
"""The fields of a task that its page tells, in this order, where they say anything."""


def filters(known: dict[str, tuple[str, list[str], str]], asked: dict[str, str]) -> list[dict[str, Any]]:
    """The filters of a list as its form shows them."""
    return [
        {"name": name, "label": label, "choices": choices, "hint": hint, "value": asked.get(name, "")}
        for name, (label, choices, hint) in known.items()
    ]


def what(item: dict[str, Any]) -> str:
    """What a task runs."""
    return str(item["handler"] or item.get("script_path") or f"script {(item.get('script') or '')[:12]}")


def box(value: str, name: str) -> SafeString:
    """What chooses a row of a list."""
    form = '<input type="checkbox" class="action-select" name="id" value="{}" aria-label="Choose {}">'
    return format_html(form, value, name)


def task_row(at: At, item: dict[str, Any]) -> list[Any]:
    """A row of a list of tasks."""
    name = item["name"] or f"…{item['id'][-8:]}"
    return [
        box(item["id"], name),
        format_html('<a href="{}">{}</a>', at.url("task", item["id"]), name),
        badge(item["state"]),
        what(item),
        item["category"],
        item["tier"],
        moment(item["submitted_at"]),
        moment(item["finished_at"]),
        item["attempts"],
        format_html('<div class="sw-error" title="{0}">{0}</div>', item["reason"] or ""),
    ]


@page
def tasks(at: At) -> HttpResponse:
    """The list, newest first."""
    found = at.list("tasks", task_row, tuple(FILTERS), within_ms=LOOK_MS)
    return at.show(
        "list", title="Tasks", head=HEAD, filters=filters(FILTERS, found["asked"]),
        bulk=buttons(at)("cancel_tasks", "retry_tasks"), links=[(at.url("output"), "Search their output")], **found,
    )  # fmt: skip


def _mark(task: dict[str, Any]) -> str:
    """What a page compares to see that something changed."""
    return f"{task['state']}:{task['attempts']}:{task['cancel_requested']}:{task['progress']!r}"


@page
def task(at: At, task_id: UUID) -> HttpResponse:
    """Everything that the tenant may know of a task."""
    path = f"tasks/{task_id}"
    found = at.get(path)
    why = at.get(f"{path}/explain") if found["state"] in WAITING else None
    if why:
        why["blockers"] = [{**each, "waits_for": WAITS_FOR[each["kind"]]} for each in why["blockers"]]
    acts = buttons(at, task_id=task_id)
    ended = found["state"] in ENDED
    return at.show(
        "task",
        acts=acts("retry_task")
        if ended and found["state"] != "succeeded"
        else []
        if ended
        else acts("cancel_task", "cancel_with"),
        reason=not ended,
        rerun=ended
        and found["workflow_id"]
        and at.person.may("submit")
        and at.url("rerun", found["workflow_id"], task_id),
        files=at.get(f"{path}/artifacts")["items"],
        workflow=found["workflow_id"] and at.url("workflow", found["workflow_id"]),
        section="tasks",
        title=found["name"] or what(found),
        task=found,
        seen=_mark(found),
        why=why,
        attributes=[fact(name, found[name]) for name in SHOWN if found[name]],
        **{name: at.get(f"{path}/{name}")["items"] for name in ("history", "attempts", "chunks")},
    )


@page
def task_mark(at: At, task_id: UUID) -> HttpResponse:
    """A mark that changes when the task's page must be read again."""
    found = at.get(f"tasks/{task_id}", fields="state,attempts,cancel_requested,progress")
    return JsonResponse({"mark": _mark(found), "final": found["state"] in ENDED})


@page
def task_output(at: At, task_id: UUID) -> HttpResponse:
    """What a task wrote after ``place``, and whether more may come."""
    ended = (
        at.get(f"tasks/{task_id}/status")["state"] in ENDED
    )  # asked before the lines, of which then none comes after
    given = at.request.GET.get("place", "")
    lines = at.get(f"tasks/{task_id}/logs", limit=LINES, **({"cursor": given} if given else {}))["items"]
    more = len(lines) == LINES
    place = lines[-1]["place"] if lines else given
    return JsonResponse({"lines": lines, "place": place, "more": more, "ended": ended and not more})


# -- to be saved ------------------------------------------------------------------------------------------------------
def _saved(name: str, content: Any, kind: str) -> HttpResponseBase:
    """A file to be saved: whatever is in it, no browser shows it as a page of this server."""
    head = {
        "Content-Disposition": content_disposition_header(as_attachment=True, filename=name),
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingHttpResponse(content, content_type=kind, headers=head)


@page
def task_file(at: At, task_id: UUID, artifact_name: str) -> HttpResponseBase:
    """A file that the task left behind, or a range of it."""
    head = {name: value for name, value in at.request.META.items() if name in OF_FILE}
    return fetch(at.person, "GET", f"tasks/{task_id}/artifacts/{artifact_name}", head=head)


@page
def task_result(at: At, task_id: UUID) -> HttpResponseBase:
    """What the task returned."""
    found = at.get(f"tasks/{task_id}")
    text = json.dumps(found["result"], ensure_ascii=False, indent=1)
    return _saved(f"{found['name'] or task_id}.json", [text.encode()], "application/json")


@page
def task_text(at: At, task_id: UUID) -> HttpResponseBase:
    """All that the task wrote so far, a line of text for each."""
    at.get(f"tasks/{task_id}/status")  # it says who may see it, before the answer begins

    def lines() -> Iterator[bytes]:
        cursor: str | None = ""
        while cursor is not None:
            found = at.get(f"tasks/{task_id}/logs", limit=LINES, **({"cursor": cursor} if cursor else {}))
            cursor = found["next_cursor"]
            yield "".join(
                f"{each['at'] or '-'} {each['attempt'] or '-'} {each['stream']} {each['level']} {each['text']}\n"
                for each in found["items"]
            ).encode()

    return _saved(f"{task_id}.txt", lines(), "text/plain; charset=utf-8")


@page
def output(at: At) -> HttpResponse:
    """What tasks wrote, the newest task first: of a workflow, of a handler, or with a text."""
    found = at.list("logs", lambda _, line: line, tuple(OUTPUT_FILTERS))
    lines = found["rows"]
    with tenant_scope(at.person.tenant.pk):
        rows = Task.objects.filter(pk__in={line["task_id"] for line in lines}).values_list("pk", "name")
        names = {str(pk): name for pk, name in rows}
    found["rows"] = [
        [
            format_html(
                '<a href="{}">{}</a>',
                at.url("task", line["task_id"]),
                names.get(line["task_id"]) or f"…{line['task_id'][-8:]}",
            ),
            moment(line["at"]),
            line["attempt"] or "–",
            line["stream"],
            format_html('<pre class="co-line sw-line-{}">{}</pre>', line["level"], line["text"]),
        ]
        for line in lines
    ]
    return at.show(
        "list", section="tasks", title="Output", head=("Task", "At", "Attempt", "Stream", "Line"),
        filters=filters(OUTPUT_FILTERS, found["asked"]),
        empty="No line was found.", **found,
    )  # fmt: skip
