"""Schedules: the list, the page of one with its firings, and the form that makes and changes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from slackwater_console import schedule_form
from slackwater_console.acts import buttons
from slackwater_console.forms import Field, labels
from slackwater_console.page import At, page
from slackwater_console.rest import Refused
from slackwater_console.templatetags.console import badge, clock, fact, moment
from slackwater_console.views.tasks import filters, what
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_schedules.occurrences import Missed
from slackwater_schedules.recurrence import zone_of
from slackwater_schedules.words import rule_words, work_words

PREVIEWED: Final = 5
SCHEDULE_FILTERS: Final[dict[str, tuple[str, list[str], str]]] = {
    "name_pattern": ("Name", [], "report *"),
    "handler": ("Handler", [], ""),
    "paused": ("Paused", ["true", "false"], ""),
}


def _schedule_row(at: At, item: dict[str, Any]) -> list[Any]:
    submits = item["task"] and what({"handler": None, **item["task"]})
    return [
        format_html('<a href="{}">{}</a>', at.url("schedule", item["id"]), item["name"]),
        rule_words(item["kind"], item["rule"], item["time_zone"]),
        submits or "a workflow",
        badge("paused") if item["paused"] else moment(item["next_firing_at"]),
    ]


@page
def schedules(at: At) -> HttpResponse:
    """The list, by name."""
    found = at.list("schedules", _schedule_row, tuple(SCHEDULE_FILTERS))
    head = ("Schedule", "When", "Submits", "Fires next")
    return at.show(
        "list", title="Schedules", head=head, filters=filters(SCHEDULE_FILTERS, found["asked"]), empty="There is none yet.",
        links=[(at.url("schedule_new"), "A new schedule")] if at.person.may("submit") else [], **found,
    )  # fmt: skip


def _firing(at: At, item: dict[str, Any]) -> list[Any]:
    kind, found = ("workflow", item["workflow_id"]) if item["workflow_id"] else ("task", item["task_id"])
    link = format_html('<a href="{}">{}</a>', at.url(kind, found), kind) if found else item["error"] or ""
    return [clock(item["fire_at"]), badge(item["outcome"]), moment(item["fired_at"]), link]


def _times(moments: Iterable[str], zone: str) -> SafeString | str:
    """Moments below each other, in a schedule's own time zone."""
    found = (parse_datetime(each) for each in moments)
    told = ((each.astimezone(zone_of(zone)).strftime("%A, %-d %B %Y, %H:%M:%S %Z"),) for each in found if each)
    return format_html_join("", "<div>{}</div>", told) or "never"


FIRING_FILTERS: Final[dict[str, tuple[str, list[str], str]]] = {
    "outcome": ("Outcome", list(ScheduleFire.Outcome.values), "")
}


@page
def schedule(at: At, schedule_id: UUID) -> HttpResponse:
    """One schedule: what it submits, when it fires next, and its firings."""
    found = at.get(f"schedules/{schedule_id}")
    acts = buttons(at, schedule_id=schedule_id)
    facts = [
        ("when", rule_words(found["kind"], found["rule"], found["time_zone"])),
        ("not before", found["start_at"] and clock(found["start_at"])),
        ("not after", found["end_at"] and clock(found["end_at"])),
        ("while the one before runs", Schedule.Overlap(found["overlap"]).label),
        ("missed firings", Missed(found["missed"]).label),
        ("fires next", _times(found["next_firings"][:PREVIEWED], found["time_zone"])),
        ("changed by", found["updated_by"]),
    ]
    firings = at.list(f"schedules/{schedule_id}/firings", _firing, tuple(FIRING_FILTERS))
    submits = dict(fact(*each) for each in work_words(found["task"], found["workflow"]).items())
    return at.show(
        "list", section="schedules", title=found["name"], facts=facts, told=submits,
        acts=acts("run_schedule", "resume_schedule" if found["paused"] else "pause_schedule", "delete_schedule"),
        links=[(at.url("schedule_edit", schedule_id), "Change")] if at.person.may("submit") else [],
        head=("For", "Outcome", "Fired", "Submitted"), empty="It has not fired yet.",
        filters=filters(FIRING_FILTERS, firings["asked"]), **firings,
    )  # fmt: skip


# -- the form ---------------------------------------------------------------------------------------------------------
STARTS: Final = ("handler", "template", "task", "workflow")


