"""Shapes of handlers, and of the OpenAPI document of a tenant."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from scheduler_ext.core.types import WorkKind
from slackwater_api.v1.shapes.common import Anything

WORK_KINDS = [kind.value for kind in WorkKind if kind is not WorkKind.SCRIPT]


class HandlerOut(s.Serializer[Any]):
    """A handler that your plan grants."""

    name = s.CharField()
    description = s.CharField(allow_null=True, help_text="The first paragraph of its docstring.")
    kind = s.ChoiceField(WORK_KINDS, help_text="The sort of slot it needs.")
    idempotent = s.BooleanField(help_text="It may be run twice without harm.")
    checkpoints = s.BooleanField(help_text="It saves checkpoints, and yields when it is asked to.")
    paused = s.BooleanField()
    available = s.BooleanField(help_text="A node that is at work runs it.")
    schema = Anything(help_text="JSON Schema of its arguments by name; null: its workers say nothing of them.")
    tier = s.CharField(help_text="What a task gets that names no tier.")
    tiers = s.ListField(child=s.CharField(), help_text="Those that your plan lets a task name.")
    max_execution_cap_s = s.IntegerField(help_text="The longest cap that your plan allows.")
    usual_run_s = s.FloatField(allow_null=True, help_text="The mean of your runs, the latest most; null: none yet.")
    median_run_s = s.FloatField(allow_null=True, help_text="What half of your runs do not exceed, within 5 %.")
    long_run_s = s.FloatField(allow_null=True, help_text="What nine in ten of your runs do not exceed, within 5 %.")
    runs = s.IntegerField(help_text="How many runs of yours it was learnt from.")


class Document(s.Serializer[Any]):
    """An OpenAPI document."""

    openapi = s.CharField()
    info = s.DictField(child=Anything())
    servers = s.ListField(child=Anything(), required=False)
    tags = s.ListField(child=Anything(), required=False)
    paths = s.DictField(child=Anything())
    components = s.DictField(child=Anything())
