"""Handlers: what may be called, with which arguments; a task of one by its arguments alone; the tenant's own document."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.body import read_any_object
from slackwater_api.http.endpoint import READ, SUBMIT, ApiView
from slackwater_api.http.once import idempotency_key
from slackwater_api.http.openapi import EXAMPLE_ID, SUBMISSION, answer_example, describe, request_example
from slackwater_api.http.tenant_document import tenant_document
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.explain import Quote
from slackwater_api.v1.shapes.handlers import Document, HandlerOut
from slackwater_api.v1.shapes.tasks import Submitted
from slackwater_api.v1.views.tasks import submitted
from slackwater_tasks.field_kinds import MAX_SECONDS, Choice, Field, Flag, Moment, Seconds, Text, Whole
from slackwater_tasks.read import handlers
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.spec import FIELDS
from slackwater_tasks.submission import service

NOT_HERE = {"handler", "script", "script_path", "idempotency_key"}
PLAIN = (Choice, Flag, Moment, Seconds, Text, Whole)
OPTIONS: dict[str, Field] = {
    name: field for name, field in FIELDS.items() if name not in NOT_HERE and isinstance(field.kind, PLAIN)
}
"""The fields of a task that can stand in the query, beside its arguments in the body."""


def _schema(field: Field) -> dict[str, Any]:
    kind = field.kind
    if isinstance(kind, Choice):
        return {"type": "string", "enum": list(kind.words)}
    if isinstance(kind, Whole):
        return {"type": "integer", "minimum": kind.low, "maximum": kind.high}
    if isinstance(kind, Text):
        least = {} if kind.empty else {"minLength": 1}
        return {"type": "string", "maxLength": kind.longest, "pattern": f"^{kind.pattern}$", **least}
    if isinstance(kind, Moment):
        return {"type": "string", "format": "date-time"}
    if isinstance(kind, Seconds):
        return {"type": "number", "minimum": kind.LEAST if kind.positive else 0, "maximum": MAX_SECONDS}
    return {"type": "boolean"}


IN_QUERY = [OpenApiParameter(name, _schema(field), description=field.help) for name, field in OPTIONS.items()]


def _value(field: Field, text: str) -> Any:
    """What a query says of a field; text that is not of its kind stays text, which the field refuses."""
    try:
        if isinstance(field.kind, Flag):
            return {"true": True, "false": False}.get(text, text)
        if isinstance(field.kind, Seconds):
            return float(text)
        return int(text) if isinstance(field.kind, Whole) else text
    except ValueError:
        return text


class Handlers(ApiView, path="handlers", tag="handlers"):
    @describe("list_handlers", "List the handlers your plan grants", READ, {200: listing(HandlerOut)})
    def get(self, request: Request) -> Response:
        """By name, with the schema of their arguments."""
        return Response({"items": handlers.handlers(self.tenant)})


class OneHandler(ApiView, path="handlers/<str:handler_name>", tag="handlers"):
    @describe("get_handler", "Get a handler", READ, {200: HandlerOut})
    def get(self, request: Request, handler_name: str) -> Response:
        """What it takes, what it is, how long it usually runs for you."""
        return Response(handlers.handler(self.tenant, handler_name))


class CallHandler(ApiView, path="handlers/<str:handler_name>/tasks", tag="handlers"):
    @describe(
        "call_handler",
        "Submit a task of a handler by its arguments",
        SUBMIT,
        {201: Submitted, 200: Submitted},
        *IN_QUERY,
        *SUBMISSION,
        problems=(409, 429),
        body=OpenApiTypes.OBJECT,
        examples=[
            request_example("arguments", {"to": "a@example.org"}),
            answer_example("stored", {"id": EXAMPLE_ID, "task_ids": [EXAMPLE_ID], "created": True}, 201),
        ],
        quote=Quote,
    )
    def post(self, request: Request, handler_name: str) -> Response:
        """The body is the arguments by name; the other fields of the task stand in the query."""
        kwargs = read_any_object(request._request)
        handlers.handler(self.tenant, handler_name)
        asked = request.query_params.items()
        given = {name: _value(OPTIONS[name], str(text)) for name, text in asked if name in OPTIONS}
        data = {**given, "handler": handler_name, "kwargs": kwargs}
        trace = trace_context.of_request(request.META)
        try:
            one = service.submit(
                self.tenant, data, actor=self.actor, idempotency_key=idempotency_key(request), trace=trace
            )
        except InvalidInput as error:
            if error.field:  # the body is the arguments
                error.field = error.field.removeprefix("kwargs.")
            raise
        status, body, headers = submitted(one)
        return Response(body, status=status, headers=headers)


class OwnDocument(ApiView, path="openapi.json", tag="handlers"):
    @describe("get_document", "Get the OpenAPI document with your handlers", READ, {200: Document})
    def get(self, request: Request) -> Response:
        """The document of ``/api/schema/`` and an operation for each handler that your plan grants."""
        return Response(tenant_document(handlers.handlers(self.tenant)))
