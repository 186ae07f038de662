"""Schedules in the admin: written through their services, with their next firings and the past ones."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.states import TaskState
from slackwater_adminkit.big import BigTableAdmin
from slackwater_adminkit.buttons import ButtonsMixin
from slackwater_adminkit.display import ago, badge, clock, column, facts, once, seconds
from slackwater_adminkit.pausing import pause_buttons
from slackwater_adminkit.services import AllTenantsMixin, ReadOnlyMixin, ServiceAdmin, actor, become
from slackwater_schedules import services
from slackwater_schedules.form import OF_KIND, OF_START, ScheduleForm
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_schedules.recurrence import zone_of
from slackwater_schedules.rules import read_rule
from slackwater_schedules.task_fields import RARE
from slackwater_schedules.words import rule_words, work_words
from slackwater_tasks.admin import grid
from slackwater_tasks.models import Task
from slackwater_tasks.read.tasks import word

UPCOMING = 10
RECENT = 20
PREVIEWED = 5
WHEN = tuple(dict.fromkeys(name for names in OF_KIND.values() for name in names))
WHAT = ("starts", *(name for names in OF_START.values() for name in names if name not in (*RARE, "more")))
FIRE_KINDS = {"submitted": "succeeded", "missed": "expired", "skipped": "skipped", "failed": "failed"}


def made_link(task_id: UUID | None, workflow_id: UUID | None) -> SafeString | str:
    """A link to the task or workflow that a firing made; its bare id where those have no page."""
    found = task_id or workflow_id
    if found is None:
        return "–"
    try:
        url = reverse(f"admin:slackwater_tasks_{'task' if task_id else 'workflow'}_change", args=[found])
    except NoReverseMatch:
        return str(found)
    return format_html('<a href="{}">…{}</a>', url, str(found)[-8:])


def fire_badge(outcome: str) -> SafeString:
    return badge(outcome, FIRE_KINDS.get(outcome, "cancelled"))


@admin.register(Schedule)
class ScheduleAdmin(AllTenantsMixin, ButtonsMixin, ServiceAdmin):
    """Tasks that are submitted again and again."""

    form = ScheduleForm
    change_form_after_template = "slackwater_dashboard/firings.html"
    list_display = ("name", "tenant", "when", "shown_state", "last_fire", "outcome", "next_fire")
    list_select_related = ("tenant",)
    list_filter = (
        ("tenant", AutocompleteSelectFilter),
        ("kind", ChoicesDropdownFilter),
        "paused",
        ("overlap", ChoicesDropdownFilter),
    )
    search_fields = ("name", "tenant__slug")
    autocomplete_fields = ("tenant",)
    readonly_fields = ("shown_state", "upcoming", "recent", "created_by", "updated_by", "version")
    buttons: ClassVar = pause_buttons("Pause")
    FORM: ClassVar[Any] = (
        (None, {"fields": (("tenant", "name"),)}),
        ("When", {"fields": ("kind", *WHEN, "time_zone")}),
        ("What", {"fields": WHAT}),
        ("More about the task", {"fields": (*RARE, "more"), "classes": ("collapse",)}),
        ("Bounds", {"fields": (("start_at", "end_at"), "jitter_s")}),
        ("Missed runs", {"fields": (("missed", "missed_after_s"), ("missed_limit", "missed_window_s"))}),
        ("Overlap", {"fields": ("overlap",)}),
    )
    LOOKED_AT: ClassVar[Any] = (
        (None, {"fields": ("tenant", "name")}),
        ("When and what", {"fields": ("when", "submits")}),
        *FORM[4:],
    )
    KNOWN: ClassVar[Any] = (
        ("Firings", {"fields": ("shown_state", "upcoming", "recent", ("created_by", "updated_by"), "version")}),
    )

    ordering = ("tenant__slug", "name")

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """The form's fields, or in words what they hold for who may only look; of a schedule that exists, its history too."""
        if obj and not self.has_change_permission(request, obj):
            return (*self.KNOWN, *self.LOOKED_AT)
        return (*self.KNOWN, *self.FORM) if obj else self.FORM

    def get_readonly_fields(self, request: HttpRequest, obj: Schedule | None = None) -> tuple[str, ...]:
        """The tenant cannot be changed."""
        return (*self.readonly_fields, "tenant") if obj else self.readonly_fields

    # -- columns -----------------------------------------------------------------------------------------------
    @admin.display(description="state")
    def shown_state(self, obj: Schedule) -> SafeString:
        if obj.paused:
            return badge("paused", "waiting")
        return badge("active", "succeeded") if obj.next_fire_at else badge("over", "cancelled")

    when = column("when", lambda it: rule_words(it.kind, it.rule, it.time_zone), ordering="kind")
    submits = column("submits", lambda it: facts(work_words(it.task, it.workflow)))
    next_fire = column(
        "next", lambda schedule: ago(schedule.next_fire_at) if not schedule.paused else "–", ordering="next_due_at"
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        """With the last firing of each, and the state of the task it made."""
        fires = ScheduleFire.objects.unscoped().filter(schedule=OuterRef("pk")).order_by("-fire_at")
        rows: QuerySet[Schedule] = super().get_queryset(request)
        rows = rows.annotate(
            **{
                f"last_{name}": Subquery(fires.values(name)[:1])
                for name in ("fire_at", "outcome", "task_id", "workflow_id")
            }
        )
        made = Task.objects.unscoped().filter(pk=OuterRef("last_task_id"))  # both: the schedule says whose they are
        return rows.annotate(last_state=Subquery(made.values("state")))

    last_fire = column("last", lambda schedule: ago(schedule.last_fire_at))

    @admin.display(description="outcome")
    def outcome(self, obj: Any) -> SafeString | str:
        """What became of the last firing: the end of its task where that has ended."""
        if obj.last_outcome is None:
            return "–"
        made = made_link(obj.last_task_id, obj.last_workflow_id)
        if obj.last_outcome != ScheduleFire.Outcome.SUBMITTED:
            return fire_badge(obj.last_outcome)
        state = word(TaskState(obj.last_state)) if obj.last_state is not None else ""
        found = state or ("in progress" if obj.last_task_id else "submitted")
        return format_html("{} {}", badge(found, state or "running"), made)

    @admin.display(description="next firings")
    @once
    def upcoming(self, obj: Schedule) -> SafeString | str:
        try:
            times = services.next_firings(obj, UPCOMING)
        except SlackwaterError as error:
            return str(error)
        return format_html_join("", "<div>{}</div>", ((clock(moment, day=True),) for moment in times)) or "none"

    @admin.display(description="last firings")
    @once
    def recent(self, obj: Schedule) -> SafeString | str:
        # Unscoped: the schedule says whose they are.
        fires = ScheduleFire.objects.unscoped().filter(schedule=obj).order_by("-fire_at")[:RECENT]
        rows = (
            (
                clock(f.fire_at, day=True),
                fire_badge(f.outcome),
                made_link(f.task_id, f.workflow_id),
                seconds(f.late_by_s),
                f.error,
            )
            for f in fires
        )
        shown = format_html_join("", "<div>{} {} {} late by {} {}</div>", rows)
        runs = reverse("admin:sw_schedule_runs", args=[obj.pk])
        return format_html('{}<a href="{}">as a grid of tasks by runs</a>', shown, runs) if shown else "none"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("firings/", view(self.firings), name="sw_schedule_firings"),
            path("<path:object_id>/runs/", view(self.runs), name="sw_schedule_runs"),
            *super().get_urls(),
        ]

    def firings(self, request: HttpRequest) -> HttpResponse:
        """When the form as it stands would fire, in words; nothing is saved."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not (self.has_add_permission(request) or self.has_change_permission(request)):
            raise PermissionDenied
        form = ScheduleForm(request.POST)
        form.is_valid()
        faults = [fault for name in ("kind", *WHEN, "time_zone") for fault in form.errors.get(name, ())]
        given = form.cleaned_data
        if faults or "kind" not in given:
            return HttpResponse(format_html("<p>{}</p>", " ".join(map(str, faults)) or "Say when."))
        zone = zone_of(given["time_zone"])
        bounds = {"start": given.get("start_at"), "end": given.get("end_at")}
        rule = read_rule(given["kind"], form.rule(), zone=zone.key, anchor=timezone.now(), **bounds)
        found = services.firings_of(rule, PREVIEWED)
        times = ((moment.astimezone(zone).strftime("%A, %-d %B %Y, %H:%M:%S %Z"),) for moment in found)
        listed = format_html_join("", "<li>{}</li>", times) or "never"
        said = rule_words(given["kind"], form.rule(), zone.key)
        return HttpResponse(format_html("<p>{}. Next:</p><ul>{}</ul>", said[:1].upper() + said[1:], listed))

    def runs(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What its last firings made, task by task."""
        found = self.get_object(request, object_id)
        if found is None:
            raise Http404
        if not self.has_view_permission(request, found) or not request.user.has_perm("slackwater_tasks.view_task"):
            raise PermissionDenied
        # Unscoped: the schedule says whose they are.
        fires = ScheduleFire.objects.unscoped().filter(schedule=found, outcome="submitted").order_by("-fire_at")
        made = list(fires.values_list("workflow_id", "task_id")[: grid.RUNS])
        columns = grid.columns([flow for flow, _ in made if flow], [task for flow, task in made if task and not flow])
        back = reverse("admin:slackwater_schedules_schedule_change", args=[found.pk])
        return grid.grid_page(request, f"Runs of {found}", back, columns)

    # -- changes -----------------------------------------------------------------------------------------------
    def save_model(self, request: HttpRequest, obj: Schedule, form: forms.ModelForm[Schedule], change: bool) -> None:
        assert isinstance(form, ScheduleForm)
        if change:
            changed = form.changes()
            if not changed:
                return
            made = services.update_schedule(obj.tenant_id, obj.pk, changed, actor=actor(request))
        else:
            made = services.create_schedule(obj.tenant, form.values(), actor=actor(request))
        become(obj, made)

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        """Delete it with its firings; its tasks stay."""
        services.delete_schedule(obj.tenant_id, obj.pk)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        for schedule in queryset:
            services.delete_schedule(schedule.tenant_id, schedule.pk)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """The objects to delete, without listing every firing, of which there may be many thousands."""
        if not self.has_delete_permission(request):
            raise PermissionDenied
        names = [str(obj) for obj in objs]
        return names, {self.opts.verbose_name_plural: len(names)}, set(), []

    def pause(self, request: HttpRequest, obj: Schedule) -> str:
        services.pause_schedule(obj.tenant_id, obj.pk, actor=actor(request))
        return f"{obj} fires no more until it is resumed."

    def resume(self, request: HttpRequest, obj: Schedule) -> str:
        services.resume_schedule(obj.tenant_id, obj.pk, actor=actor(request))
        return f"{obj} fires again, from its next time on."


@admin.register(ScheduleFire)
class ScheduleFireAdmin(AllTenantsMixin, ReadOnlyMixin, BigTableAdmin):
    """Every firing, late or missed."""

    list_display = ("fire", "schedule", "tenant", "shown_outcome", "late", "task", "backfill", "error")
    list_select_related = ("schedule", "tenant")
    list_filter = (("tenant", AutocompleteSelectFilter), ("outcome", ChoicesDropdownFilter), "backfill")
    search_fields = ("schedule__name",)
    readonly_fields = ("shown_outcome", "late", "task")

    fire = column("for", lambda fire: clock(fire.fire_at, day=True))
    shown_outcome = column("outcome", lambda fire: fire_badge(fire.outcome))
    late = column("late by", lambda fire: seconds(fire.late_by_s))
    task = column("task", lambda fire: made_link(fire.task_id, fire.workflow_id))
