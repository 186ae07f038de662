"""How live streams begin: whether one may be opened, what the client has missed, and the present state.

A view returns a complete response. The ASGI application keeps it open and continues it; any other server ends it, and the
client comes back with ``Last-Event-ID``, as event sources do.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import redis
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import FINAL
from scheduler_ext.dispatch import change_feed, redis_client
from slackwater_api.http.blotting import blotted
from slackwater_api.http.endpoint import READ, SUBMIT
from slackwater_api.http.openapi import describe
from slackwater_api.live.change_feed import Batch, Place, confirmed, place_of, read_batch
from slackwater_api.live.event_streams import RETRY, Opening, changes_for, event, gap
from slackwater_api.v1.views.tickets import TicketedView
from slackwater_conf import conf
from slackwater_tasks.field_kinds import utc_text
from slackwater_tasks.ledger.hints import keys
from slackwater_tasks.read import history, tasks, workflows

EVENT_STREAM: Final = "text/event-stream"
LAST: Final = re.compile(r"(\d{1,15})-(\d{1,15})(?:\.(\d{1,6}))?")
ENDED = frozenset(state.name.lower() for state in FINAL)
LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID",
    str,
    OpenApiParameter.HEADER,
    description="The id of the last event you have: the stream goes on after it. Event sources send it by themselves.",
)
TICKET = OpenApiParameter("ticket", str, description="In place of a key: POST /stream-tickets gives it.")
RESUME = OpenApiParameter("last_event_id", str, description="The same, where no header can be set.")


class StreamResponse(HttpResponse):
    """A stream's beginning; the ASGI application continues it from ``opening``."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(RETRY + opening.first, content_type=EVENT_STREAM)
        self.opening = opening
        self["X-Accel-Buffering"] = "no"


def _client() -> redis.Redis:
    return redis_client.connect(conf().redis_url, socket_timeout=1.0, socket_connect_timeout=0.5)


def _last_heard(request: Request) -> tuple[Place, int] | None:
    query = request.query_params
    text = request.META.get("HTTP_LAST_EVENT_ID") or query.get("last_event_id")
    if not text:
        return None
    found = LAST.fullmatch(text)
    if found is None or not text.isascii():
        raise InvalidInput("is not an id of ours", field="Last-Event-ID")
    return (int(found[1]), int(found[2])), int(found[3] or 999_999)


def _feed_after(last: tuple[Place, int] | None) -> tuple[Place | None, list[Batch] | None]:
    """Where the feed ends, and its batches since ``last``: ``None`` where it no longer reaches back so far."""
    name = keys().changes()
    try:
        with _client() as client:
            newest: Any = client.xrevrange(name, count=1)
            # An empty feed gets a first entry: without one, "nothing yet" and "all forgotten" would look the same.
            end = place_of(newest[0][0] if newest else change_feed.add(client, keys(), []))
            if last is None:
                return end, []
            oldest: Any = client.xrange(name, count=1)
            if not oldest or place_of(oldest[0][0]) > last[0]:
                return end, None
            rows: Any = client.xrange(name, f"{last[0][0]}-{last[0][1]}", count=change_feed.KEPT * 2)
    except (redis.RedisError, OSError):
        return None, None if last is not None else []
    reader = change_feed.Reader()
    batches = [read_batch(reader, entry_id, fields) for entry_id, fields in rows]
    batches = [batch if batch.proven else confirmed(batch) for batch in batches]
    return (batches[-1].place if batches else end), batches


