"""The audit, read-only: logins, and changes by administrators."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import LogEntry

from slackwater_adminkit.big import BigTableAdmin
from slackwater_adminkit.display import badge, column
from slackwater_adminkit.services import ReadOnlyMixin
from slackwater_monitoring.models import Login

KINDS = {"succeeded": "succeeded", "failed": "failed", "refused": "failed", "left": "cancelled"}


@admin.register(Login)
class LoginAdmin(ReadOnlyMixin, BigTableAdmin):
    list_display = ("at", "username", "address", "shown_outcome")
    list_filter: ClassVar[Any] = ("outcome",)
    search_fields = ("username", "address")
    fields = ("at", "username", "address", "outcome")

    shown_outcome = column("outcome", lambda login: badge(login.outcome, KINDS[login.outcome]))


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnlyMixin, BigTableAdmin):
    """Objects that administrators added, changed and deleted, and the buttons they pressed."""

    list_display = ("action_time", "user", "kind", "named", "what")
    list_select_related = ("user", "content_type")
    list_filter: ClassVar[Any] = ("action_flag",)
    search_fields = ("user__username", "object_repr")
    fields = ("action_time", "user", "kind", "object_id", "named", "what")

    kind = column("kind", lambda entry: entry.content_type.name if entry.content_type else "–")
    named = column("of", lambda entry: entry.object_repr)

    what = column("change", lambda entry: entry.get_change_message() or str(entry.get_action_flag_display()))
