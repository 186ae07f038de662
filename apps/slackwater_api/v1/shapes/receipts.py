"""The shapes of receipts."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from slackwater_api.v1.shapes.common import CATEGORIES, OUTCOMES, STATES


class Promised(s.Serializer[Any]):
    """What was promised when the task was submitted."""

    submitted_at = s.DateTimeField()
    latest_start = s.DateTimeField(allow_null=True)
    attempt_micros = s.IntegerField(help_text="The price of an attempt.")
    hour_micros = s.IntegerField(help_text="The price of an hour of the tier in this category.")
    terms = s.IntegerField(help_text="The version of your terms: prices and policies. Each change is another.")
    order = s.CharField(help_text="The policy inside a line.")
    share = s.CharField(help_text="The policy between lines.")


class Before(s.Serializer[Any]):
    """How many tasks started while it waited, by the rule that let them: of those known then."""

    order = s.IntegerField(help_text="Of your own in its category.")
    category = s.IntegerField(help_text="Of your own in other categories.")
    share = s.IntegerField(help_text="Of other tenants: at least 0, 1, 10, 100 …")


class Kept(s.Serializer[Any]):
    """What became of it."""

    started_at = s.DateTimeField(allow_null=True)
    late_by_s = s.FloatField(help_text="How long after its latest start it started, or ended without one.")
    held_s = s.FloatField(help_text="How long the resources of its tier were held.")
    cpu_milli = s.IntegerField()
    memory_mb = s.IntegerField()
    disk_mb = s.IntegerField()
    cpu_s = s.FloatField(allow_null=True, help_text="CPU time, where it is measured.")
    peak_memory_mb = s.IntegerField(allow_null=True)
    peak_disk_mb = s.IntegerField(allow_null=True)
    before = Before(allow_null=True, help_text="Of a first start.")


class Seal(s.Serializer[Any]):
    """A signature of the chain up to here."""

    tenant = s.CharField()
    key_id = s.CharField()
    signature = s.CharField(help_text="Ed25519, in base64.")


class ReceiptOut(s.Serializer[Any]):
    """A receipt: of an attempt, or of a task that ended without one."""

    number = s.IntegerField(help_text="Its place in your chain: 1, 2, 3 …")
    task_id = s.UUIDField()
    attempt = s.IntegerField(allow_null=True, help_text="Null: it ended while it waited.")
    state = s.ChoiceField(STATES, allow_null=True, help_text="How the task ended; null: it went on after the attempt.")
    outcome = s.ChoiceField(OUTCOMES, allow_null=True, help_text="How the attempt ended.")
    ended_at = s.DateTimeField()
    tier = s.CharField()
    category = s.ChoiceField(CATEGORIES)
    promised = Promised()
    kept = Kept()
    charged_micros = s.IntegerField(help_text="In millionths. All of a day, tier and category make its usage's price.")
    previous = s.CharField(help_text="The hash of the receipt before it.")
    hash = s.CharField(help_text="SHA-256.")
    seal = Seal(allow_null=True)


class ReceiptKeyOut(s.Serializer[Any]):
    """A public key that seals receipts, or has."""

    id = s.CharField()
    algorithm = s.ChoiceField(["Ed25519"])
    public_key = s.CharField(help_text="32 bytes in base64.")
    created_at = s.DateTimeField()
