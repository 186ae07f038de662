"""Of the task that a schedule starts, what its admin's form has inputs for: the fields most used, each in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from unfold import widgets

from slackwater_adminkit.units import TIME, UnitField
from slackwater_tasks import field_kinds as kinds
from slackwater_tasks.spec import FIELDS

LABELS: Final = {
    "tier": "Tier", "category": "Category", "priority": "Priority", "delay_tolerance_s": "May wait",
    "on_late": "When its latest start passes", "execution_cap_s": "Longest run", "total_attempts": "Runs at most",
    "mutex_key": "Mutex key", "tags": "Tags",
}  # fmt: skip


def input_of(name: str) -> forms.Field:
    """The input of a task's field; left empty, the task has what it has where nothing is given."""
    field = FIELDS[name]
    options: dict[str, Any] = {"label": LABELS[name], "required": False, "help_text": field.help}
    if isinstance(field.kind, kinds.Seconds):
        options["help_text"] += f" For example 90 s, 10 min, 2 h. Empty: {field.fallback}."
        return UnitField(units=TIME, **options)
    if isinstance(field.kind, kinds.Whole):
        return forms.IntegerField(widget=widgets.UnfoldAdminIntegerFieldWidget(), **options)
    if isinstance(field.kind, kinds.Choice) or name == "tier":
        words = field.kind.words if isinstance(field.kind, kinds.Choice) else ()
        choices = [("", "–"), *((word, word.replace("_", " ")) for word in words)]
        return forms.ChoiceField(widget=widgets.UnfoldAdminSelectWidget(), choices=choices, **options)
    if isinstance(field.kind, kinds.Texts):
        options["help_text"] += " Separated by commas."
    return forms.CharField(widget=widgets.UnfoldAdminTextInputWidget(), **options)


def shown(task: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What of a stored task the inputs show, and what they would not give back as it is."""
    own = {name: value for name, value in task.items() if name in LABELS and _fits(FIELDS[name].kind, value)}
    others = {name: value for name, value in task.items() if name not in own}
    return {name: ", ".join(value) if isinstance(value, list) else value for name, value in own.items()}, others


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the inputs say of the task."""
    found = {name: values.get(name) for name in LABELS}
    if found["tags"]:
        found["tags"] = [tag.strip() for tag in str(found["tags"]).split(",") if tag.strip()]
    return {name: value for name, value in found.items() if value not in (None, "", [])}


def _fits(kind: kinds.Kind, value: Any) -> bool:
    if isinstance(kind, kinds.Texts):
        return isinstance(value, list) and value != [] and all(_plain(one) and "," not in one for one in value)
    if isinstance(kind, kinds.Seconds | kinds.Whole):
        return isinstance(value, int) and not isinstance(value, bool)
    return _plain(value) and (not isinstance(kind, kinds.Choice) or value in kind.words)


def _plain(value: Any) -> bool:
    return isinstance(value, str) and value != "" and value == value.strip() and value.isprintable()
