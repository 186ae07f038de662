"""The admin's form for a task: handed in through the service like every other submission, or edited while it waits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.contrib.admin.helpers import AdminErrorList
from django.http import HttpRequest, HttpResponse
from unfold.forms import AdminForm
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelect2Widget,
    UnfoldAdminSelectWidget,
    UnfoldAdminSplitDateTimeWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.states import Category, RunCondition
from scheduler_ext.core.types import MAX_SCRIPT_BYTES
from slackwater_adminkit import JsonField
from slackwater_resources.models import Handler, Tier
from slackwater_tasks.models import MutexScope, OnLate
from slackwater_tasks.read.tasks import word
from slackwater_tasks.spec import EDITABLE
from slackwater_tenants.models import Tenant

LISTS = ("depends_on", "tags")


def _words(enum: Any) -> list[tuple[str, str]]:
    return [(word(member), word(member).replace("_", " ")) for member in enum]


def _text(**options: Any) -> forms.CharField:
    return forms.CharField(required=False, widget=UnfoldAdminTextInputWidget(), **options)


def _number(**options: Any) -> forms.FloatField:
    return forms.FloatField(required=False, widget=UnfoldAdminIntegerFieldWidget(attrs={"step": "any"}), **options)


def _whole(**options: Any) -> forms.IntegerField:
    return forms.IntegerField(required=False, widget=UnfoldAdminIntegerFieldWidget(), **options)


def _choice(choices: Any, **options: Any) -> forms.ChoiceField:
    return forms.ChoiceField(choices=choices, widget=UnfoldAdminSelectWidget(), **options)


def _json(default: Any, **options: Any) -> JsonField:
    return JsonField(required=False, initial=default, widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}), **options)


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

    tenant = forms.ModelChoiceField(Tenant.objects.all(), widget=UnfoldAdminSelect2Widget())
    name = _text(max_length=200)
    tasks = JsonField(
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 16}),
        initial=lambda: [
            {"name": "first", "handler": "demo.add", "args": [1, 2]},
            {"name": "second", "handler": "demo.gather", "depends_on": ["first"]},
        ],
        help_text="JSON array of tasks with their names and depends_on, as POST /api/v1/workflows takes them.",
    )
    idempotency_key = _text(help_text="A second submission with the same key returns the first workflow.")


class TaskForm(ServiceForm):
    """The fields of a task by the names they have everywhere; empty ones are left to the plan's and tier's defaults."""

    tenant = forms.ModelChoiceField(Tenant.objects.all(), widget=UnfoldAdminSelect2Widget())
    name = _text(max_length=200)
    handler = forms.ChoiceField(
        required=False, widget=UnfoldAdminSelect2Widget(), help_text="An exported function; or give a script."
    )
    script_file = forms.FileField(
        required=False,
        label="Script",
        widget=UnfoldAdminFileFieldWidget(),
        help_text="Is put into the script store.",
    )
    script_path = _text(help_text="Path of a script within the tenant's mounted folder.", max_length=500)
    args = _json(list, help_text="JSON array.")
    kwargs = _json(dict, help_text="JSON object.")
    tier = forms.ChoiceField(widget=UnfoldAdminSelectWidget(), initial="basic")
    category = _choice(_words(Category), initial="delayable")
    priority = _whole(initial=0, help_text="0 to 1000, larger first within its line.")
    mutex_key = _text(help_text="Tasks that share a key run one at a time.")
    mutex_limit = _whole(initial=1, help_text="… or this many at a time.")
    mutex_scope = _choice(_words(MutexScope), initial="both", help_text="Which work the key excludes.")
    rate_key = _text(help_text="Tasks that share it share an execution rate.")
    tags = _text(help_text="Separated by commas.")
    start_at = forms.SplitDateTimeField(required=False, widget=UnfoldAdminSplitDateTimeWidget(), help_text="UTC.")
    delay_tolerance = _number(help_text="Seconds; empty: the plan's for the category.")
    on_late = _choice(_words(OnLate), initial="run_first", help_text="When its latest start passes.")
    execution_cap = _number(help_text="Seconds; empty: the tier's.")
    total_attempts = _whole(initial=3)
    checkpoints = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanSwitchWidget(),
        help_text="It saves checkpoints, and yields when it is asked to. A handler that declares them need not say so.",
    )
    retry = _json(None, help_text='Back-off of its own: {"base_s": 2, "factor": 2, "max_s": 3600, "jitter": 0.25}.')
    depends_on = _text(help_text="Ids of tasks, separated by commas.")
    condition = _choice(_words(RunCondition), initial="all_succeeded", help_text="When it may run.")
    idempotency_key = _text(help_text="A second submission with the same key returns the first task.")

    def __init__(self, *args: Any, editing: bool = False, **kwargs: Any) -> None:
        """``editing`` leaves only what may change while a task waits."""
        super().__init__(*args, **kwargs)
        names = list(Handler.objects.values_list("name", flat=True))
        self.fields["handler"].choices = [("", "–"), *((name, name) for name in names)]  # type: ignore[attr-defined]
        slugs = dict.fromkeys(Tier.objects.order_by("tenant_id", "cpu_milli").values_list("slug", flat=True))
        self.fields["tier"].choices = [(slug, slug) for slug in slugs]  # type: ignore[attr-defined]
        if editing:
            for name in set(self.fields) - EDITABLE:
                del self.fields[name]

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
            if name in ("tenant", "script_file") or value is None or value == "":
                continue
            found[name] = [part.strip() for part in value.split(",") if part.strip()] if name in LISTS else value
        return found

    def changes(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """What differs from ``before``; an emptied field goes back to its default."""
        now = self.values()
        changed = {name: value for name, value in now.items() if value != before.get(name)}
        for name in set(self.fields) - set(now):
            if before.get(name) not in (None, "", [], {}):
                changed[name] = _EMPTY.get(name)
        return changed


_EMPTY: dict[str, Any] = {
    "name": "",
    "mutex_key": "",
    "mutex_limit": 1,
    "rate_key": "",
    "tags": [],
    "priority": 0,
    "args": [],
    "kwargs": {},
}

ADD_FIELDSETS: Any = (
    (None, {"fields": (("tenant", "name"), "handler", ("script_file", "script_path"), "args", "kwargs")}),
    (
        "Where and when",
        {"fields": (("tier", "category"), ("start_at", "priority"), ("delay_tolerance", "on_late"))},
    ),
    (
        "Running",
        {
            "fields": (
                ("execution_cap", "total_attempts"),
                "retry",
                ("mutex_key", "mutex_limit", "mutex_scope"),
                "rate_key",
                "checkpoints",
            )
        },
    ),
    ("Needs", {"fields": (("depends_on", "condition"), ("tags", "idempotency_key"))}),
)
WORKFLOW_FIELDSETS: Any = ((None, {"fields": (("tenant", "name"), "tasks", "idempotency_key")}),)
EDIT_FIELDSETS: Any = (
    (None, {"fields": ("name", "args", "kwargs")}),
    (
        "Where and when",
        {"fields": (("tier", "category"), ("start_at", "priority"), ("delay_tolerance", "on_late"))},
    ),
    (
        "Running",
        {
            "fields": (
                ("execution_cap", "total_attempts"),
                "retry",
                ("mutex_key", "mutex_limit", "mutex_scope"),
                "rate_key",
                "tags",
            )
        },
    ),
)


def page(
    model_admin: Any, request: HttpRequest, form: forms.Form, fieldsets: Any, title: str, original: Any
) -> HttpResponse:
    """A form of ours on the admin's page for one; without an ``original`` something is added."""
    context = {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "adminform": AdminForm(form, fieldsets, {}, (), model_admin=model_admin),
        "errors": AdminErrorList(form, []),  # type: ignore[arg-type]  # any form will do
        "media": model_admin.media + form.media,
        "inline_admin_formsets": [],
        "original": original,
        "is_popup": False,
        "show_save": True,
        "show_save_and_continue": False,
        "show_save_and_add_another": False,
        "show_delete": False,
        "has_file_field": True,
    }
    shown: HttpResponse = model_admin.render_change_form(
        request, context, add=original is None, change=original is not None, obj=None
    )
    return shown


def initial_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """The form's first values for a task as ``reading.task`` gives it."""
    first = {name: task[name] for name in EDITABLE if name in task}
    first["tags"] = ", ".join(task["tags"])
    moment: datetime | None = task["start_at"]
    first["start_at"] = moment
    return first