class _StreamView(TicketedView):
    """The common part of the three streams."""

    def open(self, request: Request, **subject: Any) -> HttpResponse:
        """The stream's beginning: what was missed, or how things stand."""
        last = _last_heard(request)
        # Asked before the ledger: a change after this place comes with the stream, one before is in what is read.
        place, missed = _feed_after(last)
        opening = Opening(tenant_id=self.tenant.pk, place=place, blots=self.blots, **subject)
        event_id = f"{place[0]}-{place[1]}.999999" if place is not None else ""
        if last is None:
            first, ended = self.standing(event_id, **subject)
        elif missed is None:
            first, ended = self.standing(event_id, **subject)
            first = gap(since=f"{last[0][0]}-{last[0][1]}") + self.past(last[0], **subject) + first
        else:
            found = changes_for(opening.key, missed, last, blots=self.blots)
            first, ended = b"".join(text for text, _ in found), any(final for _, final in found)
            if not found and self.is_over(**subject):
                return HttpResponse(status=204)  # tells an event source not to come back
        return StreamResponse(replace(opening, first=first, ended=ended))

    @property
    def blots(self) -> bool:
        """Whether its key only reads: what looks like a secret is left out then, as in every answer."""
        return not self.principal.may(SUBMIT)

    def told(self, kind: str, data: dict[str, Any], event_id: str = "") -> bytes:
        """One event of what the ledger has."""
        shown = {name: utc_text(value) if isinstance(value, datetime) else value for name, value in data.items()}
        return event(kind, blotted(shown) if self.blots else shown, event_id)

    def standing(self, event_id: str, **subject: Any) -> tuple[bytes, bool]:
        """The present state as an event, and whether it is the last."""
        return event("open", {}, event_id), False

    def past(self, since: Place, **subject: Any) -> bytes:
        """The changes since ``since``, from the ledger: the feed no longer reaches back so far."""
        return b""

    def is_over(self, **subject: Any) -> bool:
        """Whether nothing more is to come."""
        return False


class TaskEvents(_StreamView, path="tasks/<uuid:task_id>/events", tag="streams"):
    @describe(
        "stream_task",
        "Follow a task live",
        READ,
        {200: OpenApiTypes.STR, 204: None},
        LAST_EVENT_ID,
        RESUME,
        TICKET,
        media=EVENT_STREAM,
    )
    def get(self, request: Request, task_id: UUID) -> HttpResponse:
        """Server-sent events: its state now, then each change, until it has ended."""
        tasks.require_task(task_id)
        return self.open(request, task_id=task_id)

    def standing(self, event_id: str, **subject: Any) -> tuple[bytes, bool]:
        row = tasks.task(subject["task_id"])
        since = row["finished_at"] or (row["started_at"] if row["state"] == "running" else None)
        data = {
            "task_id": row["id"], "workflow_id": row["workflow_id"], "state": row["state"], "status": row["status"],
            "at": since or history.history(row["id"])[-1]["at"],
        }  # fmt: skip
        if row["progress"] is not None:
            data["progress"] = row["progress"]
        return self.told("task", data, event_id), row["state"] in ENDED

    def past(self, since: Place, **subject: Any) -> bytes:
        moment = datetime.fromtimestamp(min(since[0] / 1000, 32_503_680_000), UTC)
        entries = [entry for entry in history.history(subject["task_id"]) if entry["at"] > moment]
        return b"".join(
            self.told("task", {
                "task_id": subject["task_id"], "state": entry["to"], "reason": entry["reason"], "at": entry["at"],
            }) for entry in entries
        )  # fmt: skip

    def is_over(self, **subject: Any) -> bool:
        return bool(tasks.finished_ids([subject["task_id"]]))


class WorkflowEvents(_StreamView, path="workflows/<uuid:workflow_id>/events", tag="streams"):
    @describe(
        "stream_workflow",
        "Follow the tasks of a workflow live",
        READ,
        {200: OpenApiTypes.STR, 204: None},
        LAST_EVENT_ID,
        RESUME,
        TICKET,
        media=EVENT_STREAM,
    )
    def get(self, request: Request, workflow_id: UUID) -> HttpResponse:
        """Server-sent events: its counts now, then each change of one of its tasks, and at last its own end."""
        workflows.find(workflow_id)
        return self.open(request, workflow_id=workflow_id)

    def standing(self, event_id: str, **subject: Any) -> tuple[bytes, bool]:
        row = workflows.workflow(subject["workflow_id"])
        return self.told("workflow", row, event_id), row["finished_at"] is not None

    def is_over(self, **subject: Any) -> bool:
        return bool(workflows.ended_ids([subject["workflow_id"]]))


class TenantEvents(_StreamView, path="events", tag="streams"):
    @describe(
        "stream_events",
        "Follow all your tasks live",
        READ,
        {200: OpenApiTypes.STR},
        LAST_EVENT_ID,
        RESUME,
        TICKET,
        media=EVENT_STREAM,
    )
    def get(self, request: Request) -> HttpResponse:
        """Server-sent events: each change of state of one of the tenant's tasks."""
        return self.open(request)
