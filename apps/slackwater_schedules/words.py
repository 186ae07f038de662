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


def _several(words: Sequence[Any]) -> str:
    *most, last = map(str, words or ["–"])
    return f"{', '.join(most)} and {last}" if most else last


def _nth(day: Any) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(int(day) % 10, "th") if int(day) not in (11, 12, 13) else "th"
    return f"{day}{ending}"


def _date(text: str) -> str:
    month, _, day = text.partition("-")
    return f"{int(day)} {MONTHS[int(month) - 1]}"
