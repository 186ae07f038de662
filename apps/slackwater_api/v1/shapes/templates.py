"""Shapes of workflow templates."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from scheduler_ext.core.plain_text import STEERING
from slackwater_api.v1.shapes.common import Anything, line


class TemplateIn(s.Serializer[Any]):
    """A version of a template."""

    name = line(100, pattern=rf"[^/{STEERING}]*", help_text="Another content under a name is its next version.")
    description = line(500, 0, required=False, allow_null=True)
    parameters = s.DictField(
        child=Anything(), required=False, help_text="JSON Schema of the object of parameters, with their defaults."
    )
    workflow = s.DictField(
        child=Anything(), help_text='name, tags, metadata, tasks. {"$param": NAME} stands for a parameter, anywhere.'
    )


class TemplateUse(s.Serializer[Any]):
    """What of a template is submitted, and with which parameters."""

    version = s.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=2**31 - 1, help_text="Not given: the latest."
    )
    parameters = s.DictField(child=Anything(), required=False, allow_null=True)
    name = line(200, 0, required=False, allow_null=True, help_text="Instead of the template's.")
    tags = s.ListField(child=line(63), max_length=32, required=False, allow_null=True)
    metadata = s.DictField(child=Anything(), required=False, allow_null=True)


class TemplateSummary(s.Serializer[Any]):
    """A template as lists show it."""

    name = s.CharField()
    version = s.IntegerField()
    description = s.CharField(allow_null=True)
    created_at = s.DateTimeField()
    created_by = s.CharField(allow_null=True)


class TemplateOut(TemplateSummary):
    """A version of a template."""

    parameters = s.DictField(child=Anything())
    workflow = s.DictField(child=Anything())
