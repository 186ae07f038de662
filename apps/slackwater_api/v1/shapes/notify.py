"""Shapes of webhooks, their deliveries, and usage."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from slackwater_api.v1.shapes.common import CATEGORIES, line
from slackwater_monitoring.models import Delivery, Subscription
from slackwater_monitoring.notify.subscriptions import ALL_EVENTS, MAX_FILTERS, WILDCARDS
from slackwater_tasks.field_kinds import WRITTEN
from slackwater_tasks.submission.webhook_address import MAX_URL

EVENT_NAMES = [*WILDCARDS, *ALL_EVENTS]
CHANNELS: list[str] = Subscription.Channel.values
DELIVERY_STATES: list[str] = Delivery.State.values


class WebhookChange(s.Serializer[Any]):
    """The fields of a webhook that can be changed."""

    url = line(MAX_URL, pattern=WRITTEN.pattern, required=False, help_text="Where to send: https://…")
    events = s.ListField(child=s.ChoiceField(EVENT_NAMES), required=False, min_length=1)
    tags = s.ListField(
        child=line(63), max_length=MAX_FILTERS, required=False, help_text="Only tasks with one of these tags."
    )
    handlers = s.ListField(
        child=line(200), max_length=MAX_FILTERS, required=False, help_text="Only tasks of these handlers: mail.*"
    )
    description = line(200, 0, required=False, allow_null=True)
    include_result = s.BooleanField(
        required=False,
        help_text="What a task returned goes with task.succeeded, up to 64 KiB and without your secrets.",
    )
    enabled = s.BooleanField(required=False)


class WebhookIn(WebhookChange):
    """A webhook to make."""

    channel = s.ChoiceField(
        CHANNELS,
        required=False,
        help_text="email: to the owners of your tenant, a minute's events in one; task: where each task says.",
    )
    events = s.ListField(child=s.ChoiceField(EVENT_NAMES), min_length=1)


class WebhookOut(s.Serializer[Any]):
    """A webhook."""

    id = s.UUIDField()
    channel = s.ChoiceField(CHANNELS)
    url = s.CharField(allow_null=True)
    events = s.ListField(child=s.ChoiceField(EVENT_NAMES))
    tags = s.ListField(child=s.CharField())
    handlers = s.ListField(child=s.CharField())
    description = s.CharField(allow_null=True)
    include_result = s.BooleanField()
    enabled = s.BooleanField()
    disabled_reason = s.CharField(allow_null=True, help_text="Why the platform disabled it.")
    failing_since = s.DateTimeField(allow_null=True, help_text="No delivery has succeeded since.")
    created_at = s.DateTimeField()
    updated_at = s.DateTimeField()


class WebhookMade(WebhookOut):
    """A webhook with the secret that signs; it is shown this once."""

    secret = s.CharField(allow_null=True, help_text="whsec_… ; empty for e-mail.")


class DeliveryAttempt(s.Serializer[Any]):
    """One attempt at a delivery."""

    at = s.DateTimeField()
    status = s.IntegerField(allow_null=True, help_text="HTTP status; null when no answer came.")
    error = s.CharField(allow_null=True)
    duration_s = s.FloatField()


class DeliveryOut(s.Serializer[Any]):
    """One event on its way to one webhook."""

    id = s.UUIDField(help_text="Also the header webhook-id; a repeat carries the same.")
    event = s.CharField()
    task_id = s.UUIDField(allow_null=True)
    state = s.ChoiceField(DELIVERY_STATES)
    attempts = s.IntegerField()
    created_at = s.DateTimeField()
    next_attempt_at = s.DateTimeField(allow_null=True)
    delivered_at = s.DateTimeField(allow_null=True)
    payload = s.DictField()
    log = DeliveryAttempt(many=True)


class UsageSum(s.Serializer[Any]):
    """Resources that were used."""

    attempts = s.IntegerField(help_text="Attempts that began and ended.")
    succeeded = s.IntegerField()
    run_s = s.FloatField(help_text="Seconds for which resources were held.")
    cpu_s = s.FloatField(help_text="CPU seconds, where they are measured.")
    price_micros = s.IntegerField(help_text="At the prices of the moment, in millionths of the unit charged in.")


class UsageRow(UsageSum):
    """Resources used on a day, in a tier and a category."""

    day = s.DateField()
    tier = s.CharField()
    category = s.ChoiceField(CATEGORIES)


class OnTimeRow(s.Serializer[Any]):
    """How many tasks of a line and handler began, and how many of these by their latest start."""

    tier = s.CharField()
    category = s.ChoiceField(CATEGORIES)
    handler = s.CharField(help_text="Empty for scripts.")
    started = s.IntegerField()
    on_time = s.IntegerField()
    rate = s.FloatField()


class UsageOut(s.Serializer[Any]):
    """Resources used from one day to another (UTC, both included)."""

    since = s.DateField()
    until = s.DateField()
    total = UsageSum()
    on_time = OnTimeRow(many=True)
    items = UsageRow(many=True)
    next_cursor = s.CharField(allow_null=True, help_text="Give it as cursor; null on the last page.")


class UsedPart(s.Serializer[Any]):
    """The use that 95 of 100 runs did not exceed; null where it is not measured."""

    cpu_milli = s.IntegerField(help_text="CPU on the average of a run, in thousandths.")
    memory_mb = s.IntegerField(allow_null=True)
    disk_mb = s.IntegerField(allow_null=True)


class UsageHint(s.Serializer[Any]):
    """A smaller tier that would have held what was used."""

    kind = s.ChoiceField(["handler", "script", "script_path"])
    name = s.CharField(help_text="The handler, the script's SHA-256, or its path.")
    tier = s.CharField(help_text="The tier that was asked for.")
    suggested_tier = s.CharField(help_text="The smallest tier you may name that would have held 95 of 100 runs.")
    runs = s.IntegerField(help_text="The last runs that were looked at.")
    runs_over = s.IntegerField(help_text="Of these, how many used more than the suggested tier has.")
    p95 = UsedPart()
    updated_at = s.DateTimeField()
