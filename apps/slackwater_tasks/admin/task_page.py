"""What the page of a task shows: everything that is known of it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.html import format_html

from scheduler_ext.core.states import UNCLAIMED, TaskState, client_status
from slackwater_adminkit.display import badge, clock, json_block, seconds
from slackwater_resources.models import Component
from slackwater_tasks.admin import graphs
from slackwater_tasks.explain.chain import held_by
from slackwater_tasks.explain.explanation import explain
from slackwater_tasks.models import DeadLetter, LiveTask, Task
from slackwater_tasks.read import output, tasks
from slackwater_tasks.read.history import history
from slackwater_tenants.scoping import tenant_scope

CHUNKS_SHOWN = 200


WAITS_FOR = {
    "dependency": "other tasks", "start_time": "its time", "back_off": "its back-off", "position": "its turn in its line",
    "share": "its line's turn", "tenant_in_flight": "the plan's tasks in flight", "hard_share": "the plan's share",
    "mutex": "its mutex key", "rate": "its execution rate", "peak": "less load", "paused": "to be resumed",
    "no_slot": "a free slot", "no_resource": "free resources", "reserved": "a larger task", "yielded": "whom it made room",
    "never_fits": "a larger node", "no_labels": "a node with its labels", "no_node": "a node", "dispatcher": "a dispatcher",
}  # fmt: skip
"""The kinds of blockers in words."""


def state_of(task: Task) -> TaskState:
    """The one state of a task whose live row was selected with it."""
    live = task.live if hasattr(task, "live") else None
    return TaskState(live.state if live is not None else task.state)  # type: ignore[arg-type]


def state_badge(state: TaskState) -> Any:
    return badge(tasks.word(state), tasks.word(state))


def context_of(task: Task) -> dict[str, Any]:
    with tenant_scope(task.tenant_id):
        detail = tasks.task(task.pk)
        live = LiveTask.objects.filter(pk=task.pk).first()
        dead = DeadLetter.objects.filter(pk=task.pk).first()
        state = TaskState[detail["state"].upper()]
        why = explain(task.pk) if state in UNCLAIMED else None
        return {
            "task": detail,
            "state": state_badge(state),
            "status": client_status(state).label.replace("_", " "),
            "attributes": _attributes(task, detail),
            "live": live,
            "dead": dead,
            "why": why and {**why, "blockers": [{**b, "waits_for": WAITS_FOR[b["kind"]]} for b in why["blockers"]]},
            "holders": _holders(task, why),
            "history": [_entry(entry) for entry in history(task.pk)],
            "attempts": [_attempt(row) for row in tasks.attempts(task.pk)],
            "output": reverse("admin:sw_task_output", args=[task.pk]),
            "chunks": [{**chunk, "at": clock(chunk["at"])} for chunk in output.chunks(task.pk, limit=CHUNKS_SHOWN)],
            "graph": graphs.neighbourhood(task.pk),
            "result": json_block(detail["result"]) if state is TaskState.SUCCEEDED else None,
            "args": json.dumps(detail["args"], indent=2, ensure_ascii=False),
            "kwargs": json.dumps(detail["kwargs"], indent=2, ensure_ascii=False),
            "progress": _progress(detail["progress"]) if detail["progress"] is not None else None,
            "watch": reverse("admin:sw_task", args=[task.pk]),
            "seen": watch_mark(state, live.fence if live else 0, live.progress if live else None),
        }


def attempts_of(task: Task) -> tuple[int, int]:
    """How many attempts have ended, and how many it has, both with those it used before it was run again."""
    if hasattr(task, "live"):
        return task.live.attempts, task.live.total_attempts
    return task.attempts_used, max(task.attempts_used, task.total_attempts)


def _link(task_id: UUID | None) -> Any:
    return format_html('<a href="{}">{}</a>', graphs.task_url(task_id), task_id) if task_id else ""


def _holders(task: Task, why: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Who holds what the task waits for, in words."""
    rows = held_by(task.tenant_id, task.tenant.cell, why) if why else []
    return [
        {**row, "for": WAITS_FOR[row["waits_for"]], "ran": seconds(row["running_s"]), "cap": seconds(row["cap_s"])}
        for row in rows
    ]


