"""The admin's form for a schedule: when it fires and what it starts, in fields by kind instead of JSON."""

from __future__ import annotations

import re
from typing import Any, Final

from django import forms
from django.forms.models import construct_instance
from unfold import widgets

from scheduler_ext.core.errors import InvalidInput
from slackwater_adminkit.display import JsonField
from slackwater_adminkit.units import TIME, ArgumentsField, InOrderField, UnitField
from slackwater_resources.models import Handler, Tier
from slackwater_schedules.fields import FIELDS, parse_schedule
from slackwater_schedules.models import Schedule
from slackwater_schedules.recurrence import Kind
from slackwater_schedules.rules import SHORT_MONTHS, WEEKDAYS
from slackwater_schedules.task_fields import OWN, TaskFields
from slackwater_schedules.words import DAYS
from slackwater_tasks.models import WorkflowTemplate

KINDS: Final = {
    Kind.INTERVAL: "every so long", Kind.DAILY: "each day at times", Kind.WEEKLY: "on days of the week",
    Kind.MONTHLY: "on days of the month", Kind.ANNUALLY: "on dates of the year", Kind.CRON: "by a cron expression",
    Kind.ONCE: "once",
}  # fmt: skip
OF_KIND: Final[dict[str, tuple[str, ...]]] = {
    Kind.INTERVAL: ("every_s",), Kind.DAILY: ("times",), Kind.WEEKLY: ("weekdays", "times"),
    Kind.MONTHLY: ("days", "times", "short_months"), Kind.ANNUALLY: ("dates", "times", "short_months"),
    Kind.CRON: ("cron",), Kind.ONCE: ("at",),
}  # fmt: skip
"""The fields that make up the rule of each kind, by the names that the rule has."""
STARTS: Final = {
    "handler": "a task", "template": "a workflow by a stored template", "workflow": "a workflow given here",
}  # fmt: skip
OF_START: Final = {
    "handler": (*OWN, "more"), "template": ("template", "parameters"), "workflow": ("workflow",),
}  # fmt: skip
BUILT: Final = ("rule", "task", "workflow")
"""Of a schedule's fields those that are made of several of the form's."""
NAMED_HINT: Final = 'A name and its value on each line: to: ann@example.org; limit: 5. A number as text: "5".'
PARTS: Final = re.compile(r"[.\[]")


def _text(label: str, help_text: str = "") -> forms.CharField:
    return forms.CharField(
        required=False, label=label, help_text=help_text, widget=widgets.UnfoldAdminTextInputWidget()
    )


def _json(label: str, help_text: str, rows: int = 2) -> JsonField:
    area = widgets.UnfoldAdminTextareaWidget(attrs={"rows": rows})
    return JsonField(called=label.lower(), required=False, label=label, help_text=help_text, widget=area)


def _choice(label: str, choices: Any, *, radio: bool = False, **options: Any) -> forms.ChoiceField:
    widget = widgets.UnfoldAdminRadioSelectWidget() if radio else widgets.UnfoldAdminSelectWidget()
    return forms.ChoiceField(label=label, choices=choices, widget=widget, **options)


