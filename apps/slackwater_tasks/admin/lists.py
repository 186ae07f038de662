"""Dead letters, attempts and events in the admin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter

from scheduler_ext.core.states import Outcome, TaskState
from slackwater_adminkit.big import BigTableAdmin
from slackwater_adminkit.buttons import Button
from slackwater_adminkit.display import ago, badge, column, seconds, short
from slackwater_adminkit.services import AllTenantsMixin, ReadOnlyMixin, actor, because, why
from slackwater_tasks.admin.dead_groups import GroupsMixin
from slackwater_tasks.admin.filters import id_range
from slackwater_tasks.admin.graphs import task_url
from slackwater_tasks.admin.task_page import state_badge
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.models import Attempt, DeadLetter, Task, TaskEvent
from slackwater_tasks.read.tasks import word


class LedgerAdmin(AllTenantsMixin, ReadOnlyMixin, BigTableAdmin):
    """Rows about tasks, read-only."""

    search_fields: ClassVar[Any] = ("task__id",)
    search_help_text = "A task's id or its first digits."

    beside: ClassVar[tuple[str, ...]] = ()
    """Columns of other tables that the list shows, beside the task's."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Only what the list shows of the task is read."""
        own = [field.attname for field in self.opts.concrete_fields if field.attname != "task_id"]
        others = ("task__name", "task__handler", "task__tenant", *self.beside)
        tables = {name.partition("__")[0] for name in others}
        return super().get_queryset(request).select_related(*tables).only(*own, *others)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By the task's id; anything else finds nothing."""
        text = search_term.strip()
        if not text:
            return queryset, False
        ids = id_range(text)
        return (queryset.filter(task_id__gte=ids[0], task_id__lte=ids[1]) if ids else queryset.none()), False

    task_link = column(
        "task",
        lambda row: format_html('<a href="{}">{}</a>', task_url(row.task_id), row.task.name or short(row.task_id)),
    )


@admin.register(DeadLetter)
class DeadLetterAdmin(GroupsMixin, LedgerAdmin):
    """Tasks whose attempts are used up. Retrying runs them again."""

    list_display = ("task_link", "handler", "tenant", "outcome", "reason", "retries", "when", "next_retry_at")
    list_filter = (("tenant", AutocompleteSelectFilter), ("outcome", ChoicesDropdownFilter))
    list_display_links = ("reason",)
    readonly_fields = ("task_link", "edit", "handler", "when")
    fields = ("task_link", "edit", "handler", "tenant", "outcome", "reason", "when", "retries", "next_retry_at")
    in_background: ClassVar = {"retry": "retry"}
    list_before_template = "slackwater_dashboard/to_groups.html"
    buttons: ClassVar = {"retry": Button(label="Retry", method="retry_one", action="Retry: run again", done="retried")}
    beside = ("tenant__slug",)

    handler = column("handler", lambda letter: letter.task.handler or "script")
    when = column("since", lambda row: ago(row.at))
    edit = column(
        "or",
        lambda row: format_html(
            '<a href="{}">edit it and run it again</a>', reverse("admin:slackwater_tasks_task_edit", args=[row.task_id])
        ),
    )

    def tasks(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """What the dead letters are of."""
        letters = queryset.order_by().values("task_id")
        return Task.objects.unscoped().filter(pk__in=letters)  # the operators' view of all tenants

    def retry_one(self, request: HttpRequest, obj: DeadLetter) -> str:
        reason = because("run again on request", why(request))
        retry(obj.tenant_id, obj.task_id, actor=actor(request), reason=reason)
        return "The task runs again."

    def press(self, request: HttpRequest, object_id: str, name: str) -> Any:
        """A retried dead letter has no page any more: go on to its task."""
        response = super().press(request, object_id, name)
        if not DeadLetter.objects.unscoped().filter(pk=object_id).exists():
            response["Location"] = reverse("admin:slackwater_tasks_task_change", args=[object_id])
        return response


@admin.register(Attempt)
class AttemptAdmin(LedgerAdmin):
    """Runs that began and ended, newest first."""

    list_display = ("task_link", "number", "shown_outcome", "node", "worker", "ended", "took", "waited", "exit_code")
    list_filter = (("outcome", ChoicesDropdownFilter),)
    list_display_links = ("number",)
    readonly_fields = ("task_link", "shown_outcome", "took", "waited")
    beside = ("node__name",)

    @admin.display(description="outcome")
    def shown_outcome(self, obj: Attempt) -> SafeString:
        outcome = Outcome(obj.outcome)
        kinds = {
            Outcome.SUCCEEDED: "succeeded",
            Outcome.RETRY: "scheduled",
            Outcome.CANCELLED: "cancelled",
            Outcome.YIELDED: "scheduled",
            Outcome.HANDED_BACK: "scheduled",
        }
        return badge(word(outcome).replace("_", " "), kinds.get(outcome, "failed"))

    ended = column("ended", lambda row: ago(row.finished_at))
    took = column("took", lambda attempt: seconds(attempt.finished_at - attempt.started_at))

    @admin.display(description="queued for")
    def waited(self, obj: Attempt) -> str:
        if obj.queued_at is None:
            return "–"
        return seconds(max(timedelta(0), obj.started_at - obj.queued_at))  # two clocks


@admin.register(TaskEvent)
class TaskEventAdmin(LedgerAdmin):
    """Changes that no attempt tells: submissions by hand, edits, cancellations, hand-backs."""

    list_display = ("event", "task_link", "change", "reason", "actor")
    list_display_links = ("event",)
    readonly_fields = ("task_link", "change")
    list_filter = (("to_state", ChoicesDropdownFilter),)

    event = column("when", lambda row: ago(row.at))

    @admin.display(description="change")
    def change(self, obj: TaskEvent) -> SafeString:
        after = state_badge(TaskState(obj.to_state))
        if obj.from_state is None:
            return format_html("{}", after)
        return format_html("{} → {}", state_badge(TaskState(obj.from_state)), after)
