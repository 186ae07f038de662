"""Pools in the admin."""

from __future__ import annotations

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from slackwater_adminkit.services import ServiceAdmin
from slackwater_tenants import pools
from slackwater_tenants.models import Pool


@admin.register(Pool)
class PoolAdmin(ServiceAdmin):
    """Pools of tenants and lines, with what each is guaranteed and may have; a change counts from the next round."""

    list_display = ("path", "cell", "weight", "guaranteed", "maximum", "lends", "inside")
    list_filter = ("cell",)
    list_select_related = ("parent",)
    search_fields = ("slug",)
    autocomplete_fields = ("parent",)
    fields = (("slug", "parent", "cell"), ("guaranteed", "maximum", "lends"), ("weight", "inside"))

    def save_model(self, request: HttpRequest, obj: Pool, form: forms.ModelForm[Pool], change: bool) -> None:
        """Through the service, which checks it against the pools beside it."""
        pools.save_pool(obj)
