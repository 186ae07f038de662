"""Shapes of stream tickets."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

KINDS = ["events", "logs", "chunks"]


class TicketIn(s.Serializer[Any]):
    """The stream that a ticket shall open; without an id: all of your tasks."""

    task_id = s.UUIDField(required=False, allow_null=True)
    workflow_id = s.UUIDField(required=False, allow_null=True, help_text="This or task_id, not both.")
    follow = s.ChoiceField(KINDS, required=False, default="events", help_text="logs, chunks: of a task.")
    expires_in_s = s.IntegerField(
        required=False, min_value=1, max_value=300, default=60, help_text="Until when it can be used."
    )


class TicketOut(s.Serializer[Any]):
    """A ticket; it is shown this once."""

    ticket = s.CharField()
    url = s.CharField(help_text="The stream's address with the ticket in it, for an EventSource.")
    expires_at = s.DateTimeField()
