"""The shapes of execution rates."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from slackwater_tasks.models.rates import MAX_FRAME_S, MAX_STARTS


class RateIn(s.Serializer[Any]):
    """A limit to set: of a rate key, of a handler, or (with neither) of all your tasks."""

    key = s.CharField(max_length=150, required=False, allow_blank=True, help_text="Tasks with this rate_key.")
    handler = s.CharField(max_length=200, required=False, allow_blank=True, help_text="Tasks of this handler.")
    starts = s.IntegerField(min_value=1, max_value=MAX_STARTS, help_text="At most so many starts …")
    per_seconds = s.IntegerField(min_value=1, max_value=MAX_FRAME_S, help_text="… in any span of so many seconds.")


class RateOut(s.Serializer[Any]):
    """An execution rate that applies to your tasks."""

    id = s.IntegerField()
    of = s.ChoiceField(["tenant", "handler", "key"])
    handler = s.CharField(allow_null=True)
    key = s.CharField(allow_blank=True)
    starts = s.IntegerField()
    per_seconds = s.IntegerField()
    own = s.BooleanField(help_text="You have set it, and may remove it.")
    shared = s.BooleanField(help_text="It counts the starts of all tenants together.")
