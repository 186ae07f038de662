"""What a form of a schedule asks about its task: a field for what is often wanted, lines of names and values for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from unfold import widgets

from slackwater_adminkit.units import TIME, ArgumentsField, UnitField
from slackwater_tasks.admin.task_form import help_of, input_of
from slackwater_tasks.spec import FIELDS

EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
ABOUT: Final = (
    "tier", "category", "priority", "delay_tolerance_s", "on_late", "execution_cap_s", "total_attempts", "tags",
)  # fmt: skip
"""What is often wanted of a task besides its handler and arguments."""
RARE: Final = ("expires_in_s", "retry", "mutex_key", "require_labels", "prefer_labels", "metadata", "resources")
"""What has a field too, folded away."""
OWN: Final = ("handler", "args", "kwargs", *ABOUT, *RARE)
"""All of a task that has a field of its own; ``more`` has the others."""


class PartsField(forms.CharField):
    """Words, separated by commas."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, widget=widgets.UnfoldAdminTextInputWidget(), **kwargs)

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        parts = value if isinstance(value, list) else (value or "").split(",")
        return [part.strip() for part in parts if part.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """By what it says."""
        return bool(self.to_python(data) != (initial or []))


def _length(name: str, label: str) -> UnitField:
    hint = "For example 90 s, 10 min, 2 h."
    return UnitField(label=label, units=TIME, required=False, help_text=help_of(FIELDS[name], hint))


def _words(name: str, label: str) -> forms.ChoiceField:
    kind: Any = FIELDS[name].kind
    choices = [("", "–"), *((word, word.replace("_", " ")) for word in kind.words)]
    widget = widgets.UnfoldAdminSelectWidget()
    return forms.ChoiceField(
        required=False, label=label, choices=choices, widget=widget, help_text=help_of(FIELDS[name])
    )


def _whole(name: str, label: str) -> forms.IntegerField:
    widget = widgets.UnfoldAdminIntegerFieldWidget()
    return forms.IntegerField(required=False, label=label, help_text=help_of(FIELDS[name]), widget=widget)


def _parts(name: str, label: str) -> PartsField:
    return PartsField(label=label, help_text=help_of(FIELDS[name], "Separated by commas."))


def _as_task(name: str, label: str) -> forms.Field:
    """As the form of a task has it; nothing is filled in."""
    field = input_of(FIELDS[name])
    field.label, field.initial = label, None
    return field


class TaskFields(forms.Form):
    """The fields about a task; an empty one is left to the handler, the tier and the plan."""

    tier = forms.ChoiceField(
        required=False, label="Tier", help_text=help_of(FIELDS["tier"]), widget=widgets.UnfoldAdminSelectWidget()
    )
    category = _words("category", "Category")
    priority = _whole("priority", "Priority")
    delay_tolerance_s = _length("delay_tolerance_s", "May wait")
    on_late = _words("on_late", "When it is late")
    execution_cap_s = _length("execution_cap_s", "Longest run")
    total_attempts = _whole("total_attempts", "Attempts")
    tags = _parts("tags", "Tags")
    expires_in_s = _length("expires_in_s", "Expires after")
    retry = _as_task("retry", "Pauses between attempts")
    mutex_key = _as_task("mutex_key", "Mutex key")
    require_labels = _parts("require_labels", "Labels of nodes it needs")
    prefer_labels = _parts("prefer_labels", "Labels of nodes it prefers")
    metadata = _as_task("metadata", "Metadata")
    resources = _as_task("resources", "Resources")
    more = ArgumentsField(
        required=False,
        label="Other fields of the task",
        help_text="A name and its value on each line, named as over the API: script_path: nightly.sh; mutex_limit: 2.",
    )

    def task(self) -> dict[str, Any]:
        """The task that the fields make up."""
        given = self.cleaned_data
        own = {name: given[name] for name in OWN if given.get(name) not in EMPTY}
        return {**own, **(given.get("more") or {})}

    def check_more(self) -> None:
        """Refuse what is said twice."""
        given = self.cleaned_data
        for name in given.get("more") or {}:
            if name in OWN and given.get(name) not in EMPTY:
                self.add_error("more", f"{name}: is given in its own field too")

    def place_in_task(self, name: str) -> str:
        """The form's field for a field of the task: where it was given."""
        more = self.cleaned_data.get("more") or {}
        return name if name in OWN and name not in more else "more" if name else "handler"

    def shown_task(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """The form's values for a task; what its own field would not give back as it is, stands with the others."""
        shown = {name: value for name, value in task.items() if name in OWN and self._gives_back(name, value)}
        more = {name: value for name, value in task.items() if name not in shown}
        return {**dict.fromkeys(OWN), **shown, "more": more or None}

    def _gives_back(self, name: str, value: Any) -> bool:
        if value in EMPTY:
            return False
        if name in ("handler", "tier"):  # stands among its choices
            return isinstance(value, str)
        field = self.fields[name]
        try:
            return bool(field.clean(field.prepare_value(value)) == value)
        except (TypeError, ValueError, AttributeError, ArithmeticError, forms.ValidationError):
            return False
