"""Workflows in the admin: their state, graph and timeline, what all their tasks wrote, and past runs beside each other."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.states import ClientStatus
from slackwater_adminkit.big import BigTableAdmin
from slackwater_adminkit.buttons import Button
from slackwater_adminkit.display import ago, badge, column, seconds, short
from slackwater_adminkit.keyset import KeysetList
from slackwater_adminkit.services import AllTenantsMixin, ReadOnlyMixin, actor
from slackwater_tasks.admin import grid, output, task_form
from slackwater_tasks.admin.filters import AgeFilter, WorkflowStateFilter, id_range
from slackwater_tasks.admin.pages import PagesMixin
from slackwater_tasks.admin.terminate import TERMINATE, TerminateMixin
from slackwater_tasks.control.terminate import Subject
from slackwater_tasks.control.workflow_rerun import rerun
from slackwater_tasks.control.workflows import cancel_workflow
from slackwater_tasks.models import LiveTask, Workflow
from slackwater_tasks.read import workflow_runs, workflows
from slackwater_tasks.submission import service
from slackwater_tasks.submission.idempotency import Submission
from slackwater_tenants.scoping import tenant_scope


class WorkflowList(KeysetList):
    """A page of workflows, the tasks of those that have not gone well counted by one statement."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        found = workflows.standings(self.result_list)
        for row in self.result_list:
            row.standing = found.get(row.pk)


def _progress(row: Any) -> str:
    if row.standing is None:
        return f"{row.task_count} of {row.task_count}" if row.status is not None else f"of {row.task_count}"
    ended, every = row.standing.progress
    return f"{ended} of {every}"


def _failures(row: Any) -> Any:
    if row.standing is None:
        return 0 if row.status == ClientStatus.DONE else "–"
    return row.standing.failures


def _took(row: Any) -> str:
    if row.finished_at is not None:
        return seconds(row.finished_at - row.submitted_at)
    return f"{seconds(timezone.now() - row.submitted_at)} so far"


@admin.register(Workflow)
class WorkflowAdmin(AllTenantsMixin, TerminateMixin, PagesMixin, ReadOnlyMixin, BigTableAdmin):
    """Graphs of tasks submitted as one."""

    buttons: ClassVar = {
        "cancel": Button(
            label="Cancel what has not ended",
            method="cancel_rest",
            danger=True,
            # Unscoped: the workflow says whose they are.
            when=lambda workflow: LiveTask.objects.unscoped().filter(task__workflow=workflow).exists(),
        ),
        "rerun": Button(
            label="Run the failed again",
            method="rerun_failed",
            when=lambda workflow: workflow.status == ClientStatus.FAILED,
        ),
        "terminate": TERMINATE,
    }

    add_form_class = task_form.WorkflowForm
    add_fieldsets = ((None, {"fields": (("tenant", "name"), "tasks", "idempotency_key")}),)
    list_display = ("title", "tenant", "shown_state", "progress", "failures", "submitted", "took")
    list_select_related = ("tenant",)
    list_filter = (WorkflowStateFilter, AgeFilter, ("tenant", AutocompleteSelectFilter))
    search_fields = ("id", "name")
    search_help_text = "An id or its first digits, or a part of the name."

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetList]:
        return WorkflowList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Workflow], search_term: str
    ) -> tuple[QuerySet[Workflow], bool]:
        text = search_term.strip()
        if (ids := id_range(text)) is not None:
            return queryset.filter(pk__range=ids), False
        return queryset.filter(name__icontains=text) if text else queryset, False

    title = column("workflow", lambda workflow: workflow.name or short(workflow.pk))
    submitted = column("submitted", lambda row: ago(row.submitted_at))
    progress = column("ended", _progress)
    failures = column("failed", _failures)
    took = column("took", _took)

    @admin.display(description="state")
    def shown_state(self, obj: Workflow) -> SafeString:
        """How it ended, as upkeep noted it soon after; of one that has not ended, whether it has begun."""
        if obj.status is None:
            standing = getattr(obj, "standing", None)
            waits = standing is not None and standing.status is ClientStatus.WAITING
            return badge("waiting", "ready") if waits else badge("in progress", "running")
        return badge("failed", "failed") if obj.status == ClientStatus.FAILED else badge("done", "succeeded")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Those who may submit workflows for tenants."""
        return request.user.has_perm("slackwater_tasks.add_workflow")

    def submit(self, request: HttpRequest, form: task_form.WorkflowForm) -> Submission:
        given = form.cleaned_data
        graph = {name: given[name] for name in ("name", "tasks", "max_running", "share_weight")}
        key = given["idempotency_key"] or None
        return service.submit_workflow(given["tenant"], graph, actor=actor(request), idempotency_key=key)

    def cancel_rest(self, request: HttpRequest, obj: Workflow) -> str:
        counts = cancel_workflow(obj.tenant, obj.pk, actor=actor(request))
        cancelled = counted(counts["cancelled"], "task was", plural="tasks were")
        asked = counted(counts["asked"], "running task was", plural="running tasks were")
        return f"{cancelled} cancelled, {asked} asked to end."

    def rerun_failed(self, request: HttpRequest, obj: Workflow) -> str:
        count = len(rerun(obj.tenant, obj.pk, actor=actor(request)))
        return counted(count, "task runs", plural="tasks run") + " again."

    def subject(self, obj: Workflow) -> Subject:
        return Subject.of_workflow(obj.tenant, obj.pk)

    # -- pages -------------------------------------------------------------------------------------------------
    def get_urls(self) -> list[URLPattern]:
        pages = (("picture.json", "picture"), ("runs/", "runs"), ("output/", "output"))
        return [
            *(path(f"<path:object_id>/{at}", self.admin_site.admin_view(getattr(self, name)), name=f"sw_workflow_{name}")
              for at, name in pages),
            *super().get_urls(),
        ]  # fmt: skip

    def shown(self, request: HttpRequest, obj: Workflow) -> dict[str, Any]:
        with tenant_scope(obj.tenant_id):
            detail = workflows.workflow(obj.pk)
        counts = [(badge(state, state), count) for state, count in detail["counts"].items() if count]
        return {
            "workflow": detail,
            "status": detail["status"].replace("_", " "),
            "counts": counts,
            **{name: reverse(f"admin:sw_workflow_{name}", args=[obj.pk]) for name in ("picture", "runs", "output")},
            "may_run_again": self.may(request, "change") and request.user.has_perm("slackwater_tasks.change_task"),
        }

    def _seen(self, request: HttpRequest, object_id: str) -> Workflow:
        found: Workflow = self.row(request, object_id)
        if not self.has_view_permission(request, found):
            raise PermissionDenied
        return found

    def picture(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What the graph and the timeline show."""
        found = self._seen(request, object_id)
        shown = workflow_runs.picture(found.pk, found.submitted_at, timezone.now())
        return JsonResponse(shown, headers={"Cache-Control": "no-store"})

    def runs(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The runs of workflows of its name."""
        found = self._seen(request, object_id)
        ids = grid.named_like(found.tenant_id, found.name) if found.name else [found.pk]
        back = reverse("admin:slackwater_tasks_workflow_change", args=[found.pk])
        return grid.grid_page(request, f"Runs of {found}", back, grid.columns(ids))

    def output(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What all its tasks wrote."""
        found = self._seen(request, object_id)
        return output.of_workflow(request, found, reverse("admin:slackwater_tasks_workflow_change", args=[found.pk]))
