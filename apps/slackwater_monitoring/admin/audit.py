"""The audit, read-only: logins, and changes by administrators."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

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

    list_display = ("action_time", "user", "kind", "named", "what", "undo")
    list_select_related = ("user", "content_type")
    list_filter: ClassVar[Any] = ("action_flag",)
    search_fields = ("user__username", "object_repr")
    fields = ("action_time", "user", "kind", "object_id", "named", "what")

    kind = column("kind", lambda entry: entry.content_type.name if entry.content_type else "–")

    @admin.display(description="of")
    def named(self, obj: LogEntry) -> SafeString | str:
        """What was changed, with its page where it has one."""
        url = obj.get_admin_url() if obj.object_id else None
        return format_html('<a href="{}">{}</a>', url, obj.object_repr) if url else obj.object_repr

    what = column("change", lambda entry: entry.get_change_message() or str(entry.get_action_flag_display()))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The list, where the newest act on each object has the address that takes it back."""
        found = super().get_changelist_instance(request)
        seen: set[tuple[Any, Any]] = set()
        for entry in found.result_list:
            this = (entry.content_type_id, entry.object_id)
            if entry.object_id and this not in seen:
                entry.undo_url = self._undoing(request, entry)
            seen.add(this)
        return found

    def _undoing(self, request: HttpRequest, entry: LogEntry) -> str:
        model = entry.content_type.model_class() if entry.content_type else None
        shown: Any = self.admin_site._registry.get(model) if model else None
        for button in getattr(shown, "buttons", {}).values():
            if button.undo and button.log and entry.change_message.startswith(button.log.rstrip(".:")):
                obj = shown.get_object(request, entry.object_id)
                back = shown.buttons[button.undo]
                if obj is not None and back.when(obj) and shown.may(request, back.permission):
                    return reverse(f"admin:{shown.press_url_name()}", args=[obj.pk, button.undo])
        return ""

    @admin.display(description="")
    def undo(self, obj: LogEntry) -> SafeString | str:
        url = getattr(obj, "undo_url", "")
        return url and format_html('<button type="submit" class="sw-button" formaction="{}">Undo</button>', url)
