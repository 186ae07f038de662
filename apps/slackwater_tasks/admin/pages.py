"""The pages of one task and of one workflow: one that shows all of it, and one that adds it through a form of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import AdminErrorList
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.forms import AdminForm

from scheduler_ext.core.errors import SlackwaterError
from slackwater_adminkit.buttons import ButtonsMixin
from slackwater_tasks.admin.filters import find
from slackwater_tasks.admin.task_form import ServiceForm
from slackwater_tasks.submission.idempotency import Submission

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as Base
else:
    Base = object


class PagesMixin(ButtonsMixin, Base):  # type: ignore[type-arg]
    """Shows a row on a page of ours, and adds one by a form whose values go to a service."""

    add_form_class: type[ServiceForm]
    add_fieldsets: Any

    def submit(self, request: HttpRequest, form: Any) -> Submission:
        """Submit what a valid form says; a refusal is raised."""
        raise NotImplementedError

    def shown(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """The values of the page's template."""
        raise NotImplementedError

    def row(self, request: HttpRequest, object_id: str) -> Any:
        """The row of that id with what the list selects beside it; ``Http404`` when there is none."""
        rows = self.get_queryset(request).select_related(*self.list_select_related)  # type: ignore[misc]  # a tuple
        return find(rows, object_id, str(self.opts.model_name))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        what, posted = self.opts.model_name, request.method == "POST"
        form = self.add_form_class(*((request.POST, request.FILES) if posted else ()))
        if posted and form.is_valid():
            try:
                made = self.submit(request, form)
            except SlackwaterError as error:
                form.refuse(error)
            else:
                if made.created:
                    messages.success(request, f"The {what} was accepted.")
                else:
                    messages.info(request, f"This idempotency key was used before: here is its first {what}.")
                return self.go_to(made.workflow_id or made.task_ids[0])
        return self.form_page(request, form, self.add_fieldsets, f"Add {what}", None)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """All of one row; it is changed only through the buttons and the page for editing."""
        found = self.row(request, object_id)
        if not self.has_view_permission(request, found):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            **self.shown(request, found),
            "opts": self.opts,
            "original": found,
            "title": str(found),
            "inline_admin_formsets": [],
            "sw_buttons": self.shown_buttons(request, found),
            **(extra_context or {}),
        }
        return TemplateResponse(request, f"slackwater_dashboard/{self.opts.model_name}.html", context)

    def go_to(self, object_id: Any) -> HttpResponse:
        """On to the page of a row."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return HttpResponseRedirect(reverse(name, args=[object_id]))

    def form_page(
        self, request: HttpRequest, form: forms.Form, fieldsets: Any, title: str, original: Any
    ) -> HttpResponse:
        """A form of ours on the admin's page for one row; without an ``original`` one is added."""
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "adminform": AdminForm(form, fieldsets, {}, (), model_admin=self),
            "errors": AdminErrorList(form, []),  # type: ignore[arg-type]  # any form will do
            "media": self.media + form.media,
            "inline_admin_formsets": [],
            "original": original,
            "is_popup": False,
            "show_save": True,
            "show_save_and_continue": False,
            "show_save_and_add_another": False,
            "show_delete": False,
            "has_file_field": True,
        }
        adds = original is None
        return self.render_change_form(request, context, add=adds, change=not adds, obj=None)
