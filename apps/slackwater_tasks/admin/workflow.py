"""Workflows in the admin: counts by state and the whole graph as a picture."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from scheduler_ext.core.errors import Conflict, SlackwaterError
from slackwater_adminkit import (
    AllTenantsMixin,
    BigTableAdmin,
    Button,
    ButtonsMixin,
    ReadOnlyMixin,
    actor,
    ago,
    badge,
    column,
    short,
)
from slackwater_tasks.admin import graphs
from slackwater_tasks.admin import task_form as form_module
from slackwater_tasks.admin.filters import AgeFilter, find, id_range
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.models import LiveTask, Workflow
from slackwater_tasks.read import tasks
from slackwater_tasks.submission import service
from slackwater_tenants.scoping import tenant_scope


def unfinished(workflow: Workflow) -> QuerySet[LiveTask]:
    """Its tasks that are not final. Unscoped: the workflow says whose they are."""
    return LiveTask.objects.unscoped().filter(task__workflow=workflow).order_by("pk")


@admin.register(Workflow)
class WorkflowAdmin(AllTenantsMixin, ButtonsMixin, ReadOnlyMixin, BigTableAdmin):
    """Graphs of tasks handed in as one."""

    buttons: ClassVar = {
        "cancel": Button(
            label="Cancel what has not ended",
            method="cancel_rest",
            danger=True,
            when=lambda workflow: unfinished(workflow).exists(),
        )
    }

    list_display = ("title", "tenant", "task_count", "edge_count", "submitted")
    list_select_related = ("tenant",)
    list_filter = (AgeFilter, ("tenant", AutocompleteSelectFilter))
    search_fields = ("id", "name")
    search_help_text = "An id or its first digits, or a part of the name."

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Workflow], search_term: str
    ) -> tuple[QuerySet[Workflow], bool]:
        """By id or name."""
        text = search_term.strip()
        if (ids := id_range(text)) is not None:
            return queryset.filter(pk__range=ids), False
        return queryset.filter(name__icontains=text) if text else queryset, False

    title = column("workflow", lambda workflow: workflow.name or short(workflow.pk))
    submitted = column("submitted", lambda row: ago(row.submitted_at))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Those who may hand in workflows for tenants."""
        return request.user.has_perm("slackwater_tasks.add_workflow")

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Hand in a whole graph."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = form_module.WorkflowForm(*((request.POST,) if request.method == "POST" else ()))
        if request.method == "POST" and form.is_valid() and (made := self._submit(request, form)) is not None:
            return HttpResponseRedirect(reverse("admin:slackwater_tasks_workflow_change", args=[made]))
        return form_module.page(self, request, form, form_module.WORKFLOW_FIELDSETS, "Add workflow", None)

    def _submit(self, request: HttpRequest, form: form_module.WorkflowForm) -> UUID | None:
        """Submit what the form says; a refusal goes into the form."""
        given = form.cleaned_data
        graph = {"name": given["name"], "tasks": given["tasks"]}
        key = given["idempotency_key"] or None
        try:
            made = service.submit_workflow(given["tenant"], graph, actor=actor(request), idempotency_key=key)
        except SlackwaterError as error:
            form.refuse(error)
            return None
        if made.created:
            messages.success(request, "The workflow was accepted.")
        else:
            messages.info(request, "This idempotency key was used before: here is its first workflow.")
        return made.workflow_id

    def cancel_rest(self, request: HttpRequest, obj: Workflow) -> str:
        """Cancel its unfinished tasks, and ask those that run to end."""
        ids = list(unfinished(obj).values_list("pk", flat=True)[: self.max_batch + 1])
        done = 0
        for task_id in ids[: self.max_batch]:
            try:
                cancel(obj.tenant_id, task_id, actor=actor(request))
                done += 1
            except Conflict:
                continue  # it ended meanwhile, most often because what it needed was cancelled just now
        rest = " There are more: press it again." if len(ids) > self.max_batch else ""
        return f"{done} tasks were cancelled or asked to end, and what needs them with them.{rest}"

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Its counts and its graph."""
        found: Workflow = find(self.get_queryset(request).select_related("tenant"), object_id, "workflow")
        if not self.has_view_permission(request, found):
            raise PermissionDenied
        with tenant_scope(found.tenant_id):
            detail = tasks.workflow(found.pk)
            graph = graphs.whole(found)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": found,
            "title": found.name or str(found.pk),
            "inline_admin_formsets": [],
            "workflow": detail,
            "counts": [(badge(state, state), count) for state, count in detail["counts"].items() if count],
            "graph": graph,
            "sw_buttons": self.shown_buttons(request, found),
        }
        return TemplateResponse(request, "slackwater_dashboard/workflow.html", context)
