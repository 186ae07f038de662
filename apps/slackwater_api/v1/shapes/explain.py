"""The shapes of an explanation, and of a quote."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from slackwater_api.v1.shapes.common import CATEGORIES, STATES
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
    """When it will likely start: the present state, run forward in the simulator with the live policies.

    In eight of ten runs, with run times drawn from what was learnt, it starts between ``earliest`` and ``latest``; both are
    moved by what the last forecasts of the cell got wrong.
    """

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
    place = s.ListField(
        child=s.CharField(),
        help_text="What tasks that need it give it, in words: their urgency and priority, its path.",
    )
    latest_start = s.DateTimeField(allow_null=True)
    predicted_start = PredictedStart(allow_null=True, help_text="Null where nobody can tell.")
    not_predicted = s.CharField(allow_null=True, help_text="Why nobody can tell when it starts.")
    hit_rate = s.FloatField(
        allow_null=True, help_text="The part of the cell's forecasts shown lately whose interval held the start."
    )
    forecasts_checked = s.IntegerField(help_text="How many the hit rate rests on; the last count most.")
    as_of = s.DateTimeField()


class PriceOut(s.Serializer[Any]):
    """A price, in millionths of the unit that is charged."""

    expected_micros = s.IntegerField(allow_null=True, help_text="One run of the usual length; null: none is learnt.")
    most_micros = s.IntegerField(help_text="Every attempt is used, and runs to its cap.")


class QuoteItem(s.Serializer[Any]):
    """Tasks of a submission that are alike, with all that was left open filled in."""

    tasks = s.IntegerField()
    handler = s.CharField(allow_null=True)
    script = s.CharField(allow_null=True, help_text="Its path, or its SHA-256.")
    category = s.ChoiceField(CATEGORIES)
    tier = s.CharField()
    delay_tolerance_s = s.FloatField()
    execution_cap_s = s.FloatField()
    attempts = s.IntegerField()
    attempt_micros = s.IntegerField(help_text="Each attempt.")
    hour_micros = s.IntegerField(help_text="An hour of the tier in this category.")
    expected_run_s = s.FloatField(allow_null=True, help_text="The usual length of a run; null: none is learnt.")
    price = PriceOut()
    predicted_start = PredictedStart(allow_null=True, help_text="Of the first of them; null where nobody can tell.")


class Patience(s.Serializer[Any]):
    """What the same would cost with another category or tolerance, and when its first task would start."""

    category = s.ChoiceField(CATEGORIES)
    delay_tolerance_s = s.FloatField()
    price = PriceOut()
    predicted_start = PredictedStart(allow_null=True)


class LimitsLeft(s.Serializer[Any]):
    """What your plan would still allow after the submission."""

    submissions_now = s.IntegerField()
    waiting = s.IntegerField()
    in_flight = s.IntegerField()


class Quote(s.Serializer[Any]):
    """What a submission would do. Nothing of it was stored."""

    created = s.BooleanField(help_text="False: its id or key was used before, and it would get the first answer.")
    tasks = s.IntegerField()
    price = PriceOut()
    items = QuoteItem(many=True, help_text="The first hundred kinds of tasks.")
    predicted_start = PredictedStart(allow_null=True, help_text="Of the task that starts first.")
    patience = Patience(many=True, help_text="Other categories and tolerances that your plan allows.")
    limits_left = LimitsLeft()
    as_of = s.DateTimeField()
