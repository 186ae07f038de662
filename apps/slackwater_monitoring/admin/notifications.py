"""Subscriptions and their deliveries in the admin: operators see them, test them and send again."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html_join
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter

from slackwater_adminkit.big import BigTableAdmin
from slackwater_adminkit.buttons import Button, ButtonsMixin
from slackwater_adminkit.display import ago, badge, column, facts, json_block
from slackwater_adminkit.services import AllTenantsMixin, ReadOnlyMixin, ServiceAdmin
from slackwater_monitoring.models import Delivery, Subscription
from slackwater_monitoring.notify import subscriptions

KINDS = {"pending": "waiting", "delivered": "succeeded", "failed": "failed"}


@admin.register(Subscription)
class SubscriptionAdmin(AllTenantsMixin, ButtonsMixin, ReadOnlyMixin, ServiceAdmin):
    """Subscriptions. They are made over the API, which shows the secret; here they are switched and tested."""

    list_display = ("address", "tenant", "shown_events", "state", "failing", "created_at")
    list_select_related = ("tenant",)
    list_filter = (("tenant", AutocompleteSelectFilter), ("channel", ChoicesDropdownFilter), "enabled")
    search_fields = ("url", "description", "tenant__slug")
    fields = (
        "tenant", "channel", "url", "description", "events", "tags", "handlers", "include_result", "enabled", "disabled_reason",
        "failing_since", "before_until", "created_at", "created_by", "updated_at",
    )  # fmt: skip
    buttons: ClassVar = {
        "ping": Button(label="Send a test", when=lambda s: s.enabled and s.channel == "webhook"),
        "disable": Button(label="Disable", danger=True, log="Disabled.", when=lambda s: s.enabled),
        "enable": Button(label="Enable", log="Enabled.", when=lambda s: not s.enabled),
    }

    ordering = ("-id",)

    address = column("to", lambda s: s.url if s.channel == "webhook" else "the owners, by e-mail")
    shown_events = column("events", lambda s: ", ".join(name.removeprefix("task.") for name in s.events))
    state = column("state", lambda s: badge("on", "succeeded") if s.enabled else badge("off", "cancelled"))
    failing = column("failing", lambda s: ago(s.failing_since))

    def ping(self, request: HttpRequest, obj: Subscription) -> str:
        subscriptions.ping(obj.tenant_id, obj.pk)
        return "A test is on its way; its delivery tells what becomes of it."

    def disable(self, request: HttpRequest, obj: Subscription) -> str:
        subscriptions.change(obj.tenant_id, obj.pk, {"enabled": False})
        return "It is disabled: what waits is kept."

    def enable(self, request: HttpRequest, obj: Subscription) -> str:
        subscriptions.change(obj.tenant_id, obj.pk, {"enabled": True})
        return "It is enabled: what waited is sent now."


@admin.register(Delivery)
class DeliveryAdmin(AllTenantsMixin, ButtonsMixin, ReadOnlyMixin, BigTableAdmin):
    """Deliveries, with the answers of their receivers."""

    list_display = ("event", "subscription", "shown_state", "attempts", "last_answer", "created_at")
    list_select_related = ("subscription",)
    list_filter = (("state", ChoicesDropdownFilter), ("tenant", AutocompleteSelectFilter))
    fields = (
        "tenant", "subscription", "event", "task_id", "shown_state", "attempts", "next_attempt_at", "delivered_at",
        "created_at", "shown_payload", "shown_log",
    )  # fmt: skip
    buttons: ClassVar = {
        "replay": Button(
            label="Send again",
            action="Send again",
            done="sent again",
            when=lambda d: d.state != Delivery.State.PENDING,
        )
    }

    shown_state = column("state", lambda delivery: badge(delivery.state, KINDS[delivery.state]))

    @admin.display(description="last answer")
    def last_answer(self, obj: Delivery) -> str:
        entry: dict[str, Any] = obj.log[-1] if obj.log else {}
        return str(entry.get("error") or entry.get("status") or "–")

    shown_payload = column("payload", lambda delivery: json_block(json.loads(delivery.payload)))
    shown_log = column(
        "attempts so far", lambda delivery: format_html_join("", "{}", ((facts(one),) for one in delivery.log)) or "–"
    )

    def replay(self, request: HttpRequest, obj: Delivery) -> str:
        subscriptions.replay(obj.tenant_id, obj.subscription_id, obj.pk)
        return "It is sent again, with the same id."
