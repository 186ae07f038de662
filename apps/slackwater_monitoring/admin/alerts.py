"""Alerts in the admin: their duration, the notices sent, and who acknowledged them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from slackwater_adminkit.buttons import Button, ButtonsMixin
from slackwater_adminkit.display import ago, badge, column
from slackwater_adminkit.services import ReadOnlyMixin, ServiceAdmin, actor
from slackwater_monitoring.alerts import evaluation
from slackwater_monitoring.alerts.rules import RULES
from slackwater_monitoring.models import Alert


class OpenFilter(admin.SimpleListFilter):
    """Filter that shows open alerts unless all are asked for."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("open", "open"), ("cleared", "cleared")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Alert]) -> QuerySet[Alert]:
        if self.value() is None:
            return queryset
        return queryset.filter(cleared_at__isnull=self.value() == "open")


@admin.register(Alert)
class AlertAdmin(ButtonsMixin, ReadOnlyMixin, ServiceAdmin):
    """Alerts of the platform. The watching threads write them; here they are acknowledged."""

    list_display = ("says", "cell", "subject", "state", "detail", "raised", "cleared", "acknowledged_by")
    list_filter = (OpenFilter, "rule", "cell")
    search_fields = ("subject", "detail")
    fields = (
        "says", "rule", "cell", "subject", "detail", "state", "since", "raised_at", "last_seen_at", "quiet_since",
        "cleared_at", "acknowledged_at", "acknowledged_by", "told",
    )  # fmt: skip
    buttons: ClassVar = {
        "acknowledge": Button(
            label="Acknowledge",
            title="I look after it",
            action="Acknowledge",
            done="acknowledged",
            log="Acknowledged.",
            when=lambda a: a.cleared_at is None and a.acknowledged_at is None,
        )
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Alert]:
        """Only alerts that were raised: the others may still pass."""
        return super().get_queryset(request).exclude(raised_at=None)

    says = column("what is wrong", lambda alert: RULES[alert.rule].says if alert.rule in RULES else alert.rule)

    @admin.display(description="state")
    def state(self, obj: Alert) -> SafeString:
        if obj.cleared_at is not None:
            return badge("cleared", "succeeded")
        return badge("acknowledged", "scheduled") if obj.acknowledged_at else badge("open", "failed")

    raised = column("raised", lambda alert: ago(alert.raised_at), ordering="raised_at")
    cleared = column("cleared", lambda alert: ago(alert.cleared_at), ordering="cleared_at")

    @admin.display(description="told")
    def told(self, obj: Alert) -> SafeString | str:
        rows = (
            (one.event, one.get_channel_display(), ago(one.done_at) if one.done_at else one.error or "on its way")
            for one in obj.notices.order_by("id")
        )
        return format_html_join("", "<div>{} by {}: {}</div>", rows) or "nobody: no address is known"

    def acknowledge(self, request: HttpRequest, obj: Alert) -> str:
        evaluation.acknowledge(obj, actor(request))
        return f"You look after it: {obj}."