def _progress(value: Any) -> Any:
    """What a task reports of its progress: a bar where it says how much is done of how much."""
    done, of = (value.get("done"), value.get("of")) if isinstance(value, dict) else (None, None)
    if not isinstance(done, int | float) or not isinstance(of, int | float) or of <= 0:
        return json_block(value)
    bar = format_html(
        '<progress class="sw-bar" max="{}" value="{}"></progress> {} of {}, {} %',
        of,
        done,
        done,
        of,
        round(100 * done / of),
    )
    rest = {name: item for name, item in value.items() if name not in {"done", "of"}}
    return format_html("{}{}", bar, json_block(rest)) if rest else bar


def watch_mark(state: TaskState, fence: int, progress: Any) -> str:
    """What the page compares to see that something changed."""
    return f"{state.name}:{fence}:{progress!r}"


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    detail = json_block(entry["detail"]) if entry["detail"] else None
    return {**entry, "at": clock(entry["at"]), "badge": badge(entry["to"], entry["to"]), "detail": detail}


def _attempt(row: dict[str, Any]) -> dict[str, Any]:
    times = {name: clock(row[name]) for name in ("queued_at", "started_at", "finished_at")}
    return {
        **row,
        **times,
        "took": seconds(row["duration_s"]),
        "outcome": row["outcome"].replace("_", " "),
    }


def _script(task: Task, detail: dict[str, Any]) -> str:
    return f"script {detail['script'][:12]}" if task.script_sha256 else detail["script_path"]


def _checkpoint(saved: dict[str, Any]) -> str:
    attempt = f" by attempt {saved['attempt']}" if saved["attempt"] is not None else ""
    return f"number {saved['number']}: {saved['size']:,} bytes, saved {clock(saved['saved_at'], day=True)}{attempt}"


def _attributes(task: Task, detail: dict[str, Any]) -> list[tuple[str, Any]]:
    """Label and value of what was asked for; what was left empty is left out."""
    exclusive = f"{detail['mutex_key']} ({detail['mutex_limit']} at a time)" if detail["mutex_key"] else ""
    saved = detail["checkpoint"]
    rows: list[tuple[str, Any]] = [
        ("Tenant", task.tenant),
        ("Handler" if detail["kind"] == "handler" else "Script", detail["handler"] or _script(task, detail)),
        ("Category", detail["category"]),
        ("Tier", detail["tier"]),
        ("Priority", detail["priority"]),
        ("Delay tolerance", f"{detail['delay_tolerance_s']} s, then {detail['on_late'].replace('_', ' ')}"),
        ("Execution cap", f"{detail['execution_cap_s']} s"),
        ("Attempts", "{} ended, of {}".format(*attempts_of(task))),
        ("Own back-off", detail["retry"]),
        ("Mutual exclusion", exclusive),
        ("Rate key", detail["rate_key"]),
        ("Checkpoints", _checkpoint(saved) if saved else "declared, none is kept" if detail["checkpoints"] else ""),
        ("Condition", detail["condition"].replace("_", " ") if detail["depends_on"] else ""),
        ("Map", ", ".join(f"{name} {text}" for name, text in (detail["map"] or {}).items())),
        ("Requires labels", ", ".join(detail["require_labels"])),
        ("Prefers labels", ", ".join(detail["prefer_labels"])),
        ("Tags", ", ".join(detail["tags"])),
        ("Metadata", ", ".join(f"{name}: {text}" for name, text in detail["metadata"].items())),
        ("Start at", detail["start_at"]),
        ("Expires at", detail["expires_at"]),
        ("Submitted anew from", _link(detail["copied_from"])),
        ("Not before", detail["not_before"]),
        ("Latest start", detail["latest_start"]),
        ("Late by", f"{detail['late_by_s']:.1f} s" if detail["late_by_s"] else ""),
        ("Submitted", detail["submitted_at"]),
        ("Submitted by", detail["submitted_by"]),
        ("Admitted by", Component.objects.filter(pk=task.admitted_by).first() if task.admitted_by else None),
        ("Scheduling", detail["scheduling_type"]),
        ("Started", detail["started_at"]),
        ("Finished", detail["finished_at"]),
        ("Node", detail["node"]),
    ]
    shown = [(label, value) for label, value in rows if value not in (None, "")]
    return [(label, clock(value, day=True) if isinstance(value, datetime) else value) for label, value in shown]
