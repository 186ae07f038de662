"""Shapes of scripts, dead letters, tiers, nodes, lines, limits and execution rates."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from slackwater_api.v1.shapes.common import CATEGORIES, NODE_STATES, OUTCOMES, Anything, Ruled, line
from slackwater_tasks.models.rates import MAX_FRAME_S, MAX_STARTS

PAUSED_BY = ["organization", "platform"]


class ScriptIn(Ruled):
    """A script to store: its text or its bytes."""

    rules = {"allOf": [{"oneOf": [{"required": ["content"]}, {"required": ["content_base64"]}]}]}

    name = line(200, pattern="[^/\\x00]+")
    content = s.CharField(min_length=1, trim_whitespace=False, required=False, help_text="Its text.")
    content_base64 = s.RegexField(
        "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)$", required=False,
        help_text="Its bytes in base64, where it is no text.",
    )  # fmt: skip


class ScriptSummary(s.Serializer[Any]):
    """A stored script."""

    sha256 = s.CharField()
    name = s.CharField()
    size = s.IntegerField()
    created_at = s.DateTimeField()


class ScriptDetail(ScriptSummary):
    """A stored script with its content."""

    content = s.CharField(allow_blank=True)


class DeadLetterOut(s.Serializer[Any]):
    """A task whose attempts are used up."""

    task_id = s.UUIDField()
    name = s.CharField(allow_null=True)
    handler = s.CharField(allow_null=True)
    script = s.CharField(allow_null=True)
    at = s.DateTimeField()
    outcome = s.ChoiceField(OUTCOMES, allow_null=True)
    reason = s.CharField()
    retries = s.IntegerField()
    next_retry_at = s.DateTimeField(allow_null=True)


class Resources(s.Serializer[Any]):
    """A vector of resources."""

    cpu_milli = s.IntegerField(help_text="Thousandths of a CPU.")
    memory_mb = s.IntegerField()
    disk_mb = s.IntegerField()
    iops = s.IntegerField()
    bandwidth_kbps = s.IntegerField()
    ports = s.IntegerField()


class TierOut(Resources):
    """A tier that your plan lets you name."""

    name = s.CharField()
    own = s.BooleanField()
    default_execution_cap_s = s.IntegerField(help_text="Seconds.")
    price_micros_per_hour = s.IntegerField(help_text="In millionths of the unit charged in.")


class NodeOut(s.Serializer[Any]):
    """A node of your cell, with your own tasks on it."""

    id = s.UUIDField()
    name = s.CharField()
    state = s.ChoiceField(NODE_STATES)
    capacity = Resources()
    slots = s.DictField(child=s.IntegerField())
    labels = s.ListField(child=s.CharField())
    sandbox = s.CharField()
    enforced = s.ListField(child=s.CharField(), help_text="What of its tier a script is held to there.")
    started_at = s.DateTimeField()
    heartbeat_at = s.DateTimeField()
    handlers = s.ListField(child=s.CharField())
    own_queued = s.IntegerField()
    own_running = s.IntegerField()


class NodeChanged(s.Serializer[Any]):
    """A node whose state was changed."""

    id = s.UUIDField()
    name = s.CharField()
    cell = s.CharField()
    state = s.ChoiceField(NODE_STATES)


class QueueChange(s.Serializer[Any]):
    """The fields of a line that can be changed."""

    paused = s.BooleanField()


class QueueOut(s.Serializer[Any]):
    """One of your lines: the tasks of one category and tier."""

    category = s.ChoiceField(CATEGORIES)
    tier = s.CharField()
    paused = s.BooleanField(help_text="Tasks are accepted, none is started: it, or the whole organisation.")
    paused_by = s.ChoiceField(PAUSED_BY, allow_null=True, help_text="Who paused it, and can let it go on.")
    ready = s.IntegerField()
    ready_is_minimum = s.BooleanField(help_text="True when there are more: counting stops at 10,000.")
    queued = s.IntegerField()
    running = s.IntegerField()
    earliest_latest_start = s.DateTimeField(allow_null=True)


class Used(s.Serializer[Any]):
    """The current use of a plan."""

    unfinished = s.IntegerField()
    urgent_unfinished = s.IntegerField()
    in_flight = s.IntegerField()
    submissions_available_now = s.IntegerField()


class Rate(s.Serializer[Any]):
    """The limit of submissions, and where you stand."""

    per_hour = s.IntegerField(help_text="Submissions an hour, in the long run.")
    burst = s.IntegerField(help_text="Submissions at once.")
    available_now = s.IntegerField()
    next_at = s.DateTimeField(allow_null=True, help_text="When the next one is accepted; null: never.")
    full_at = s.DateTimeField(allow_null=True, help_text="When a whole burst is accepted again.")


class Prices(s.Serializer[Any]):
    """Prices of work, in millionths of the unit that is charged."""

    attempt_micros = s.IntegerField(help_text="Each attempt.")
    tier_hour_micros = s.DictField(child=s.IntegerField(), help_text="An hour of a tier.")
    category_permille = s.DictField(child=s.IntegerField(), help_text="Thousandths of the tier's price, by category.")


class LimitsOut(s.Serializer[Any]):
    """Your plan's numbers, and what is used of them."""

    plan = s.CharField()
    limits = s.DictField(child=Anything())
    used = Used()
    rate = Rate()
    prices = Prices()


class RateIn(s.Serializer[Any]):
    """A limit to set: of a rate key, of a handler, or (with neither) of all your tasks."""

    key = line(150, 0, required=False, allow_null=True, help_text="Tasks with this rate_key.")
    handler = line(200, 0, required=False, allow_null=True, help_text="Tasks of this handler.")
    starts = s.IntegerField(min_value=1, max_value=MAX_STARTS, help_text="At most so many starts …")
    window_s = s.IntegerField(min_value=1, max_value=MAX_FRAME_S, help_text="… in any span of so many seconds.")


class RateOut(s.Serializer[Any]):
    """An execution rate that applies to your tasks."""

    id = s.UUIDField()
    of = s.ChoiceField(["tenant", "handler", "key"])
    handler = s.CharField(allow_null=True)
    key = s.CharField(allow_null=True)
    starts = s.IntegerField()
    window_s = s.IntegerField()
    own = s.BooleanField(help_text="You have set it, and may remove it.")
    shared = s.BooleanField(help_text="It counts the starts of all tenants together.")
