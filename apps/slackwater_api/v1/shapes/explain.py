"""The shape of an explanation."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from slackwater_api.v1.shapes.common import STATES
from slackwater_tasks.explain.blockers import KINDS


class BlockerOut(s.Serializer[Any]):
    """One thing that keeps a task from starting."""

    kind = s.ChoiceField(KINDS)
    detail = s.CharField(help_text="In words.")
    clears = s.CharField(help_text="What would remove it.")
    at = s.DateTimeField(allow_null=True, help_text="When it goes by itself, where that is known.")
    task_ids = s.ListField(child=s.UUIDField(), help_text="The tasks it is due to, the first twenty.")
    ahead = s.IntegerField(allow_null=True, help_text="How many tasks come first; counted up to 10,000.")


class PredictedStart(s.Serializer[Any]):
    """When it will likely start: the present state, run forward in the simulator with the live policies."""

    earliest = s.DateTimeField()
    likely = s.DateTimeField()
    latest = s.DateTimeField()


class Explanation(s.Serializer[Any]):
    """Why a task waits."""

    task_id = s.UUIDField()
    state = s.ChoiceField(STATES)
    waiting = s.BooleanField(help_text="Whether it waits at all.")
    summary = s.CharField(help_text="The first blocker, or why there is none.")
    blockers = BlockerOut(many=True)
    latest_start = s.DateTimeField(allow_null=True)
    predicted_start = PredictedStart(allow_null=True, help_text="Null where nobody can tell.")
    as_of = s.DateTimeField()
