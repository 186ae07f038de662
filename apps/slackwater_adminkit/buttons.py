"""Buttons on an object's page that perform an action: each is a form that posts, so that no link changes anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IS_POPUP_VAR
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join, strip_tags
from django.utils.safestring import SafeString

from scheduler_ext.core.errors import SlackwaterError
from slackwater_adminkit.services import because, log_act, tell, tell_each, why

CHOSEN: Final = "chosen"
"""The field in which a page of ours sends the keys of many rows, by comma: a form's fields are limited in number."""

LINK: Final = re.compile(r"<a .*?</a>")
"""Where a message leads is no part of what was done."""

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as Base
else:
    Base = object


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """One action on one object."""

    label: str
    method: str = ""
    """Name of the admin's method ``(request, obj) -> str``: what it did, shown as a message. Empty: the button's own."""
    permission: str = "change"
    danger: bool = False
    title: str = ""
    action: str = ""
    """The label of the action on the list's selected objects; empty: there is none."""
    done: str = ""
    """The word after the count of objects it was done to, for example "cancelled"."""
    log: str = ""
    """The entry in the log of changes, for each object; empty: its label, and one entry for all that an action takes."""
    tells: bool = False
    """The entry tells what the method said, too."""
    confirm: str = ""
    """Name of the admin's method ``(request, obj) -> str``: what it will do, told on a page that asks for a reason first."""
    undo: str = ""
    """The name of the button that takes it back: offered beside the message, and in the audit."""
    when: Callable[[Any], bool] = lambda _: True
    """Whether it makes sense for the object now."""


