"""Operations on everything that a list's filter matches, and the page that shows how far each has come."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Count, QuerySet
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.plain_text import counted
from scheduler_ext.core.states import TaskState
from slackwater_adminkit.big import BigTableAdmin
from slackwater_adminkit.buttons import Button, ButtonsMixin, words_of
from slackwater_adminkit.display import ago, badge, column, facts, seconds
from slackwater_adminkit.services import ReadOnlyMixin, actor, because, log_act, tell, why
from slackwater_tasks.admin.pages import PagesMixin
from slackwater_tasks.control import bulk_operations as bulk
from slackwater_tasks.models import BulkOperation
from slackwater_tasks.read.tasks import word

KINDS = {"open": "running", "done": "succeeded", "stopped": "cancelled"}
AFTER = {"cancel": "cancelled", "retry": "ready"}


def states(rows: QuerySet[Any]) -> str:
    """How many of these tasks are in which state, in words."""
    found = rows.order_by().values_list(Coalesce("live__state", "state")).annotate(Count("pk"))
    return ", ".join(f"{word(TaskState(state))} {count:,}" for state, count in sorted(found))


def start(request: HttpRequest, kind: str, rows: QuerySet[Any], what: str, first: int = 0) -> BulkOperation:
    """Begin an operation, with its one entry in the audit."""
    before = states(bulk.matching(kind, rows))
    made = bulk.begin(kind, rows, what=what, reason=why(request), actor=actor(request), first=first)
    done = f"{made.get_kind_display().capitalize()} {counted(made.total, 'task')}, from {before} to {AFTER[kind]}"
    if first:
        done += f", the first {first} before the rest"
    log_act(request, BulkOperation, str(made), because(done, made.reason), made.pk)
    return made


def address(made: BulkOperation) -> str:
    return reverse("admin:slackwater_tasks_bulkoperation_change", args=[made.pk])


def link(made: BulkOperation) -> SafeString:
    return format_html('<a href="{}">How far it is</a>', address(made))


def shown(request: HttpRequest, made: BulkOperation) -> HttpResponse:
    """On to the page that tells how far it is."""
    taken = f"{counted(made.total, 'task is', plural='tasks are')} taken in the background"
    if 0 < made.first < made.total:
        taken += f": {made.first} first, then the other {made.total - made.first:,} if these succeed"
    messages.success(request, format_html("{}. {}", taken, link(made)))
    may = request.user.has_perm("slackwater_tasks.view_bulkoperation")
    return HttpResponseRedirect(address(made) if may else request.get_full_path())


class BulkMixin(ButtonsMixin):
    """Does some actions of a list to everything that its filter matches, in the background."""

    in_background: ClassVar[dict[str, str]] = {}
    """The operation's kind by the button's name."""

    def tasks(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The tasks of the list's rows."""
        return queryset

    def told_of_many(self, name: str, queryset: QuerySet[Any]) -> str:
        """How many are in which state."""
        kind = self.in_background.get(name)
        if kind is None:
            return super().told_of_many(name, queryset)
        rows = bulk.matching(kind, self.tasks(queryset))
        return f"{counted(rows.count(), 'task')} ({states(rows) or 'none to which it can be done'})"

    def begin(self, request: HttpRequest, name: str, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Note which tasks match now; upkeep does it to them."""
        if name not in self.in_background:
            return None
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        every = words_of(self, request) or f"all {self.opts.verbose_name_plural}"
        what = (
            every
            if request.POST.get("select_across") == "1"
            else f"{len(chosen):,} chosen {self.opts.verbose_name_plural}"
        )
        try:
            made = start(request, self.in_background[name], self.tasks(queryset), what)
        except SlackwaterError as error:
            tell(request, error)
            return HttpResponseRedirect(request.get_full_path())
        return shown(request, made)


@admin.register(BulkOperation)
class BulkOperationAdmin(PagesMixin, ReadOnlyMixin, BigTableAdmin):
    """What was done to many tasks, and how far it is; it goes on after a crash where it was."""

    list_display = ("title", "shown_state", "progress", "reason", "actor", "began")
    list_filter = ("status", "kind")
    list_select_related = ()
    search_fields = ("what", "reason", "actor")
    buttons: ClassVar = {
        "stop": Button(
            label="Stop", danger=True, log="Stopped.", title="Leave the rest as it is", when=lambda it: it.status == "open"
        ),
        "undo": Button(
            label="Run them again", log="Undone:", tells=True, title="Every task that it cancelled, as far as it may run again",
            when=lambda it: it.kind == "cancel" and it.status != "open" and it.done > 0,
        ),
    }  # fmt: skip

    title = column("operation", str)
    shown_state = column("state", lambda it: badge(it.get_status_display(), KINDS[it.status]))
    began = column("began", lambda it: ago(it.created_at))

    @admin.display(description="progress")
    def progress(self, obj: BulkOperation) -> SafeString:
        taken = obj.done + obj.passed
        return format_html(
            '<span class="sw-meter"><progress class="sw-bar" max="{}" value="{}" aria-label="tasks taken"></progress>'
            " {} of {}</span>",
            obj.total, taken, f"{taken:,}", f"{obj.total:,}",
        )  # fmt: skip

    def stop(self, request: HttpRequest, obj: BulkOperation) -> str:
        bulk.stop(obj, actor=actor(request))
        return "It takes no more tasks."

    def undo(self, request: HttpRequest, obj: BulkOperation) -> SafeString:
        made = bulk.begin(
            "retry", bulk.tasks_of(obj, done=True), what=f"what was cancelled: {obj.what}",
            reason=why(request) or "undone", actor=actor(request),
        )  # fmt: skip
        return format_html("{} again. {}", counted(made.total, "task runs", plural="tasks run"), link(made))

    def shown(self, request: HttpRequest, obj: BulkOperation) -> dict[str, Any]:
        took = (obj.ended_at or obj.moved_at) - obj.created_at
        told = {
            "Which tasks": obj.what, "Why": obj.reason, "By": obj.actor, "Began": ago(obj.created_at),
            "Took" if obj.ended_at else "For": seconds(took), "Matched": f"{obj.total:,}", "Done": f"{obj.done:,}",
            "of these asked to end": f"{obj.asked:,}", "Left as they were": f"{obj.passed:,}", "Note": obj.note or "–",
        }  # fmt: skip
        return {"told": facts(told), "state": self.shown_state(obj), "bar": self.progress(obj)}
