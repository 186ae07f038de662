"""Calling services from the admin: who acts, and what an error looks like there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from scheduler_ext.core.errors import SlackwaterError
from slackwater_adminkit.reading import readable
from slackwater_adminkit.units import ByNameField, UnitField
from slackwater_adminkit.units import field_of as units_field

if TYPE_CHECKING:
    # unfold has no annotations; its ModelAdmin is Django's with other templates.
    from django.contrib.admin import ModelAdmin as Base
    from django.contrib.admin import ModelAdmin as UnfoldAdmin
else:
    Base = object
    from unfold.admin import ModelAdmin as UnfoldAdmin

SHOWN_ERRORS = 5
MESSAGE_VALUE = 200
"""Characters of a value in the log of changes."""
MAX_REASON = 150
REFUSAL = "sw_refusal"


def actor(request: HttpRequest) -> str:
    """Who acts, as the history records it."""
    return f"user:{request.user.get_username()}"[:120]


def why(request: HttpRequest) -> str:
    """The reason that was given for an act."""
    return " ".join(request.POST.get("reason", "").split())[:MAX_REASON]


def because(what: str, reason: str) -> str:
    """What was done, with its reason where one was given."""
    return f"{what.removesuffix('.')}: {reason}" if reason else what


def tell(request: HttpRequest, error: SlackwaterError) -> None:
    """Show a service's error as a message; it names the field at fault."""
    text = str(error)
    if retry_after := getattr(error, "retry_after", None):
        text += f"; try again in {retry_after:.0f} s"
    messages.error(request, text)


def become(obj: Any, made: Any) -> None:
    """Make a form's object the row that a service has stored."""
    vars(obj).update({name: value for name, value in vars(made).items() if name != "_state"})
    obj._state.adding, obj._state.db = False, made._state.db


def tell_each(
    request: HttpRequest, items: Iterable[Any], call: Callable[[Any], object], done: str,
    undoing: Callable[[Sequence[Any]], str] = lambda _: "",
) -> int:  # fmt: skip
    """Call a service for each item; one message counts what was done, one tells what was refused and why.

    ``done`` is the word after the count, for example "cancelled"; ``undoing`` makes the button that takes it back.
    Returns how many were done.
    """
    good: list[Any] = []
    refused = []
    for item in items:
        try:
            call(item)
            good.append(item)
        except SlackwaterError as error:
            refused.append(f"{item}: {error}")
    if good:
        messages.success(request, format_html("{} {}. {}", len(good), done, undoing(good)))
    if refused:
        more = f" … and {len(refused) - SHOWN_ERRORS} more" if len(refused) > SHOWN_ERRORS else ""
        messages.error(request, f"{len(refused)} refused: " + "; ".join(refused[:SHOWN_ERRORS]) + more)
    return len(good)


def log_act(request: HttpRequest, model: type[Model], what: str, text: str, pk: Any = None) -> None:
    """One entry in the log of changes for an act on many objects; ``pk`` is of the row that tells of it."""
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    LogEntry.objects.create(
        user_id=request.user.pk or 0, content_type=ContentType.objects.get_for_model(model), object_repr=what[:200],
        object_id=pk,
        action_flag=CHANGE, change_message=text,
    )  # fmt: skip


def told_change(label: Any, before: Any, after: Any) -> str:
    """One changed value in words."""
    old, new = (
        str(getattr(value, "pk", value))[:MESSAGE_VALUE] if value not in (None, "") else "nothing"
        for value in (before, after)
    )
    return f"{label} from {old} to {new}"


def _as_shown(field: Any, value: Any) -> Any:
    return field.prepare_value(value) if isinstance(field, UnitField | ByNameField) else value


class ServiceAdmin(UnfoldAdmin):  # type: ignore[type-arg]  # Django's class takes no argument at run time
    """A ModelAdmin that saves through services: their errors become messages, never an error page."""

    compressed_fields = True
    warn_unsaved_form = True
    list_filter_submit = True

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Numbers with a unit are filled in with it."""
        return units_field(db_field) or super().formfield_for_dbfield(db_field, request, **kwargs)

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """What was changed, with the values before and after."""
        told = super().construct_change_message(request, form, formsets, add)
        if add or not form.changed_data or not told:
            return told
        values = (
            (name, *(_as_shown(form.fields[name], each.get(name)) for each in (form.initial, form.cleaned_data)))
            for name in form.changed_data
        )
        return [
            {"changed": {"fields": [told_change(form.fields[name].label or name, *pair) for name, *pair in values]}},
            *told[1:],
        ]

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Django's view; a service's refusal is shown in the form as it was sent."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except SlackwaterError as error:
            if request.method != "POST" or hasattr(request, REFUSAL):
                raise
            setattr(request, REFUSAL, error)
        return super().changeform_view(request, *args, **kwargs)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Who may only look reads units and words too."""
        readable(context["adminform"], self.model)
        return super().render_change_form(request, context, *args, **kwargs)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """The form; after a service's refusal, with that as an error at the field it names."""
        form_class = super().get_form(request, obj, change, **kwargs)
        if not hasattr(request, REFUSAL):
            return form_class
        refusal: SlackwaterError = getattr(request, REFUSAL)

        class RefusedForm(form_class):  # type: ignore[misc,valid-type]
            """The same form, never valid."""

            def full_clean(self) -> None:
                """Add the refusal to what else is wrong."""
                super().full_clean()
                place_of = getattr(self, "place_of", lambda path: path.split(".")[0].split("[")[0])
                field = place_of(refusal.field or "")
                self.add_error(field if field in self.fields else None, str(refusal))

        return RefusedForm


class AllTenantsMixin(Base):  # type: ignore[type-arg]
    """The rows of all tenants: the admin is the operators' view of the whole platform."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Unscoped, in the admin's order."""
        rows: QuerySet[Any] = self.model.objects.unscoped()
        return rows.order_by(*self.get_ordering(request))


class UndeletedMixin(Base):  # type: ignore[type-arg]
    """Nothing is deleted here: other rows refer to it, or would go with it."""

    def _never(self, *_: Any, **__: Any) -> bool:
        return False

    has_delete_permission = _never


class ReadOnlyMixin(UndeletedMixin):
    """Nothing is added, changed or deleted here: the ledger's rows are written by its services alone."""

    has_add_permission = has_change_permission = UndeletedMixin._never

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All columns, unless some are named; asking a form for them would need a tenant in context."""
        return self.fields or [field.name for field in self.opts.concrete_fields]
