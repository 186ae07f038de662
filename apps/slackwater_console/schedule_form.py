"""The form of a schedule: when it fires and what it starts, in fields by kind, as the admin's form has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final
from zoneinfo import available_timezones

from django.http import QueryDict

from slackwater_console.forms import Field, arguments, as_data, given
from slackwater_console.page import At
from slackwater_console.rest import Refused
from slackwater_console.views.submit import ARGUMENT, MORE, about_task, own_arguments
from slackwater_schedules.form import KINDS, OF_KIND
from slackwater_schedules.models import Schedule
from slackwater_schedules.occurrences import Missed
from slackwater_schedules.rules import SHORT_MONTHS
from slackwater_schedules.words import DAYS

OF_TASK: Final = "task."
BEFORE: Final = ("handler", "args", "kwargs", "template", "parameters")
"""Of what a schedule starts, the parts that have fields of another name."""
OTHERS: Final = Field(
    name="task", label="Other fields of the task", kind="lines", folded=True,
    help="A name and its value on each line, named as over the API: expires_in_s: 600; mutex_limit: 2.",
)  # fmt: skip
SHORT_WORDS: Final = dict(zip(SHORT_MONTHS, ("on its last day", "not at all"), strict=True))


@dataclass(frozen=True, slots=True)
class Work:
    """What a schedule starts: its fields, and what of a stored one they do not show."""

    key: str
    """``handler`` or ``template``, by name; ``task``, in lines of names and values; ``workflow``, written as JSON."""
    name: str = ""
    fields: Sequence[Field] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)

    def body(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What the REST interface takes, of a form's values."""
        if self.key in {"task", "workflow"}:
            return {self.key: values.get(self.key)}
        named = values.get("arguments", {})
        if isinstance(named, dict):
            own = {name.removeprefix(ARGUMENT): each for name, each in values.items() if name.startswith(ARGUMENT)}
            named = {**named, **own}
        if self.key == "template":
            return {"workflow": {**self.kept, "template": self.name, **({"parameters": named} if named else {})}}
        parts = {"args": values.get("args"), "kwargs": named}
        about = {name.removeprefix(OF_TASK): each for name, each in values.items() if name.startswith(OF_TASK)}
        told = {name: each for name, each in {**parts, **about}.items() if each not in (None, {}, [])}
        more = values.get("task", {})
        return {"task": {**more, "handler": self.name, **told} if isinstance(more, dict) else more}


@cache
def _zones() -> tuple[str, ...]:
    return tuple(sorted(available_timezones() - {"localtime", "Factory"}))


TIMING: Final = (
    Field(name="kind", label="When", kind="radio", choices={str(kind): words for kind, words in KINDS.items()}, value="daily",
          heading="When"),
    Field(name="every_s", label="Every", kind="length", help="For example 90 s, 10 min, 2 h, 1 d."),
    Field(name="weekdays", label="On", kind="several", choices=DAYS, value=[]),
    Field(name="days", label="On the days", kind="list", help="Days of the month, by comma: 1, 15, last."),
    Field(name="dates", label="On the dates", kind="list", help="Month and day, by comma: 12-24, 01-01."),
    Field(name="times", label="At", kind="list", help="Times of day, by comma: 07:30, 18:00. Empty: midnight."),
    Field(name="short_months", label="Where a month lacks the day", kind="choice", choices=SHORT_WORDS),
    Field(name="cron", label="Cron", help="Minute, hour, day, month, weekday: 0 9 * * mon-fri. Or @daily, @hourly …"),
    Field(name="at", label="At the moment", help="2030-01-31 09:00, in the time zone below. Empty: now."),
)  # fmt: skip
BOUNDS: Final = (
    Field(name="start_at", label="Not before (UTC)", kind="moment", heading="Bounds"),
    Field(name="end_at", label="Not after (UTC)", kind="moment"),
    Field(name="jitter_s", label="Each later by up to", kind="length", required=True,
          help="By chance, so that many do not start at once."),
    Field(name="overlap", label="While the one before still runs", kind="choice", choices=dict(Schedule.Overlap.choices),
          required=True),
    Field(name="missed", label="Firings that were missed", kind="choice", choices=dict(Missed.choices), required=True),
    Field(name="missed_after_s", label="Missed when late by", kind="length", required=True),
    Field(name="missed_limit", label="Made up for, at most", kind="whole", required=True),
    Field(name="missed_window_s", label="None that is older than", kind="length", required=True),
)  # fmt: skip
ZONE: Final = Field(name="time_zone", label="Time zone", kind="choice", required=True)
PLAIN: Final = ("name", "kind", "time_zone", *(each.name for each in BOUNDS))
"""The fields that are a schedule's own by the same name."""


def _usual(name: str) -> Any:
    """What a schedule has where nothing is given."""
    column: Any = Schedule._meta.get_field(name)
    return column.get_default()