def _parts(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


class ScheduleForm(TaskFields, forms.ModelForm):  # type: ignore[type-arg]
    """What a schedule has, each thing in a field of its own; the service gets it in the words it has everywhere."""

    kind = _choice("When", [(str(kind), words) for kind, words in KINDS.items()], radio=True, initial=Kind.DAILY)
    every_s = UnitField(label="Every", units=TIME, required=False, help_text="For example 90 s, 10 min, 2 h, 1 d.")
    times = _text("At", "Times of day, separated by commas: 07:30, 18:00. Empty: midnight.")
    weekdays = forms.MultipleChoiceField(
        required=False, label="On", choices=[(day, DAYS[day]) for day in WEEKDAYS],
        widget=widgets.UnfoldAdminCheckboxSelectMultipleWidget(),
    )  # fmt: skip
    days = _text("On the days", "Days of the month, separated by commas: 1, 15, last.")
    dates = _text("On the dates", "Month and day, separated by commas: 12-24, 01-01.")
    short_months = _choice(
        "Where a month lacks the day",
        list(zip(SHORT_MONTHS, ("on its last day", "not at all"), strict=True)),
        required=False,
    )
    cron = _text("Cron", "Minute, hour, day, month, weekday: 0 9 * * mon-fri. Or @daily, @hourly …")
    at = _text("At the moment", "2030-01-31 09:00, in the time zone below. Empty: now.")
    starts = _choice("It starts", list(STARTS.items()), radio=True, initial="handler")
    handler = _choice("Handler", (), required=False)
    args = InOrderField(
        required=False, label="Arguments", help_text="In order, each on a line of its own: daily, then 7."
    )
    kwargs = ArgumentsField(required=False, label="Arguments by name", help_text=NAMED_HINT)
    template = _choice("Template", (), required=False)
    parameters = ArgumentsField(required=False, label="Its parameters", help_text=NAMED_HINT)
    workflow = _json("The workflow", 'As over the API: {"tasks": [{"name": "a", "handler": "reports.daily"}, …]}.', 8)

    class Meta:
        model = Schedule
        fields = ("tenant", *(name for name in FIELDS if name not in (*BUILT, "paused")))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stored = self.instance if self.instance.name else None
        initial = self._shown(stored) if stored else {}
        self.initial = {**self.initial, **initial}
        handlers = [*Handler.objects.order_by("name").values_list("name", flat=True)]
        # Unscoped: the operators' view; the service looks among the tenant's own.
        templates = [*WorkflowTemplate.objects.unscoped().order_by("name").values_list("name", flat=True).distinct()]
        tiers = [*Tier.objects.order_by("tenant_id", "cpu_milli").values_list("slug", flat=True)]
        for name, known in (("handler", handlers), ("template", templates), ("tier", tiers)):
            words = dict.fromkeys(filter(None, [*known, initial.get(name)]))
            self.fields[name].choices = [("", "–"), *((word, word) for word in words)]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any] | None:
        """Check each field as the service does, so that an error stands at its field."""
        cleaned = super().clean() or self.cleaned_data
        if self.errors.keys() & {"kind", "starts", *OF_START["handler"], *OF_START["template"], "workflow"}:
            return cleaned
        if cleaned.get("starts") == "handler":
            self.check_more()
        if "more" in self.errors:
            return cleaned
        values = self.values()
        timing = {name: values[name] for name in ("kind", "rule", "time_zone") if name in values}
        for given in (timing, *({name: values[name]} for name in values if name not in timing)):
            try:
                parse_schedule(given)
            except InvalidInput as error:
                self.add_error(self.place_of(error.field), str(error))
        return cleaned

    def _post_clean(self) -> None:
        # The service checks the whole, a taken name included; the model's own check needs a tenant in context.
        self.instance = construct_instance(self, self.instance, self._meta.fields, self._meta.exclude)

    def place_of(self, path: str | None) -> str | None:
        """The form's field for what a service names: ``times`` for ``rule.times[0]``."""
        head, *rest = PARTS.split(path or "")
        inner = rest[0] if rest else ""
        if head == "rule":
            kind = self.cleaned_data.get("kind") or Kind.DAILY
            return inner if inner in self.fields else OF_KIND[kind][0]
        if head == "task":
            return self.place_in_task(inner)
        if head == "workflow":
            by_template = self.cleaned_data.get("starts") == "template"
            return inner if inner in OF_START["template"] else "template" if by_template else "workflow"
        return head if head in self.fields else None

    def rule(self) -> dict[str, Any]:
        """The rule that the fields of the chosen kind make up."""
        found: dict[str, Any] = {}
        for name in OF_KIND[self.cleaned_data["kind"]]:
            value: Any = self.cleaned_data.get(name)
            if name in ("times", "dates", "days"):
                value = _parts(value or "")
            if name == "days":
                value = [int(day) if day.isdecimal() else day for day in value]
            if value not in (None, "", []) or name in ("weekdays", "days", "dates", "every_s"):
                found[name] = value
        return found

    def values(self) -> dict[str, Any]:
        """The form's values in the shape that the services take."""
        given = self.cleaned_data
        found = {name: given[name] for name in FIELDS if name in given and name not in BUILT}
        found["rule"] = self.rule()
        if given["starts"] == "handler":
            found["task"] = self.task()
        elif given["starts"] == "template":
            found["workflow"] = {**self._kept(), "template": given.get("template") or ""}
            if given.get("parameters"):
                found["workflow"]["parameters"] = given["parameters"]
        else:
            found["workflow"] = given.get("workflow")
        return found

    def _kept(self) -> dict[str, Any]:
        """What the form does not show of the use of a template."""
        stored = self.instance.workflow or {}
        return {name: value for name, value in stored.items() if name != "parameters"} if "template" in stored else {}

    def changes(self) -> dict[str, Any]:
        """What differs from the schedule as it is stored."""
        values = self.values()
        plain = {name: values[name] for name in self.changed_data if name in values and name not in BUILT}
        built = {
            name: values[name] for name in BUILT if name in values and values[name] != getattr(self.instance, name)
        }
        return plain | built

    def _shown(self, schedule: Schedule) -> dict[str, Any]:
        """The form's values for a schedule that is stored."""
        shown = dict(schedule.rule)
        for name in ("times", "dates", "days"):
            if name in shown:
                shown[name] = ", ".join(map(str, shown[name]))
        if schedule.workflow:
            by_template = "template" in schedule.workflow
            if not by_template:
                return {**shown, "starts": "workflow", "workflow": schedule.workflow}
            return {
                **shown,
                "starts": "template",
                **{name: schedule.workflow.get(name) for name in OF_START["template"]},
            }
        return {**shown, "starts": "handler", **self.shown_task(schedule.task), "workflow": None}
