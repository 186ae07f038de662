"""Subscriptions and their deliveries in the admin: operators see them, test them and send again."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter

from slackwater_adminkit import BigTableAdmin, Button, ButtonsMixin, ReadOnlyMixin, ServiceAdmin, ago, badge
from slackwater_adminkit.display import json_block
from slackwater_monitoring.models import Delivery, Subscription
from slackwater_monitoring.notify import subscriptions

KINDS = {"pending": "waiting", "delivered": "succeeded", "failed": "failed"}


@admin.register(Subscription)
class SubscriptionAdmin(ButtonsMixin, ReadOnlyMixin, ServiceAdmin):
    """Subscriptions. They are made over the API, which shows the secret; here they are switched and tested."""

    list_display = ("address", "tenant", "shown_events", "state", "failing", "created_at")
    list_select_related = ("tenant",)
    list_filter = (("tenant", AutocompleteSelectFilter), ("channel", ChoicesDropdownFilter), "enabled")
    search_fields = ("url", "description", "tenant__slug")
    fields = (
        "tenant", "channel", "url", "description", "events", "tags", "handlers", "enabled", "disabled_reason",
        "failing_since", "before_until", "created_at", "created_by", "updated_at",
    )  # fmt: skip
    buttons: ClassVar = {
        "ping": Button(label="Send a test", method="ping", when=lambda s: s.enabled and s.channel == "webhook"),
        "disable": Button(label="Disable", method="disable", danger=True, log="Disabled.", when=lambda s: s.enabled),
        "enable": Button(label="Enable", method="enable", log="Enabled.", when=lambda s: not s.enabled),
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Subscription]:
        """All tenants': the admin is the operators' view of the whole platform."""
        return Subscription.objects.unscoped().order_by("-id")

    @admin.display(description="to")
    def address(self, obj: Subscription) -> str:
        """The address."""
        return obj.url if obj.channel == Subscription.Channel.WEBHOOK else "the owners, by e-mail"

    @admin.display(description="events")
    def shown_events(self, obj: Subscription) -> str:
        """The events."""
        return ", ".join(name.removeprefix("task.") for name in obj.events)

    @admin.display(description="state")
    def state(self, obj: Subscription) -> SafeString:
        """Enabled or disabled."""
        return badge("on", "succeeded") if obj.enabled else badge("off", "cancelled")

    @admin.display(description="failing")
    def failing(self, obj: Subscription) -> SafeString | str:
        """The time since which nothing has arrived."""
        return ago(obj.failing_since)

    def ping(self, request: HttpRequest, obj: Subscription) -> str:
        """Send a test message."""
        subscriptions.ping(obj.tenant_id, obj.pk)
        return "A test is on its way; its delivery tells what becomes of it."

    def disable(self, request: HttpRequest, obj: Subscription) -> str:
        """Disable it."""
        subscriptions.change(obj.tenant_id, obj.pk, {"enabled": False})
        return "It is disabled: what waits is kept."

    def enable(self, request: HttpRequest, obj: Subscription) -> str:
        """Enable it."""
        subscriptions.change(obj.tenant_id, obj.pk, {"enabled": True})
        return "It is enabled: what waited is sent now."


@admin.register(Delivery)
class DeliveryAdmin(ButtonsMixin, ReadOnlyMixin, BigTableAdmin):
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
            method="replay",
            action="Send again",
            done="sent again",
            when=lambda d: d.state != Delivery.State.PENDING,
        )
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Delivery]:
        """All tenants': the admin is the operators' view of the whole platform."""
        return Delivery.objects.unscoped().order_by("-id")

    @admin.display(description="state")
    def shown_state(self, obj: Delivery) -> SafeString:
        """The value as a coloured word."""
        return badge(obj.state, KINDS[obj.state])

    @admin.display(description="last answer")
    def last_answer(self, obj: Delivery) -> str:
        """Status or error of the last attempt."""
        entry: dict[str, Any] = obj.log[-1] if obj.log else {}
        return str(entry.get("error") or entry.get("status") or "–")

    @admin.display(description="payload")
    def shown_payload(self, obj: Delivery) -> SafeString:
        """The payload."""
        return json_block(json.loads(obj.payload))

    @admin.display(description="attempts so far")
    def shown_log(self, obj: Delivery) -> SafeString | str:
        """The outcome of each attempt."""
        return json_block(obj.log) if obj.log else "–"

    def replay(self, request: HttpRequest, obj: Delivery) -> str:
        """Send it again."""
        subscriptions.replay(obj.tenant_id, obj.subscription_id, obj.pk)
        return "It is sent again, with the same id."