class ButtonsMixin(Base):  # type: ignore[type-arg]
    """Adds ``buttons`` to an object's page. A service's refusal becomes a message."""

    buttons: ClassVar[Mapping[str, Button]] = {}
    max_batch: ClassVar[int] = 2_000
    """Objects to which an action is done at once."""
    at_once: ClassVar[int] = 100
    """Chosen boxes beyond these are done in the background, where the action has one."""
    change_form_outer_before_template = "slackwater_adminkit/buttons.html"

    def get_urls(self) -> list[URLPattern]:
        """The address of the buttons, before the object's own."""
        return [
            path(
                "<path:object_id>/do/<slug:name>/", self.admin_site.admin_view(self.press), name=self.press_url_name()
            ),
            *super().get_urls(),
        ]

    def press_url_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_do"

    def may(self, request: HttpRequest, permission: str) -> bool:
        """Whether the user has a Django permission on this model; a read-only admin still honours ``change``."""
        return bool(request.user.has_perm(f"{self.opts.app_label}.{permission}_{self.opts.model_name}"))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list, and its actions; rows chosen on a page of ours come in one field."""
        if chosen := request.POST.get(CHOSEN):
            given = request.POST.copy()
            given.setlist(ACTION_CHECKBOX_NAME, chosen.split(","))
            request.POST = given  # type: ignore[assignment]  # as the list's own form would have sent it
        return super().changelist_view(request, extra_context)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """The class's own actions, and those of the buttons that the user may press."""
        found: dict[str, Any] = super().get_actions(request)
        if IS_POPUP_VAR not in request.GET:
            for name, button in self.buttons.items():
                if button.action and self.may(request, button.permission):
                    found[name] = (partial(self._act, name), name, button.action)
        return found

    def _act(self, name: str, _admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Do it to the chosen objects, once a reason is given: an earlier page asks for one."""
        button, across = self.buttons[name], request.POST.get("select_across") == "1"
        if not why(request):
            return self.ask_many(request, name, queryset, across=across)
        many = across or len(request.POST.getlist(ACTION_CHECKBOX_NAME)) > self.at_once
        if many and (begun := self.begin(request, name, queryset)) is not None:
            return begun
        some = list(islice(queryset.iterator(chunk_size=500), self.max_batch + 1))
        taken = some[: self.max_batch]
        done = tell_each(request, taken, lambda obj: self._do(request, name, obj), button.done, partial(
            self.undoing, request, button))  # fmt: skip
        if done and not button.log:
            what = f"{done} of {len(taken)} {self.opts.verbose_name_plural}: " + ", ".join(map(str, taken))
            log_act(request, self.model, what, because(f"{button.action}.", why(request)))
        if len(some) > self.max_batch:
            messages.warning(request, f"Only the first {self.max_batch} were taken; repeat it for the rest.")
        return None

    def begin(self, request: HttpRequest, name: str, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Do it in the background to everything that matches; ``None`` where it is done at once."""
        return None

    def told_of_many(self, name: str, queryset: QuerySet[Any]) -> str:
        """How many it will be done to."""
        return f"{queryset.count():,} {self.opts.verbose_name_plural}"

    def ask_many(self, request: HttpRequest, name: str, queryset: QuerySet[Any], *, across: bool) -> HttpResponse:
        """A page that says to how many it will be done, and asks why."""
        button = self.buttons[name]
        narrowed = words_of(self, request)
        which = (f", of everything that matches {narrowed}" if narrowed else ", of all there are") if across else ""
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        hidden = [("action", name), (CHOSEN, ",".join(chosen[:1] if across else chosen))]
        context = {
            **self.admin_site.each_context(request),
            "title": button.action,
            "button": button,
            "told": f"{button.action}: {self.told_of_many(name, queryset)}{which}.",
            "hidden": [*hidden, ("select_across", "1" if across else "0")],
            "back": request.get_full_path(),
        }
        return TemplateResponse(request, "slackwater_adminkit/confirm.html", context)

    def undoing(self, request: HttpRequest, button: Button, objects: Sequence[Any]) -> SafeString | str:
        """A button for the message that takes back what was done to these objects."""
        if not button.undo or not objects:
            return ""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
        fields = [
            ("action", button.undo),
            ("reason", "undone"),
            ("csrfmiddlewaretoken", get_token(request)),
            (CHOSEN, ",".join(str(obj.pk) for obj in objects)),
        ]
        return format_html(
            '<form method="post" action="{}" class="sw-undo">{}<button type="submit" class="sw-button">Undo</button></form>',
            reverse(name), format_html_join("", '<input type="hidden" name="{}" value="{}">', fields),
        )  # fmt: skip

    def _do(self, request: HttpRequest, name: str, obj: Any) -> str:
        """Call the button's method and log the change; returns what it did."""
        button = self.buttons[name]
        done: str = getattr(self, button.method or name)(request, obj)
        if button.log:
            told = f"{button.log} {strip_tags(LINK.sub('', done)).strip()}" if button.tells else button.log
            self.log_change(request, obj, because(told, why(request)))
        return done

    def press(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Do what the button says, and go back to the page."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        button = self.buttons.get(name)
        if button is None or not self.may(request, button.permission):
            raise PermissionDenied
        obj = self.get_object(request, object_id)
        if obj is None:
            raise Http404
        try:
            if (button.confirm or "ask" in request.POST) and not why(request):
                return self.ask(request, button, obj)
            messages.success(
                request, format_html("{} {}", self._do(request, name, obj), self.undoing(request, button, [obj]))
            )
            if not button.log:
                self.log_change(request, obj, because(f"{button.label.rstrip('…')}.", why(request)))
        except SlackwaterError as error:
            tell(request, error)
        back = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return HttpResponseRedirect(reverse(back, args=[obj.pk]))

    def ask(self, request: HttpRequest, button: Button, obj: Any) -> HttpResponse:
        """A page that says what will be done, and asks why: nothing is done before a reason is given.

        What cannot be done now is told there instead, with why.
        """
        refused = False
        try:
            told = getattr(self, button.confirm)(request, obj) if button.confirm else f"{button.label}: {obj}."
        except SlackwaterError as error:
            told, refused = f"Not now: {error.message}.", True
        context = {
            **self.admin_site.each_context(request),
            "title": f"{button.label.rstrip('…')}: {obj}",
            "button": button,
            "told": told,
            "refused": refused,
            "back": reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[obj.pk]),
            "empty": "reason" in request.POST,
        }
        return TemplateResponse(request, "slackwater_adminkit/confirm.html", context)

    def shown_buttons(self, request: HttpRequest, obj: Any) -> list[dict[str, Any]]:
        """The buttons that the user may press on this object now."""
        target = f"admin:{self.press_url_name()}"
        return [
            {"button": button, "url": reverse(target, args=[obj.pk, name])}
            for name, button in self.buttons.items()
            if self.may(request, button.permission) and button.when(obj)
        ]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs.get("obj")
        context["sw_buttons"] = self.shown_buttons(request, obj) if obj is not None and obj.pk else []
        return super().render_change_form(request, context, *args, **kwargs)


def words_of(shown: Any, request: HttpRequest) -> str:
    """What a list is narrowed by, in words: ``state ready, tenant acme``."""
    return ", ".join(
        _word(shown, name, str(value)) for name, value in request.GET.items() if value and name not in ("o", "p")
    )


def _word(shown: Any, name: str, value: str) -> str:
    if name == "q":
        return f"the search {value!r}"
    field = shown.opts.fields_map.get(name.partition("__")[0]) or next(
        (each for each in shown.opts.concrete_fields if each.name == name.partition("__")[0]), None
    )
    if field is None or not value.isdecimal():
        return f"{name.partition('__')[0]} {value}"
    if field.is_relation:
        value = str(field.related_model._base_manager.filter(pk=value).first() or value)
    return f"{field.verbose_name} {dict(field.flatchoices).get(int(value), value) if field.choices else value}"