def _choices(at: At) -> Iterator[list[Any]]:
    """What a new schedule may start."""
    here = at.url("schedule_new")

    def row(key: str, name: str, words: str, told: str) -> list[Any]:
        return [format_html('<a href="{}?{}">{}</a>', here, urlencode({key: name}), words), told]

    for item in at.get("handlers")["items"]:
        yield row("handler", item["name"], item["name"], item["description"] or "a task of this handler")
    for item in at.get("workflow-templates", limit=500)["items"]:
        yield row("template", item["name"], item["name"], item["description"] or "a workflow by this template")
    yield row("task", "", "another task", "a script, for example, written as over the API")
    yield row("workflow", "", "a workflow", "written as over the API")


@page
def schedule_new(at: At) -> HttpResponse:
    """What a new schedule starts; then its form."""
    at.person.require("submit")
    at.check_query(STARTS)
    key = next((each for each in STARTS if each in at.request.GET), None)
    if key is None:
        head = ("It starts", "")
        return at.show("list", section="schedules", title="A new schedule", head=head, rows=[*_choices(at)], first=None)
    work = schedule_form.new_work(at, key, at.request.GET[key])
    fields, refused = schedule_form.fields_of(work), ""
    if at.request.method == "POST":
        asked = schedule_form.body(work, fields, at.request.POST)
        try:
            made = at.ask("POST", "schedules", {name: value for name, value in asked.items() if value is not None})
        except Refused as error:
            refused, fields = _refused(error, fields), [each.filled(at.request.POST) for each in fields]
        else:
            messages.success(at.request, "The schedule was made.")
            return redirect(at.url("schedule", made["id"]))
    title = f"A new schedule of {work.name or f'a {work.key}'}"
    url = f"{at.url('schedule_new')}?{urlencode({key: at.request.GET[key]})}"
    return _form(at, title, "Make", fields, url, refused)


@page
def schedule_edit(at: At, schedule_id: UUID) -> HttpResponse:
    """The form of a schedule that there is; what was changed since it was opened is not written over."""
    at.person.require("submit")
    path = f"schedules/{schedule_id}"
    stored = at.get(path)
    work = schedule_form.work_of(at, stored)
    fields, refused, version = schedule_form.fields_of(work, stored), "", stored["version"]
    if at.request.method == "POST":
        data = at.request.POST
        version = int(data["version"]) if data.get("version", "").isdecimal() else version
        try:
            at.ask("PATCH", path, {**schedule_form.changes(work, fields, data), "version": version})
        except Refused as error:
            refused, fields = _refused(error, fields), [each.filled(data) for each in fields]
        else:
            messages.success(at.request, "The schedule was changed.")
            return redirect(at.url("schedule", schedule_id))
    return _form(
        at, f"Change {stored['name']}", "Save", fields, at.url("schedule_edit", schedule_id), refused, version=version
    )


def _refused(error: Refused, fields: Iterable[Field]) -> str:
    if error.status in {403, 404} and error.problem["code"] != "not_granted":
        raise error
    return error.told(labels(fields))


def _form(at: At, title: str, label: str, fields: list[Field], url: str, refused: str, **hidden: Any) -> HttpResponse:
    form = {"title": title, "label": label, "fields": fields, "url": url, "hidden": hidden, "asks": at.url("firings")}
    return at.show("schedule", section="schedules", title=title, form=form, refused=refused)


@require_POST
@page
def firings(at: At) -> HttpResponse:
    """When a form as it stands would fire, in words; nothing is saved."""
    at.person.require("submit")
    work = schedule_form.Work("task")
    shown = (*schedule_form.TIMING, *schedule_form.BOUNDS, schedule_form.ZONE)
    given = schedule_form.body(work, shown, at.request.POST)
    asked = {
        name: given[name] for name in ("kind", "rule", "time_zone", "start_at", "end_at") if given[name] is not None
    }
    try:
        times = at.ask("POST", "schedules/preview", {**asked, "count": PREVIEWED})["next_firings"]
    except Refused as error:
        return HttpResponse(format_html("<p>{}</p>", error.told(labels(shown))))
    zone = given["time_zone"] or "UTC"
    said = rule_words(given["kind"], given["rule"], zone)
    return HttpResponse(format_html("<p>{}. Next:</p>{}", said[:1].upper() + said[1:], _times(times, zone)))
