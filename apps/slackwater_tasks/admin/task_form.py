"""The admin's form for a task: submitted through the service like every other submission, or edited while it waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django import forms
from unfold import widgets

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.types import MAX_SCRIPT_BYTES
from slackwater_adminkit.display import JsonField
from slackwater_adminkit.services import MAX_REASON
from slackwater_adminkit.units import ByNameField, LinesField, TextsField, ValuesField
from slackwater_resources.models import Handler, Tier
from slackwater_tasks import field_kinds as kinds
from slackwater_tasks.spec import EDITABLE, FIELDS
from slackwater_tenants.models import Tenant

BESIDE = ("tenant", "script_file", "reason")
"""The form's fields that are none of the task's."""


def _text(**options: Any) -> forms.CharField:
    return forms.CharField(required=False, widget=widgets.UnfoldAdminTextInputWidget(), **options)


_number: Callable[..., forms.Field] = partial(
    forms.IntegerField, required=False, widget=widgets.UnfoldAdminIntegerFieldWidget
)


def _json(**options: Any) -> JsonField:
    return JsonField(required=False, widget=widgets.UnfoldAdminTextareaWidget(attrs={"rows": 3}), **options)


_INPUTS: dict[type[kinds.Kind], tuple[Callable[..., forms.Field], str]] = {
    kinds.Text: (_text, ""),
    kinds.Sha256: (_text, ""),
    kinds.Whole: (_number, ""),
    kinds.Flag: (partial(forms.BooleanField, required=False, widget=widgets.UnfoldBooleanSwitchWidget), ""),
    kinds.Seconds: (
        partial(forms.FloatField, required=False, widget=widgets.UnfoldAdminIntegerFieldWidget(attrs={"step": "any"})),
        "Seconds.",
    ),
    kinds.Choice: (partial(forms.ChoiceField, widget=widgets.UnfoldAdminSelectWidget), ""),
    kinds.Moment: (
        partial(forms.SplitDateTimeField, required=False, widget=widgets.UnfoldAdminSplitDateTimeWidget),
        "UTC.",
    ),
    kinds.Texts: (_text, "Separated by commas."),
    kinds.Array: (_json, "JSON array."),
    kinds.Object: (_json, "JSON object."),
    kinds.Map: (partial(TextsField, required=False), "One on a line: over: list; item: name; index: name."),
    kinds.Metadata: (partial(TextsField, required=False), "A name and its text on each line: order: 7102."),
    kinds.Resources: (partial(LinesField, required=False), "One on a line: cpu_milli: 2 cores; memory_mb: 512 MiB."),
    kinds.Retry: (
        partial(ValuesField, required=False),
        "One on a line: base_s: 2 s; factor: 2; max_s: 1 h; jitter: 0.25.",
    ),
}
"""How each kind of a task's fields is filled in, and the words that say so."""


def help_of(field: kinds.Field, hint: str = "") -> str:
    """What stands below a field: what it is, how it is filled in (``hint``), and what an empty one means."""
    empty = f"Empty: {field.fallback}." if field.fallback else ""
    return " ".join(filter(None, (field.help, hint, empty)))


def input_of(field: kinds.Field) -> forms.Field:
    make, hint = _INPUTS[type(field.kind)]
    options: dict[str, Any] = {"help_text": help_of(field, hint), "initial": field.default}
    if isinstance(field.kind, kinds.Choice):
        options["choices"] = [(word, word.replace("_", " ")) for word in field.kind.words]
        options["initial"] = field.kind.shown(field.default)
    elif isinstance(field.kind, kinds.Text):
        options["max_length"] = field.kind.longest
    elif isinstance(field.kind, kinds.Texts):
        options["initial"] = ""
    if make is _json:
        options["called"] = field.name
    return make(**options)


class ServiceForm(forms.Form):
    """What is filled in goes to a service, whose refusal comes back at the field it names."""

    def refuse(self, error: SlackwaterError) -> None:
        """Show a service's refusal at the field it names, or above the form."""
        field = (error.field or "").split("[")[0].split(".")[0]
        name = "script_file" if field == "script" else field
        if retry_after := getattr(error, "retry_after", None):
            self.add_error(None, f"{error}; try again in {retry_after:.0f} s")
        else:
            self.add_error(name if name in self.fields else None, str(error))


