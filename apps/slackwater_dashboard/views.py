"""The live page's data, for staff."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from scheduler_ext.core.errors import InvalidInput
from slackwater_adminkit.display import seconds
from slackwater_dashboard import live, saved_views
from slackwater_monitoring import right_sizing
from slackwater_monitoring.rollups import read
from slackwater_tasks.admin import output as all_output
from slackwater_tasks.admin.task_page import state_of, watch_mark
from slackwater_tasks.models import RunTime, Task
from slackwater_tasks.read import output

RUN_TIMES_SHOWN = 500
RUN_TIMES_PERMISSION = "slackwater_tasks.view_runtime"
SIZES_PERMISSION = "slackwater_monitoring.view_sizing"
SIZES_LOOKED_AT = 1_000
LIVE_PERMISSION = "slackwater_tasks.view_task"


def dashboard_context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The context of the admin's first page: unfold calls it by its name in the settings."""
    if request.user.has_perm(LIVE_PERMISSION):
        context |= {"live_url": reverse("admin:sw_live"), "windows": read.WINDOWS, "by": read.BY}
    context["run_times_url"] = reverse("admin:sw_run_times") if request.user.has_perm(RUN_TIMES_PERMISSION) else ""
    return context


def _answer(value: dict[str, Any]) -> JsonResponse:
    return JsonResponse(value, headers={"Cache-Control": "no-store"})


def _require(request: HttpRequest, permission: str) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied


def _table(request: HttpRequest, template: str, title: str, rows: Any) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title, "rows": rows}
    return TemplateResponse(request, f"slackwater_dashboard/{template}.html", context)


def live_numbers(request: HttpRequest) -> HttpResponse:
    """The numbers now."""
    _require(request, LIVE_PERMISSION)
    return _answer(live.snapshot())


def live_charts(request: HttpRequest) -> HttpResponse:
    """The figures of a span of time: ``window`` and ``by`` as the page offers them."""
    _require(request, LIVE_PERMISSION)
    try:
        return _answer(read.charts(request.GET.get("window", "1h"), request.GET.get("by", "all")))
    except InvalidInput as error:
        raise Http404 from error


def task_mark(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """A mark that changes when a task's page must be read again."""
    _require(request, LIVE_PERMISSION)
    # Unscoped: the admin sees all tenants.
    task = Task.objects.unscoped().select_related("live").only("state", "live__state", "live__fence", "live__progress")
    found = task.filter(pk=task_id).first()
    if found is None:
        raise Http404
    held = found.live if hasattr(found, "live") else None
    mark = watch_mark(state_of(found), held.fence if held else 0, held.progress if held else None)
    return _answer({"mark": mark, "final": held is None})


def task_output(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """What a task wrote after ``place``, and whether more may come."""
    _require(request, LIVE_PERMISSION)
    # Unscoped: the admin sees all tenants.
    if not Task.objects.unscoped().filter(pk=task_id).exists():
        raise Http404
    given = request.GET.get("place", "")
    try:
        place = output.Place.read(given, "place") if given else output.START
    except InvalidInput as error:
        raise Http404 from error
    look = output.tails([output.Tail(task_id, place)])[0]
    return _answer({"lines": look.items, "place": str(look.place), "more": look.more, "ended": look.ended})


def run_times(request: HttpRequest) -> HttpResponse:
    """Learnt run times by tenant and handler, the most frequent first."""
    _require(request, RUN_TIMES_PERMISSION)
    learnt = RunTime.objects.select_related("tenant").order_by("-samples")[:RUN_TIMES_SHOWN]
    rows = [
        {
            **{name: getattr(row, name) for name in ("tenant", "key", "samples", "updated_at")},
            "mean": seconds(row.mean_us / 1e6),
            "long": seconds(None if row.long_us is None else row.long_us / 1e6),
        }
        for row in learnt
    ]
    return _table(request, "run_times", "Run times", rows)


def sizes(request: HttpRequest) -> HttpResponse:
    """Work that would run in a smaller tier, by tenant and handler or script, the most frequent first."""
    _require(request, SIZES_PERMISSION)
    rows = [{**hint, "cores": hint["p95"]["cpu_milli"] / 1000} for hint in right_sizing.all_hints(SIZES_LOOKED_AT)]
    return _table(request, "sizes", "Smaller tiers", rows)


def extra_urls() -> list[URLPattern]:
    """Addresses beside the admin's own, behind the same login."""
    return [
        path("live.json", admin.site.admin_view(live_numbers), name="sw_live"),
        path("live/charts.json", admin.site.admin_view(live_charts), name="sw_charts"),
        path("live/tasks/<uuid:task_id>.json", admin.site.admin_view(task_mark), name="sw_task"),
        path("live/tasks/<uuid:task_id>/output.json", admin.site.admin_view(task_output), name="sw_task_output"),
        path("run-times/", admin.site.admin_view(run_times), name="sw_run_times"),
        path("views/", admin.site.admin_view(saved_views.keep), name="sw_views"),
        path("views/<int:pk>/", admin.site.admin_view(saved_views.show), name="sw_view"),
        path("output/", admin.site.admin_view(all_output.of_all), name="sw_output"),
        path("sizes/", admin.site.admin_view(sizes), name="sw_sizes"),
    ]
