"""Tickets for live streams: what a page gets in place of the key."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import DoesNotFit, InvalidInput
from slackwater_api.http.auth import TicketOrKey
from slackwater_api.http.body import read_object
from slackwater_api.http.endpoint import READ, ApiView, created
from slackwater_api.http.openapi import describe, request_example
from slackwater_api.v1.shapes.tickets import KINDS, TicketIn, TicketOut
from slackwater_tasks.field_kinds import Whole
from slackwater_tasks.read import tasks, workflows
from slackwater_tenants import tickets

USUAL_S: Final = 60
SECONDS = Whole(1, 300)
PLACES: Final = {"events": "events", "logs": "logs/events", "chunks": "chunks/events"}


class StreamTickets(ApiView, path="stream-tickets", tag="streams"):
    @describe(
        "create_stream_ticket",
        "Get a ticket with which a page may open a stream",
        READ,
        {201: TicketOut},
        problems=(404, 409),
        body=TicketIn,
        examples=[request_example("all tasks, soon", {"expires_in_s": 30})],
    )
    def post(self, request: Request) -> Response:
        """It opens one stream once, within seconds, and is worth nothing else: give a page its ``url``, never the key."""
        data = read_object(request._request, *TicketIn._declared_fields)
        seconds = SECONDS.check(data.get("expires_in_s", USUAL_S), "expires_in_s")
        path = f"/api/v1/{_place(data)}"
        text, expires_at = tickets.issue(self.principal.key, path, seconds)
        url = f"{path}?{urlencode({'ticket': text})}"
        return created({"ticket": text, "url": url, "expires_at": expires_at}, path)


def _place(data: dict[str, Any]) -> str:
    """The stream that is asked for; it must be there."""
    follow, task_id, workflow_id = data.get("follow", "events"), _id(data, "task_id"), _id(data, "workflow_id")
    if follow not in KINDS:
        raise InvalidInput(f"must be one of {', '.join(KINDS)}", field="follow")
    if task_id is not None and workflow_id is not None:
        raise DoesNotFit("give task_id or workflow_id, not both", field="workflow_id")
    if follow != "events" and task_id is None:
        raise DoesNotFit("must be given: only tasks write", field="task_id")
    if task_id is not None:
        tasks.require_task(task_id)
        return f"tasks/{task_id}/{PLACES[follow]}"
    if workflow_id is not None:
        workflows.find(workflow_id)
        return f"workflows/{workflow_id}/events"
    return "events"


def _id(data: dict[str, Any], name: str) -> UUID | None:
    if data.get(name) is None:
        return None
    try:
        return UUID(data[name] if isinstance(data[name], str) else "")
    except ValueError:
        raise InvalidInput("must be an id", field=name) from None


class TicketedView(ApiView):
    """A live stream: a ticket opens it in place of a key."""

    authentication_classes = [TicketOrKey]

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """The answer, which says whose ticket opened it: the stream ends with that key."""
        found = super().finalize_response(request, response, *args, **kwargs)
        vars(found)["ticketed"] = vars(request).get("_auth") if "ticket" in request.query_params else None
        return found