class WorkflowForm(ServiceForm):
    """A whole graph of tasks, in the words of the REST interface."""

    tenant = forms.ModelChoiceField(Tenant.objects.all(), widget=widgets.UnfoldAdminSelect2Widget())
    name = _text(max_length=200)
    tasks = JsonField(
        called="tasks",
        widget=widgets.UnfoldAdminTextareaWidget(attrs={"rows": 16}),
        initial=lambda: [
            {"name": "first", "handler": "demo.add", "args": [1, 2]},
            {"name": "second", "handler": "demo.gather", "depends_on": ["first"]},
        ],
        help_text="JSON array of tasks with their names and depends_on, as POST /api/v1/workflows takes them.",
    )
    max_running = _number(help_text="So many of its tasks are with nodes at a time, at most; empty: any number.")
    share_weight = _number(
        help_text="Its weight as a member of its tenant's share, beside the rest of the tenant's work, which has 1; "
        "empty: it is part of that rest."
    )
    idempotency_key = _text(help_text="A second submission with the same key returns the first workflow.")


class TaskForm(ServiceForm):
    """The fields of a task by the names they have everywhere; empty ones are left to the plan's and tier's defaults."""

    tenant = forms.ModelChoiceField(Tenant.objects.all(), widget=widgets.UnfoldAdminSelect2Widget())
    script_file = forms.FileField(
        required=False,
        label="Script",
        widget=widgets.UnfoldAdminFileFieldWidget(),
        help_text="Is put into the script store.",
    )

    def __init__(self, *args: Any, editing: bool = False, again: bool = False, **kwargs: Any) -> None:
        """``editing`` leaves only what may change while a task waits; ``again``: it has ended, and somebody says why."""
        super().__init__(*args, **kwargs)
        for name in _shown(editing=editing):
            self.fields[name] = input_of(FIELDS[name])
        slugs = dict.fromkeys(Tier.objects.order_by("tenant_id", "cpu_milli").values_list("slug", flat=True))
        self.fields["tier"] = forms.ChoiceField(
            widget=widgets.UnfoldAdminSelectWidget(), initial="basic", choices=[(slug, slug) for slug in slugs],
            help_text=FIELDS["tier"].help,
        )  # fmt: skip
        if editing:
            del self.fields["tenant"], self.fields["script_file"]
            self.fields["reason"] = forms.CharField(
                required=again, label="Why", max_length=MAX_REASON, help_text="Stands in the history.",
                widget=widgets.UnfoldAdminTextInputWidget(),
            )  # fmt: skip
            return
        names = list(Handler.objects.values_list("name", flat=True))
        self.fields["handler"] = forms.ChoiceField(
            required=False, widget=widgets.UnfoldAdminSelect2Widget(), choices=[("", "–"), *((name, name) for name in names)],
            help_text=FIELDS["handler"].help,
        )  # fmt: skip

    def clean_script_file(self) -> Any:
        """A script that is far too large is refused before it is read."""
        file = self.cleaned_data["script_file"]
        if file is not None and file.size > MAX_SCRIPT_BYTES:
            raise forms.ValidationError(f"script: must be at most {MAX_SCRIPT_BYTES} bytes")
        return file

    def values(self) -> dict[str, Any]:
        """What was filled in, as a submission's fields."""
        found: dict[str, Any] = {}
        for name, value in self.cleaned_data.items():
            empty = value is None or value == "" or (value == {} and isinstance(self.fields[name], ByNameField))
            if name in BESIDE or empty:
                continue
            several = isinstance(FIELDS[name].kind, kinds.Texts)
            found[name] = [part.strip() for part in value.split(",") if part.strip()] if several else value
        return found

    def changes(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """What differs from ``before``; an emptied field goes back to its default."""
        now = self.values()
        changed = {name: value for name, value in now.items() if value != _filled_in(before.get(name))}
        for name in set(self.fields) - {*now, *BESIDE}:
            if before.get(name) not in (None, "", [], {}):
                changed[name] = FIELDS[name].default
        return changed


def _shown(*, editing: bool) -> list[str]:
    """The fields of a task that the form shows; a script is uploaded instead of named by its digest."""
    return [name for name, field in FIELDS.items() if (field.editable if editing else name != "script")]


def fieldsets(*, editing: bool) -> Any:
    groups: dict[str, list[str]] = {}
    for name in _shown(editing=editing):
        groups.setdefault(FIELDS[name].group, []).append(name)
    if not editing:
        groups[kinds.WHAT_RUNS] = ["tenant", "script_file", *groups[kinds.WHAT_RUNS]]
    else:
        groups["Why"] = ["reason"]
    return tuple(
        (None if group == kinds.WHAT_RUNS else group, {"fields": tuple(names)}) for group, names in groups.items()
    )


def _filled_in(value: Any) -> Any:
    """A moment is filled in to the second."""
    return value.replace(microsecond=0) if isinstance(value, datetime) else value


def initial_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """The form's first values for a task as :func:`slackwater_tasks.read.tasks.task` gives it."""
    several = {name for name in EDITABLE if isinstance(FIELDS[name].kind, kinds.Texts)}
    return {name: ", ".join(task[name]) if name in several else task[name] for name in EDITABLE if name in task}
