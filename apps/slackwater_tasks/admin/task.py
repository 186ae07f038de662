"""Tasks in the admin: a list over millions, a page that shows all of one, a form that submits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter, RelatedDropdownFilter

from scheduler_ext.core.errors import Conflict, InvalidInput, SlackwaterError
from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.states import FINAL, UNCLAIMED, Category, TaskState
from slackwater_adminkit.big import BigTableAdmin
from slackwater_adminkit.buttons import Button
from slackwater_adminkit.display import ago, column, seconds, short
from slackwater_adminkit.services import AllTenantsMixin, UndeletedMixin, actor, because, tell, told_change, why
from slackwater_tasks.admin import task_form as forms
from slackwater_tasks.admin.bulk import BulkMixin
from slackwater_tasks.admin.filters import AgeFilter, HandlerFilter, StateFilter, search_tasks
from slackwater_tasks.admin.pages import PagesMixin
from slackwater_tasks.admin.task_page import attempts_of, context_of, state_badge, state_of
from slackwater_tasks.control import workflow_rerun
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.edit import edit
from slackwater_tasks.control.make_room import ask_to_yield
from slackwater_tasks.control.rerun import MAY_RUN_AGAIN, retry
from slackwater_tasks.control.resubmit import resubmit
from slackwater_tasks.explain.chain import held_by
from slackwater_tasks.explain.explanation import explain
from slackwater_tasks.models import DeadLetter, Resumable, Task
from slackwater_tasks.read import tasks as reading
from slackwater_tasks.submission import service
from slackwater_tasks.submission.idempotency import Submission
from slackwater_tenants.scoping import tenant_scope

UNTOLD: Final = frozenset({"args", "kwargs", "metadata"})


def is_live(task: Task) -> bool:
    return state_of(task) not in FINAL


def keeps_checkpoints(task: Task) -> bool:
    # Unscoped: the task says whose it is.
    return Resumable.objects.unscoped().filter(pk=task.pk, declared=True).exists()


def _edited(before: Mapping[str, Any], changes: Mapping[str, Any]) -> str:
    """What an edit has changed, with the values before and after; what the work is given may be secret: it is named alone."""
    told = [name if name in UNTOLD else told_change(name, before.get(name), changes[name]) for name in sorted(changes)]
    return ", ".join(told) or "nothing"


@admin.register(Task)
class TaskAdmin(AllTenantsMixin, BulkMixin, PagesMixin, UndeletedMixin, BigTableAdmin):
    """Tasks are submitted, edited, cancelled and run again through the services; no row is written or deleted here."""

    list_display = (
        "title", "shown_state", "tenant", "what", "shown_category", "tier", "priority", "tries", "submitted", "ran"
    )  # fmt: skip
    list_select_related = ("live", "tenant", "tier")
    list_filter = (
        StateFilter,
        AgeFilter,
        HandlerFilter,
        ("tenant", AutocompleteSelectFilter),
        ("category", ChoicesDropdownFilter),
        ("tier", RelatedDropdownFilter),
        ("kind", ChoicesDropdownFilter),
    )
    search_fields = ("id", "name", "handler")
    search_help_text = (
        "An id or its first digits, a part of name or handler, or any of handler:mail.* node:… workflow:… schedule:… "
        'tenant:… tag:… key:… name:… since:2h until:2030-01-31T09:00 error:"timed out" together.'
    )
    list_fullwidth = True
    add_form_class = forms.TaskForm
    add_fieldsets = forms.fieldsets(editing=False)
    in_background: ClassVar = {"cancel": "cancel", "retry": "retry"}
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
            when=lambda task: state_of(task) in MAY_RUN_AGAIN,
        ),
        "yield": Button(
            label="Ask to yield…",
            method="yield_one",
            confirm="foretell_yield",
            log="Asked to yield.",
            title="It saves at its next checkpoint, and goes on from there when its turn comes again",
            when=lambda task: state_of(task) is TaskState.RUNNING and keeps_checkpoints(task),
        ),
        "rerun-from": Button(
            label="Run again from here…",
            method="rerun_from",
            confirm="foretell_rerun",
            title="It and all of its workflow that needs it, directly or not",
            log="Run again from here on:",
            tells=True,
            when=lambda task: task.workflow_id is not None and state_of(task) in FINAL,
        ),
    }

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Task], search_term: str
    ) -> tuple[QuerySet[Task], bool]:
        try:
            return (search_tasks(queryset, search_term) if search_term.strip() else queryset), False
        except InvalidInput as error:
            tell(request, error)
            return queryset.none(), False

    # -- the list ----------------------------------------------------------------------------------------------
    title = column("task", lambda task: task.name or short(task.pk))
    shown_state = column("state", lambda task: state_badge(state_of(task)))
    what = column("runs", lambda task: task.handler or task.script_path or f"script {task.script_sha256[:12]}")
    shown_category = column("category", lambda task: reading.word(Category(task.category)))
    tries = column("attempts", lambda task: "{}/{}".format(*attempts_of(task)))
    submitted = column("submitted", lambda task: ago(task.submitted_at))
    ran = column("took", lambda task: seconds(task.finished_at - task.submitted_at if task.finished_at else None))

    # -- actions -----------------------------------------------------------------------------------------------
    def cancel_one(self, request: HttpRequest, obj: Task) -> str:
        state = cancel(
            obj.tenant_id, obj.pk, actor=actor(request), reason=because("cancelled on request", why(request))
        )
        return "It was asked to end." if state is TaskState.RUNNING else "It is cancelled."

    def cancel_all_of(self, request: HttpRequest, obj: Task) -> str:
        reason = because("cancelled on request", why(request))
        cancel(obj.tenant_id, obj.pk, actor=actor(request), dependents=True, reason=reason)
        return "It and the tasks that need it are cancelled; those that run were asked to end."

    def retry_one(self, request: HttpRequest, obj: Task) -> str:
        retry(obj.tenant_id, obj.pk, actor=actor(request), reason=because("run again on request", why(request)))
        return "It runs again."

    def foretell_yield(self, request: HttpRequest, obj: Task) -> str:
        return (
            f"{obj} of {obj.tenant} saves at its next checkpoint and goes back to its line; others may take its slot."
        )

    def yield_one(self, request: HttpRequest, obj: Task) -> str:
        ask_to_yield(obj.tenant_id, obj.pk, actor=actor(request), reason=why(request))
        return "It was asked to make room."

    def foretell_rerun(self, request: HttpRequest, obj: Task) -> str:
        count = workflow_rerun.foretell(self._workflow(obj), obj.pk)
        return (
            f"{counted(count, 'task runs', plural='tasks run')} again: this one and those that need it. "
            "What they have done is done a second time."
        )

    def rerun_from(self, request: HttpRequest, obj: Task) -> str:
        done = workflow_rerun.rerun(
            obj.tenant, self._workflow(obj), task_id=obj.pk, actor=actor(request), why=why(request)
        )
        return counted(len(done), "task runs", plural="tasks run") + " again."

    def _workflow(self, task: Task) -> UUID:
        if task.workflow_id is None:
            raise Conflict("the task is of no workflow")
        return task.workflow_id

    # -- pages -------------------------------------------------------------------------------------------------
    def get_urls(self) -> list[URLPattern]:
        edit = path(
            "<path:object_id>/edit/", self.admin_site.admin_view(self.edit_view), name="slackwater_tasks_task_edit"
        )
        told = path("<path:object_id>/why.json", self.admin_site.admin_view(self.why_json), name="sw_task_why")
        return [edit, told, *super().get_urls()]

    def why_json(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Why it waits, with who holds what it waits for."""
        task = self.row(request, object_id)
        if not self.has_view_permission(request, task):
            raise PermissionDenied
        with tenant_scope(task.tenant_id):
            found = explain(task.pk)
        told = {**found, "held_by": held_by(task.tenant_id, task.tenant.cell, found)}
        return JsonResponse(told, headers={"Cache-Control": "no-store"})

    def shown(self, request: HttpRequest, obj: Task) -> dict[str, Any]:
        may = self.may(request, "change")
        return {**context_of(obj), "may_edit": may and state_of(obj) in UNCLAIMED | FINAL, "may_act": may}

    def submit(self, request: HttpRequest, form: forms.TaskForm) -> Submission:
        tenant, values = form.cleaned_data["tenant"], form.values()
        key = values.pop("idempotency_key", None)
        if (file := form.cleaned_data["script_file"]) is not None:
            values["script"] = service.store_script(tenant, file.name, file.read()).sha256
        return service.submit(tenant, values, actor=actor(request), idempotency_key=key)

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        task = self.row(request, object_id)
        if not self.may(request, "change"):
            raise PermissionDenied
        with tenant_scope(task.tenant_id):
            before = reading.task(task.pk)
        form = forms.TaskForm(
            request.POST or None, editing=True, again=not is_live(task), initial=forms.initial_of(before)
        )
        if request.method == "POST" and form.is_valid():
            try:
                found = self.change(request, task, before, form.changes(before))
            except SlackwaterError as error:
                form.refuse(error)
            else:
                return self.go_to(found)
        title = f"Edit {task}" if is_live(task) else f"Edit {task} and run it again, as a new task"
        return self.form_page(request, form, forms.fieldsets(editing=True), title, task)

    def change(self, request: HttpRequest, task: Task, before: dict[str, Any], changes: dict[str, Any]) -> UUID:
        """Edit a task that waits; one that has ended is submitted anew, and is no dead letter any more."""
        if is_live(task):
            edit(task.tenant_id, task.pk, changes, actor=actor(request))
            self.log_change(request, task, because(f"Edited: {_edited(before, changes)}.", why(request)))
            messages.success(request, "The task was changed.")
            return task.pk
        with transaction.atomic():
            made = resubmit(task.tenant_id, task.pk, changes, actor=actor(request), reason=why(request))
            DeadLetter.objects.unscoped().filter(pk=task.pk).delete()  # its tenant is the task's
        self.log_change(
            request, task, because(f"Run again as {made}, edited: {_edited(before, changes)}.", why(request))
        )
        messages.success(request, "Here is the new task; the one it was made from stays as it ended.")
        return made
