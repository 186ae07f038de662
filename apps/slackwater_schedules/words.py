"""When a schedule fires, as people say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from slackwater_adminkit.units import TIME, told

DAYS: Final = {
    "mon": "Monday", "tue": "Tuesday", "wed": "Wednesday", "thu": "Thursday", "fri": "Friday", "sat": "Saturday",
    "sun": "Sunday",
}  # fmt: skip
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip


WORK_WORDS: Final = {"handler": "handler", "args": "arguments in order", "kwargs": "arguments"}


def rule_words(kind: str, rule: Mapping[str, Any], zone: str) -> str:
    """``each Monday and Friday at 07:30, Europe/Berlin``."""
    at = f"at {_several(rule.get('times') or ['00:00'])}"
    if kind == "interval":
        return f"every {told(rule.get('every_s'), TIME)}"
    if kind == "once":
        return f"once, at {rule.get('at') or 'its making'}"
    if kind == "daily":
        said = f"each day {at}"
    elif kind == "weekly":
        said = f"each {_several([DAYS.get(day, day) for day in rule.get('weekdays', ())])} {at}"
    elif kind == "monthly":
        said = f"each month on the {_several([day if day == 'last' else _nth(day) for day in rule.get('days', ())])} day {at}"
    elif kind == "annually":
        said = f"each year on {_several([_date(date) for date in rule.get('dates', ())])} {at}"
    else:
        said = f"by cron {rule.get('cron', '')}"
    return f"{said}, {zone}"


def work_words(task: Mapping[str, Any], workflow: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a schedule submits, by name: the handler or template, its arguments, then the other fields that are given."""
    if workflow and "template" in workflow:
        return dict(workflow)
    if workflow:
        tasks = [str(each.get("name") or each.get("handler") or "a script") for each in workflow.get("tasks", ())]
        others = {name: value for name, value in workflow.items() if name != "tasks"}
        return {**others, "tasks": f"{len(tasks)}: {_several(tasks)}"}
    first = {WORK_WORDS[name]: task[name] for name in WORK_WORDS if task.get(name)}
    return {**first, **{name: value for name, value in task.items() if name not in WORK_WORDS}}


def _several(words: Sequence[Any]) -> str:
    *most, last = map(str, words or ["–"])
    return f"{', '.join(most)} and {last}" if most else last


def _nth(day: Any) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(int(day) % 10, "th") if int(day) not in (11, 12, 13) else "th"
    return f"{day}{ending}"


def _date(text: str) -> str:
    month, _, day = text.partition("-")
    return f"{int(day)} {MONTHS[int(month) - 1]}"
