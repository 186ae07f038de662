"""A button beside *Save* that shows what the form as it stands would have made of the last hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.plain_text import counted
from slackwater_adminkit.display import seconds, table
from slackwater_tasks.explain.preview import HOUR_S, Preview, preview
from slackwater_tenants.models import Tenant

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin as Base
else:
    Base = object


REPLAYED: Final = ("as it is (replayed)", "with the change (replayed)")


class PreviewMixin(Base):  # type: ignore[type-arg]
    """Adds the preview to the form of what decides about shares and order."""

    change_form_after_template = "slackwater_dashboard/preview.html"

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_preview"
        view = self.admin_site.admin_view(self.preview)
        return [
            path("add/preview/", view, {"object_id": ""}, name=f"{name}_add"),
            path("<path:object_id>/change/preview/", view, name=name),
            *super().get_urls(),
        ]

    def preview(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The waits of each tenant before and after; nothing is saved."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        obj = self.get_object(request, object_id) if object_id else None
        if object_id and obj is None:
            raise Http404
        if not (self.has_change_permission(request, obj) if obj else self.has_add_permission(request)):
            raise PermissionDenied
        form = self.get_form(request, obj, change=obj is not None)(request.POST, instance=obj)
        if not form.is_valid():
            told = (
                (form.fields[name].label if name in form.fields else "", each) for name, each in form.errors.items()
            )
            return HttpResponse(
                format_html_join("", "<p>{} {}</p>", ((label, " ".join(map(str, each))) for label, each in told))
            )
        change = obj is not None

        def save() -> None:
            self.save_model(request, self.save_form(request, form, change), form, change)

        try:
            return HttpResponse(shown(preview(save, getattr(form.instance, "cell", "") or "default")))
        except SlackwaterError as error:
            return HttpResponse(format_html("<p>{}</p>", str(error)))


def shown(found: Preview) -> str:
    """The table of both runs, beside what really was."""
    names = dict(Tenant.objects.values_list("pk", "slug"))
    rows = [
        (
            names.get(w.tenant_id, w.tenant_id),
            f"{w.tasks:,}",
            *map(seconds, (w.really[0], *w.mean)),
            _change(*w.mean),
            *map(seconds, (w.really[1], *w.p95)),
            *(w.never if any(any(each.never) for each in found.waits) else ()),
        )
        for w in found.waits
    ]
    heads = [
        "Tenant", "Tasks", "Mean wait: as it was", *REPLAYED, "Change", "95 in 100 wait at most: as it was", *REPLAYED,
    ]  # fmt: skip
    if rows and len(rows[0]) > len(heads):
        heads += [f"Never start: {REPLAYED[0]}", REPLAYED[1]]
    what = f"{'the latest ' * found.capped}{counted(found.tasks, 'task')}"
    left = (
        f" {counted(found.left_out, 'task was', plural='tasks were')} left out: nobody knows the run time."
        if found.left_out
        else ""
    )
    return format_html(
        "<p>The last {} min, replayed by the live policies on the nodes of this moment: {}.{} A replay counts none of the "
        "platform's own work: compare the two replays with each other, and see by what was how far to believe them. "
        "Nothing is saved yet.</p>{}",
        HOUR_S // 60, what, left, table(heads, rows, "no tasks"),
    )  # fmt: skip


def _change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "as now" if before is after else "none starts" if after is None else "some start"
    if abs(after - before) < 0.001:
        return "as now"
    return f"{seconds(abs(after - before))} {'longer' if after > before else 'shorter'}"
