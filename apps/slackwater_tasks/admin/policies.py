"""Policies in the admin: which are chosen where, and how far an order has been brought in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminSelectWidget

from scheduler_ext.core.errors import Conflict, SlackwaterError
from scheduler_ext.policies.registry import ORDER_POLICIES, SHARE_POLICIES, parameters_of
from slackwater_adminkit.display import column
from slackwater_adminkit.reading import in_lines
from slackwater_adminkit.services import ReadOnlyMixin, ServiceAdmin, actor
from slackwater_adminkit.units import ValuesField
from slackwater_tasks.admin.preview import PreviewMixin
from slackwater_tasks.control import policies
from slackwater_tasks.models import Line, PolicyChoice, RankSweep

POLICIES = [
    ("order inside a line", [(name, name) for name in ORDER_POLICIES]),
    ("share between lines", [(name, name) for name in SHARE_POLICIES]),
]
TAKEN = "; ".join(
    f"{name} takes {', '.join(taken)}"
    for name, policy in {**ORDER_POLICIES, **SHARE_POLICIES}.items()
    if (taken := parameters_of(policy))
)


class PolicyChoiceForm(forms.ModelForm):  # type: ignore[type-arg]
    """A choice; a subject that it cannot have is an error of its field."""

    def clean(self) -> None:
        """Refuse it as the service does: the constraints of the table say only their names."""
        super().clean()
        if kind := self.cleaned_data.get("kind"):  # of a choice that is changed it stays
            try:
                policies.check_subject(kind, _subject(self.cleaned_data.get))
            except SlackwaterError as error:
                self.add_error(error.field, str(error))

    @staticmethod
    def place_of(path: str) -> str:
        """The field where the fault of a policy is shown, which the service names as the settings do."""
        place, _, parameter = path.partition(".")
        return ("parameters" if parameter else "policy") if place in ("order_policy", "share_policy") else place


def _subject(get: Callable[[str], Any]) -> policies.Subject:
    named = [each for each in map(get, ("pool", "tenant", "line")) if each is not None]
    if len(named) > 1:
        raise Conflict("choose for one of pool, tenant and line", field="pool")
    return named[0] if named else None


@admin.register(PolicyChoice)
class PolicyChoiceAdmin(PreviewMixin, ServiceAdmin):
    """What is chosen while the platform runs; it holds from the next round on. The nearest choice holds."""

    form = PolicyChoiceForm
    fields = ("kind", "policy", "parameters", "cell", "pool", "tenant", "line")
    list_display = ("kind", "subject", "policy", "own_parameters", "chosen_at", "chosen_by")
    list_filter = ("kind", "cell")
    list_select_related = ("pool", "tenant", "line__tenant", "line__tier")
    autocomplete_fields = ("pool", "tenant")
    actions = None

    def get_readonly_fields(self, request: HttpRequest, obj: PolicyChoice | None = None) -> tuple[str, ...]:
        """What a choice is for stays: for something else another one is made."""
        return ("kind", "cell", "pool", "tenant", "line") if obj else ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """The policies there are are offered by name; all tenants' lines, as operators see the whole platform."""
        if db_field.name == "policy":
            return forms.ChoiceField(choices=POLICIES, widget=UnfoldAdminSelectWidget)
        if db_field.name == "line":
            lines = Line.objects.unscoped().select_related("tenant", "tier")  # the operators' view
            return forms.ModelChoiceField(lines, required=False, widget=UnfoldAdminSelectWidget)
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "parameters":
            field.help_text = f"One on a line: quantum_ms: 2 s. {TAKEN}."
        return field

    own_parameters = column("parameters", lambda choice: in_lines(choice.parameters, ValuesField()))
    subject = column("for", lambda choice: str(choice.pool or choice.tenant or choice.line or f"cell {choice.cell}"))

    def save_model(
        self, request: HttpRequest, obj: PolicyChoice, form: forms.ModelForm[PolicyChoice], change: bool
    ) -> None:
        made = policies.choose(
            obj.kind, obj.policy, obj.parameters, cell=obj.cell, subject=_subject(partial(getattr, obj)),
            actor=actor(request),
        )  # fmt: skip
        obj.pk, obj._state.adding, obj._state.db = made.pk, False, made._state.db

    def delete_model(self, request: HttpRequest, obj: PolicyChoice) -> None:
        policies.unchoose(obj.kind, cell=obj.cell, subject=obj.pool or obj.tenant or obj.line)


@admin.register(RankSweep)
class RankSweepAdmin(ReadOnlyMixin, ServiceAdmin):
    """How far upkeep has brought in the order chosen last."""

    list_display = ("cell", "epoch", "passes", "moved", "changed_at")
