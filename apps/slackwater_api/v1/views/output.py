"""What tasks wrote and yielded: read, followed live, searched."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.endpoint import READ, ApiView
from slackwater_api.http.openapi import describe
from slackwater_api.http.pagination import PAGING, asked_page, decode, encode
from slackwater_api.live.tails import TailOpening, written
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.tasks import ChunkOut, LogLine
from slackwater_api.v1.views.streams import EVENT_STREAM, LAST_EVENT_ID, RESUME, TICKET
from slackwater_api.v1.views.tickets import TicketedView
from slackwater_tasks.read import output, tasks
from slackwater_tasks.read.output import START, Place, Tail

STREAM: Final = OpenApiParameter("stream", str, enum=output.STREAMS, description="Only what came on it.")
LEVEL: Final = OpenApiParameter("level", str, enum=output.LEVELS, description="Only lines of it, and of worse ones.")
FENCE: Final = OpenApiParameter(
    "fence", {"type": "integer", "minimum": 0, "maximum": 999_999_999}, description="Only of the attempt with it."
)
TEXT: Final = OpenApiParameter("text", str, description="Only lines that hold it, in capitals or not.")
FIRST: Final = 500
"""Lines that a stream begins with where the server keeps none open."""


def _one_of(request: Request, name: str, known: tuple[str, ...]) -> str:
    value = str(request.query_params.get(name, ""))
    if name in request.query_params and value not in known:
        raise InvalidInput(f"must be one of {', '.join(known)}", field=name)
    return value


def _page(items: list[dict[str, Any]], limit: int) -> Response:
    return Response({"items": items, "next_cursor": items[-1]["place"] if len(items) == limit else None})


class TaskLogs(ApiView, path="tasks/<uuid:task_id>/logs", tag="tasks"):
    @describe(
        "get_task_logs", "Get what a task printed and logged", READ, {200: listing(LogLine)},
        *PAGING, FENCE, STREAM, LEVEL, TEXT,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Its lines in the order in which they came, over all attempts. ``?follow`` goes on while it runs."""
        limit, cursor = asked_page(request.query_params)
        fence = request.query_params.get("fence")
        if fence is not None and not (fence.isascii() and fence.isdigit() and len(fence) < 10):
            raise InvalidInput("must be a whole number", field="fence")
        tasks.require_task(task_id)
        items = output.lines(
            task_id, after=Place.read(cursor, "cursor") if cursor else START, limit=limit,
            stream=_one_of(request, "stream", output.STREAMS), level=_one_of(request, "level", output.LEVELS),
            fence=int(fence) if fence is not None else None, text=request.query_params.get("text", ""),
        )  # fmt: skip
        return _page(items, limit)


class TaskChunks(ApiView, path="tasks/<uuid:task_id>/chunks", tag="tasks"):
    @describe("get_task_chunks", "Get what a task yielded", READ, {200: listing(ChunkOut)}, *PAGING)
    def get(self, request: Request, task_id: UUID) -> Response:
        """Its result stream, in order. ``?follow`` goes on while it runs."""
        limit, cursor = asked_page(request.query_params)
        tasks.require_task(task_id)
        return _page(
            output.chunks(task_id, after=Place.read(cursor, "cursor") if cursor else START, limit=limit), limit
        )


class _FollowView(TicketedView):
    """The common part of the two that go on while a task runs."""

    chunks = False

    def open(self, request: Request, task_id: UUID, **wanted: str) -> HttpResponse:
        """What is there already; an ASGI server keeps the answer open and goes on."""
        text = request.META.get("HTTP_LAST_EVENT_ID") or request.query_params.get("last_event_id")
        place = Place.read(text, "Last-Event-ID") if text else START
        tasks.require_task(task_id)
        opening = TailOpening(tail=Tail(task_id, place, self.chunks), **wanted)
        read = output.chunks if self.chunks else output.lines
        items, over = read(task_id, after=place, limit=FIRST), bool(tasks.finished_ids([task_id]))
        if text and over and not items:
            return HttpResponse(status=204)  # tells an event source not to come back
        response = HttpResponse(written(opening, items, ended=over and len(items) < FIRST), content_type=EVENT_STREAM)
        vars(response)["tail"] = opening
        response["X-Accel-Buffering"] = "no"
        return response


class FollowLogs(_FollowView, path="tasks/<uuid:task_id>/logs/events", tag="streams"):
    @describe(
        "stream_task_logs", "Follow what a task prints and logs", READ, {200: OpenApiTypes.STR, 204: None},
        LAST_EVENT_ID, RESUME, TICKET, STREAM, LEVEL, media=EVENT_STREAM,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> HttpResponse:
        """Server-sent events: each line, from the first or the last that you have, until the task has ended."""
        return self.open(
            request, task_id, stream=_one_of(request, "stream", output.STREAMS),
            level=_one_of(request, "level", output.LEVELS),
        )  # fmt: skip


class FollowChunks(_FollowView, path="tasks/<uuid:task_id>/chunks/events", tag="streams"):
    chunks = True

    @describe(
        "stream_task_chunks", "Follow what a task yields", READ, {200: OpenApiTypes.STR, 204: None},
        LAST_EVENT_ID, RESUME, TICKET, media=EVENT_STREAM,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> HttpResponse:
        """Server-sent events: each chunk, from the first or the last that you have, until the task has ended."""
        return self.open(request, task_id)


class SearchLogs(ApiView, path="logs", tag="tasks"):
    @describe(
        "search_logs", "Search what tasks printed and logged", READ, {200: listing(LogLine)}, *PAGING,
        TEXT,
        OpenApiParameter("workflow_id", OpenApiTypes.UUID, description="Of this workflow's tasks."),
        OpenApiParameter("handler", str, description="Of this handler's tasks."),
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """The newest tasks first. A page may hold few lines, or none, and not be the last."""
        query = request.query_params
        limit, cursor = asked_page(query)
        before = decode(cursor, UUID)[0] if cursor else None
        text, handler, workflow_id = query.get("text", ""), query.get("handler", ""), None
        if "workflow_id" in query:
            try:
                workflow_id = UUID(query["workflow_id"])
            except ValueError:
                raise InvalidInput("must be the id of a workflow", field="workflow_id") from None
        items, last = output.search(text, workflow_id=workflow_id, handler=handler, before=before, limit=limit)
        return Response({"items": items, "next_cursor": encode(str(last)) if last else None})