def fields_of(work: Work, stored: Mapping[str, Any] | None = None) -> list[Field]:
    """The form, filled with a schedule that there is."""
    now: Mapping[str, Any] = stored or {}
    rule = now.get("rule", {})
    usual = {name: _usual(name) for name in PLAIN if name not in ("name", "kind")}
    plain = (
        Field(name="name", label="Name", required=True),
        *TIMING,
        replace(ZONE, choices=_zones()),
    )
    shown = [
        _held(each, now.get(each.name, rule.get(each.name, usual.get(each.name, each.value))))
        for each in (*plain, *BOUNDS)
    ]
    cut = len(plain)
    first, *others = work.fields
    return [*shown[:cut], replace(first, heading="What"), *others, *shown[cut:]]


def _held(each: Field, value: Any) -> Field:
    if each.name == "days" and isinstance(value, list):
        value = [str(day) for day in value]
    return replace(each, value=value) if value in ("", []) else each.holding(value)


def body(work: Work, fields: Iterable[Field], data: QueryDict) -> dict[str, Any]:
    """What the REST interface takes, of what a form sent; ``None`` where it was left empty."""
    values = given(fields, data)
    rule = {name: values[name] for name in OF_KIND.get(values.get("kind", ""), ()) if name in values}
    if "days" in rule:
        rule["days"] = [int(day) if day.isdecimal() else day for day in rule["days"]]
    return {**{name: values.get(name) for name in PLAIN}, "rule": rule, **work.body(values)}


def changes(work: Work, fields: Sequence[Field], data: QueryDict) -> dict[str, Any]:
    """Of that, what differs from the schedule as the form showed it: its times move only where they are changed."""
    before = body(work, fields, as_data(fields))
    found = {name: value for name, value in body(work, fields, data).items() if value != before[name]}
    return {**found, "rule": body(work, fields, data)["rule"]} if "kind" in found else found


# -- what it starts ---------------------------------------------------------------------------------------------------
def new_work(at: At, key: str, name: str) -> Work:
    """What a new schedule starts; ``Refused`` where there is no such handler or template."""
    if key == "handler":
        return _of_handler(at, name, {})
    if key == "template":
        return _of_template(at, name, {})
    return _whole(key, None)


def work_of(at: At, schedule: Mapping[str, Any]) -> Work:
    """What a schedule that there is starts; as a whole where it is no handler or template that the tenant may use now."""
    task, workflow = schedule["task"], schedule["workflow"]
    try:
        if workflow and "template" in workflow:
            return _of_template(at, workflow["template"], workflow)
        if not workflow and task.get("handler"):
            return _of_handler(at, task["handler"], task)
    except Refused as refused:
        if refused.status not in {403, 404}:
            raise
    key = "workflow" if workflow else "task"
    return _whole(key, workflow or task)


def _whole(key: str, stored: Any) -> Work:
    """A task by the lines of its fields, or a workflow as JSON."""
    kind, told = {
        "task": (
            "lines",
            "A name and its value on each line, named as over the API: script_path: nightly.sh; tier: basic.",
        ),
        "workflow": ("json", 'As over the API: {"tasks": [{"name": "a", "handler": "reports.daily"}, …]}.'),
    }[key]
    field = Field(name=key, label=f"The {key}", kind=kind, help=told, required=True)
    return Work(key, fields=[field.holding(stored)])


def _of_handler(at: At, name: str, task: Mapping[str, Any]) -> Work:
    found = at.get(f"handlers/{name}")
    about = [
        replace(each.holding(task[each.name]) if each.name in task else each, name=OF_TASK + each.name)
        for each in about_task(found)
        if each.name != "start_at"
    ]
    shown = {*BEFORE, *(each.name.removeprefix(OF_TASK) for each in about)}
    if task.get("args"):
        args = Field(name="args", label="Arguments in order", kind="rows", help="Each on a line of its own.").holding(
            task["args"]
        )
        own = [args, *_filled([], task.get("kwargs") or {})]
    else:
        own = _filled(own_arguments(found["schema"]), task.get("kwargs") or {})
    kept = {key: value for key, value in task.items() if key not in shown}
    return Work("handler", name, [*own, *about, OTHERS.holding(kept)])


def _of_template(at: At, name: str, used: Mapping[str, Any]) -> Work:
    version = used.get("version")
    found = at.get(f"workflow-templates/{name}", **({"version": version} if version else {}))
    own = _filled(arguments(found["parameters"]), used.get("parameters") or {})
    kept = {key: value for key, value in used.items() if key not in BEFORE}
    return Work("template", name, own or [replace(MORE, label="Its parameters")], kept)


def _filled(fields: Iterable[Field], values: Mapping[str, Any]) -> list[Field]:
    """The fields of arguments with those that are stored; what has no field stands in lines of names and values."""
    left, found = dict(values), []
    for each in fields:
        key = each.name.removeprefix(ARGUMENT)
        found.append(each.holding(left.pop(key)) if each.name != "arguments" and key in left else each)
    if left:
        found = [each for each in found if each.name != "arguments"]
        found.append(MORE.holding(left))
    return found
