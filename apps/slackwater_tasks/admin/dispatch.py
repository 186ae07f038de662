"""Lines, the script store and the leaders in the admin."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import DateTimeField, IntegerField, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import content_disposition_header
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter

from scheduler_ext.core.sql import named
from scheduler_ext.core.states import Category
from slackwater_adminkit.big import BigTableAdmin
from slackwater_adminkit.display import ago, badge, column
from slackwater_adminkit.pausing import PausableMixin
from slackwater_adminkit.services import AllTenantsMixin, ReadOnlyMixin, ServiceAdmin
from slackwater_tasks.admin.terminate import TERMINATE, TerminateMixin
from slackwater_tasks.control.lines import set_line_paused
from slackwater_tasks.control.terminate import Subject
from slackwater_tasks.models import Artifact, Leader, Line, Script, WorkflowTemplate
from slackwater_tasks.read.tasks import word
from slackwater_tasks.runtime import artifacts

TEXT_SHOWN = 100_000
READY_COUNTED = 1_000
# In their order, or a line of a few is looked for through the whole table while another has nearly all: so too below.
READY = named("""
SELECT count(*) FROM (SELECT 1 FROM slackwater_tasks_livetask l
    WHERE l.phase = :phase.READY AND l.line_id = slackwater_tasks_line.id
    ORDER BY l.rank_group, l.rank, l.task_id LIMIT %s) x
""")
HEAD = named("""
SELECT k.submitted_at FROM slackwater_tasks_task k WHERE k.id = (
    SELECT l.task_id FROM slackwater_tasks_livetask l WHERE l.phase = :phase.READY AND l.line_id = slackwater_tasks_line.id
    ORDER BY l.rank_group, l.rank, l.task_id LIMIT 1)
""")
DOWNLOAD = "admin:slackwater_tasks_artifact_download"


@admin.register(Line)
class LineAdmin(AllTenantsMixin, TerminateMixin, PausableMixin, ReadOnlyMixin, ServiceAdmin):
    """Lines exist by use. An operator pauses them, or ends all their work."""

    buttons: ClassVar = {**PausableMixin.buttons, "terminate": TERMINATE}
    list_display = ("shown_category", "tenant", "tier", "labels", "state", "ready", "waits")
    list_select_related = ("tenant", "tier")
    list_filter = (("tenant", AutocompleteSelectFilter), ("category", ChoicesDropdownFilter), "paused")
    search_fields = ("tenant__slug", "tier__slug")
    list_per_page = 100

    ordering = ("tenant__slug", "category", "tier__cpu_milli")

    shown_category = column("category", lambda line: word(Category(line.category)), ordering="category")

    @admin.display(description="state")
    def state(self, obj: Line) -> SafeString:
        """Its own, unless its tenant is paused."""
        return badge("tenant paused", "waiting") if obj.tenant.paused and not obj.paused else super().state(obj)

    labels = column("labels", lambda line: ", ".join([*line.require_labels, *(f"({it})" for it in line.prefer_labels)]))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Line]:
        """With how many are ready in each, counted up to a bound, and since when the first of them waits."""
        ready = RawSQL(READY, [READY_COUNTED + 1], output_field=IntegerField())  # noqa: S611 - ours, as below
        rows: QuerySet[Line] = super().get_queryset(request)
        since = RawSQL(HEAD, [], output_field=DateTimeField())  # noqa: S611
        return rows.annotate(ready_count=ready, head_since=since)

    ready = column(
        "ready", lambda line: f"{READY_COUNTED:,}+" if line.ready_count > READY_COUNTED else line.ready_count
    )
    waits = column("its first submitted", lambda line: ago(line.head_since))

    def set_paused(self, obj: Line, *, paused: bool) -> bool:
        return set_line_paused(obj, paused=paused)

    def subject(self, obj: Line) -> Subject:
        return Subject.of_line(obj)


@admin.register(Script)
class ScriptAdmin(AllTenantsMixin, ReadOnlyMixin, BigTableAdmin):
    """The script store. Content is addressed by its hash, so it never changes."""

    list_display = ("name", "tenant", "hash", "size", "created_at")
    list_filter = (("tenant", AutocompleteSelectFilter),)
    search_fields = ("name", "sha256")
    fields = ("name", "tenant", "sha256", "size", "created_at", "text")
    readonly_fields = ("text",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Script]:
        return super().get_queryset(request).select_related("tenant").defer("content")

    hash = column("SHA-256", lambda script: f"{script.sha256[:12]}…")

    @admin.display(description="content")
    def text(self, obj: Script) -> SafeString:
        text = bytes(obj.content)[:TEXT_SHOWN].decode("utf-8", "replace")
        return format_html('<pre class="sw-pre">{}</pre>', text)


@admin.register(WorkflowTemplate)
class WorkflowTemplateAdmin(AllTenantsMixin, ReadOnlyMixin, ServiceAdmin):
    """Workflows with parameters, by name and version; their tenants store them over REST."""

    list_display = ("name", "version", "tenant", "description", "created_at", "created_by")
    list_select_related = ("tenant",)
    list_filter = (("tenant", AutocompleteSelectFilter),)
    search_fields = ("name", "description", "tenant__slug")
    fields = ("name", "version", "tenant", "description", "parameters", "workflow", "created_at", "created_by")


@admin.register(Artifact)
class ArtifactAdmin(AllTenantsMixin, ReadOnlyMixin, BigTableAdmin):
    """Files that tasks left behind; downloaded, never shown as pages."""

    list_display = ("name", "tenant", "task_id", "size", "content_type", "saved_at")
    list_filter = (("tenant", AutocompleteSelectFilter),)
    search_fields = ("=task__id",)
    fields = ("name", "tenant", "task_id", "size", "content_type", "sha256", "fence", "saved_at", "file")
    readonly_fields = ("task_id", "file")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Artifact]:
        return super().get_queryset(request).select_related("tenant").defer("content")

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.download)
        return [
            path("<uuid:artifact_id>/download/", view, name="slackwater_tasks_artifact_download"),
            *super().get_urls(),
        ]

    def download(self, request: HttpRequest, artifact_id: UUID) -> StreamingHttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = Artifact.objects.unscoped().defer("content")  # the operators' view, as above
        found = get_object_or_404(rows, pk=artifact_id)
        name = content_disposition_header(as_attachment=True, filename=found.name.rpartition("/")[2])
        response = StreamingHttpResponse(artifacts.content(found), content_type="application/octet-stream")
        response["Content-Disposition"] = name or "attachment"
        return response

    file = column("file", lambda row: format_html('<a href="{}">Download</a>', reverse(DOWNLOAD, args=[row.pk])))


@admin.register(Leader)
class LeaderAdmin(ReadOnlyMixin, ServiceAdmin):
    """Who dispatches for each cell."""

    list_display = ("cell", "holder", "epoch", "state", "renewed", "expires_at", "stolen")

    @admin.display(description="state")
    def state(self, obj: Leader) -> SafeString:
        return badge("leads", "succeeded") if obj.expires_at > timezone.now() else badge("lapsed", "failed")

    renewed = column("renewed", lambda row: ago(row.renewed_at))
