"""Execution rates in the admin."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from slackwater_adminkit.services import ServiceAdmin
from slackwater_tasks.models import RateLimit


@admin.register(RateLimit)
class RateLimitAdmin(ServiceAdmin):
    """At most so many starts in any span of so many seconds. Takes effect within a second."""

    list_display = ("subject", "starts", "per_s", "own", "of_plan", "created_at")
    list_select_related = ("tenant", "handler")
    list_filter = (("tenant", AutocompleteSelectFilter), "own", "of_plan")
    search_fields = ("tenant__slug", "handler__name", "key")
    autocomplete_fields = ("tenant", "handler")
    fieldsets = (("Of what", {"fields": ("tenant", "handler", "key")}), ("At most", {"fields": (("starts", "per_s"),)}))

    def get_readonly_fields(self, request: HttpRequest, obj: RateLimit | None = None) -> tuple[str, ...]:
        """What it limits stays: what has started under it would be counted wrongly."""
        return ("tenant", "handler", "key") if obj else ()

    def has_change_permission(self, request: HttpRequest, obj: RateLimit | None = None) -> bool:
        """What a plan gives is changed in the plan."""
        return not (obj is not None and obj.of_plan) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: RateLimit | None = None) -> bool:
        """What a plan gives is taken away in the plan."""
        return not (obj is not None and obj.of_plan) and super().has_delete_permission(request, obj)
