"""Tasks in the admin: a list over millions, a page that shows all of one, a form that submits."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter, RelatedDropdownFilter

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.states import FINAL, Category, TaskState
from slackwater_adminkit import AllTenantsMixin, BigTableAdmin, Button, ButtonsMixin, actor, ago, column, seconds, short
from slackwater_tasks.admin import task_form as forms
from slackwater_tasks.admin.filters import AgeFilter, StateFilter, find, search_tasks
from slackwater_tasks.admin.task_page import EDITABLE_STATES, context_of, state_badge, state_of
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.edit import edit
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.models import Task
from slackwater_tasks.read import tasks as reading
from slackwater_tasks.submission import service
from slackwater_tenants.scoping import tenant_scope


def is_live(task: Task) -> bool:
    """It is not final."""
    return state_of(task) not in FINAL


def _attempts(task: Task) -> int:
    """Those it has used."""
    return int(task.live.attempts if hasattr(task, "live") else task.attempts_used)


@admin.register(Task)
class TaskAdmin(AllTenantsMixin, ButtonsMixin, BigTableAdmin):
    """Tasks are handed in, edited, cancelled and run again through the services; no row is written or deleted here."""

    list_display = (
        "title", "shown_state", "tenant", "what", "shown_category", "tier", "priority", "tries", "submitted", "ran"
    )  # fmt: skip
    list_select_related = ("live", "tenant", "tier")
    list_filter = (
        StateFilter,
        AgeFilter,
        ("tenant", AutocompleteSelectFilter),
        ("category", ChoicesDropdownFilter),
        ("tier", RelatedDropdownFilter),
        ("kind", ChoicesDropdownFilter),
    )
    search_fields = ("id", "name", "handler")
    search_help_text = "An id or its first digits, tag:…, key:…, name:…, or a part of name or handler."
    list_fullwidth = True
    buttons: ClassVar = {
        "cancel": Button(
            label="Cancel",
            method="cancel_one",
            danger=True,
            action="Cancel",
            done="cancelled or asked to end",
            when=is_live,
        ),
        "cancel-dependants": Button(
            label="Cancel with dependants",
            method="cancel_all_of",
            danger=True,
            title="Also every task that needs this one, directly or not",
            action="Cancel, with all that needs them",
            done="cancelled with their dependants",
            when=is_live,
        ),
        "retry": Button(
            label="Run again",
            method="retry_one",
            action="Run again",
            done="running again",
            when=lambda task: state_of(task) in FINAL - {TaskState.SUCCEEDED},
        ),
    }

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Task], search_term: str
    ) -> tuple[QuerySet[Task], bool]:
        """By id, tag, key, name or handler; never a join that doubles rows."""
        return (search_tasks(queryset, search_term) if search_term.strip() else queryset), False

    # -- who may what ------------------------------------------------------------------------------------------
    def has_delete_permission(self, request: HttpRequest, obj: Task | None = None) -> bool:
        """Never: the ledger keeps what was accepted."""
        return False

    # -- the list ----------------------------------------------------------------------------------------------
    title = column("task", lambda task: task.name or short(task.pk))
    shown_state = column("state", lambda task: state_badge(state_of(task)))
    what = column("runs", lambda task: task.handler or task.script_path or f"script {task.script_sha256[:12]}")
    shown_category = column("category", lambda task: reading.word(Category(task.category)))
    tries = column("attempts", lambda task: f"{_attempts(task)}/{task.total_attempts}")
    submitted = column("submitted", lambda task: ago(task.submitted_at))
    ran = column("took", lambda task: seconds(task.finished_at - task.submitted_at if task.finished_at else None))

    # -- actions -----------------------------------------------------------------------------------------------
    def cancel_one(self, request: HttpRequest, obj: Task) -> str:
        """Cancel, or ask a running task to end."""
        state = cancel(obj.tenant_id, obj.pk, actor=actor(request))
        return "It was asked to end." if state is TaskState.RUNNING else "It is cancelled."

    def cancel_all_of(self, request: HttpRequest, obj: Task) -> str:
        """Cancel it and all that needs it."""
        cancel(obj.tenant_id, obj.pk, actor=actor(request), dependents=True)
        return "It and the tasks that need it are cancelled; those that run were asked to end."

    def retry_one(self, request: HttpRequest, obj: Task) -> str:
        """Run a finished task again."""
        retry(obj.tenant_id, obj.pk, actor=actor(request))
        return "It runs again."

    # -- pages -------------------------------------------------------------------------------------------------
    def get_urls(self) -> list[URLPattern]:
        """The page for editing a waiting task, before the task's own."""
        edit = path(
            "<path:object_id>/edit/", self.admin_site.admin_view(self.edit_view), name="slackwater_tasks_task_edit"
        )
        return [edit, *super().get_urls()]

    def _task(self, request: HttpRequest, object_id: str) -> Task:
        task: Task = find(self.get_queryset(request).select_related("live", "tenant"), object_id, "task")
        return task

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """All of one task. Nothing is changed here but through the buttons and the page for editing."""
        task = self._task(request, object_id)
        if not self.has_view_permission(request, task):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            **context_of(task),
            "opts": self.opts,
            "original": task,
            "title": task.name or str(task.pk),
            "inline_admin_formsets": [],
            "sw_buttons": self.shown_buttons(request, task),
            "may_edit": self.may(request, "change") and state_of(task) in EDITABLE_STATES,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "slackwater_dashboard/task.html", context)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Hand in a task."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        data = (request.POST, request.FILES) if request.method == "POST" else ()
        form = forms.TaskForm(*data)
        if request.method == "POST" and form.is_valid() and (made := self._submit(request, form)) is not None:
            return HttpResponseRedirect(reverse("admin:slackwater_tasks_task_change", args=[made]))
        return forms.page(self, request, form, forms.fieldsets(editing=False), "Add task", None)

    def _submit(self, request: HttpRequest, form: forms.TaskForm) -> UUID | None:
        """Submit what the form says; a refusal goes into the form."""
        tenant, values = form.cleaned_data["tenant"], form.values()
        key = values.pop("idempotency_key", None)
        try:
            if (file := form.cleaned_data["script_file"]) is not None:
                values["script"] = service.store_script(tenant, file.name, file.read()).sha256
            made = service.submit(tenant, values, actor=actor(request), idempotency_key=key)
        except SlackwaterError as error:
            form.refuse(error)
            return None
        if made.created:
            messages.success(request, "The task was accepted.")
        else:
            messages.info(request, "This idempotency key was used before: here is its first task.")
        return made.task_ids[0]

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change a task that waits."""
        task = self._task(request, object_id)
        if not self.may(request, "change"):
            raise PermissionDenied
        with tenant_scope(task.tenant_id):
            before = reading.task(task.pk)
        form = forms.TaskForm(request.POST or None, editing=True, initial=forms.initial_of(before))
        if request.method == "POST" and form.is_valid():
            try:
                edit(task.tenant_id, task.pk, form.changes(before), actor=actor(request))
            except SlackwaterError as error:
                form.refuse(error)
            else:
                messages.success(request, "The task was changed.")
                return HttpResponseRedirect(reverse("admin:slackwater_tasks_task_change", args=[task.pk]))
        return forms.page(self, request, form, forms.fieldsets(editing=True), f"Edit {task}", task)
