"""How endpoints are described in OpenAPI: one decorator that adds the problems each can answer with, and examples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers as s

from slackwater_api.http.operation import PARTIAL, QUOTE, Deprecated, Operation, names_of
from slackwater_api.http.pagination import PAGING
from slackwater_api.http.problems import PROBLEM_TYPE, STATUS, problem_body

View = TypeVar("View", bound=Callable[..., Any])


class PatchStep(s.Serializer[Any]):
    """A step of a JSON Patch (RFC 6902): the value at ``from`` belongs at ``path``, or ``value`` does."""

    op = s.ChoiceField(["move", "replace"])
    path = s.CharField()
    value = s.CharField(required=False)

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        """``from`` is no name Python allows for a class attribute."""
        return {**super().get_fields(), "from": s.CharField(required=False)}


class Fault(s.Serializer[Any]):
    """One fault of the input."""

    code = s.CharField()
    detail = s.CharField()
    field = s.CharField(required=False)
    pointer = s.CharField(required=False, help_text="The field as a JSON Pointer (RFC 6901), where it is in the body.")
    suggestion = PatchStep(many=True, required=False)


class ProblemOut(s.Serializer[Any]):
    """An error (RFC 9457). ``code`` is stable; ``field`` is the path of the input at fault."""

    type = s.CharField()
    title = s.CharField()
    status = s.IntegerField()
    detail = s.CharField()
    code = s.CharField()
    request_id = s.CharField()
    field = s.CharField(required=False)
    suggestion = PatchStep(many=True, required=False, help_text="What would mend it, as JSON Patch (RFC 6902).")
    retry_after_s = s.IntegerField(required=False, help_text="Of 429 and 503: as the header Retry-After.")

    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        """``errors`` is an attribute of every shape."""
        faults = Fault(many=True, required=False, help_text="Of a 422: every fault that was found, this one first.")
        return {**super().get_fields(), "errors": faults}


ALWAYS = (401, 403, 422, 503)
NO_BODY = "no body"
REQUEST_ID = OpenApiParameter(
    "X-Request-Id", str, OpenApiParameter.HEADER, description="Your own id of this request; it comes back."
)
TAG = r'(W/)?"[!#-~]*"'
TAGS = {
    "type": "string",
    "maxLength": 4_000,
    "allOf": [{"anyOf": [{"enum": ["*"]}, {"pattern": rf"^{TAG}( *, *{TAG})*$"}]}],
}
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[!-~]([ -~]{0,198}[!-~])?$"},
    OpenApiParameter.HEADER,
    description="A word of your choice, at most 200 letters: a repeat with the same key and body within a day does nothing, and "
    "returns the first answer with Idempotency-Replayed: true; with another body it is a 422.",
)
DRY_RUN = OpenApiParameter(
    "dry_run",
    bool,
    description="`true`: validate, price and forecast it all, and store nothing: the answer is 200 with a quote.",
)
SUBMISSION = [
    IDEMPOTENCY_KEY,
    OpenApiParameter(
        "traceparent",
        str,
        OpenApiParameter.HEADER,
        description="W3C trace context: where the platform has a collector, the spans of the tasks join this trace.",
    ),
    OpenApiParameter("tracestate", str, OpenApiParameter.HEADER, description="Goes with traceparent."),
]
"""The headers of every submission."""
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    TAGS,
    OpenApiParameter.HEADER,
    description="The ETag of what you have: 304 without a body while nothing has changed.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    TAGS,
    OpenApiParameter.HEADER,
    description="The ETag of what you have read, in whole: 412 where it has changed since.",
)
IN_PATH = {
    name: OpenApiParameter(name, kind, OpenApiParameter.PATH, description=description, pattern=pattern)
    for name, kind, description, pattern in (
        ("task_id", OpenApiTypes.UUID, "The id of the task.", None),
        ("workflow_id", OpenApiTypes.UUID, "The id of the workflow.", None),
        ("schedule_id", OpenApiTypes.UUID, "The id of the schedule.", None),
        ("webhook_id", OpenApiTypes.UUID, "The id of the webhook.", None),
        ("delivery_id", OpenApiTypes.UUID, "The id of the delivery.", None),
        ("node_id", OpenApiTypes.UUID, "The id of the node.", None),
        ("member_id", OpenApiTypes.UUID, "The id of the member.", None),
        ("key_id", str, "The id of the key.", None),
        ("rate_id", OpenApiTypes.UUID, "The id of the execution rate.", None),
        ("team_slug", str, "The team's slug.", None),
        ("tier_name", str, "The tier's name.", None),
        ("category", str, "The line's category.", None),
        ("secret_name", str, "The secret's name.", None),
        ("upload_id", OpenApiTypes.UUID, "The id of the upload.", None),
        ("artifact_name", str, "The file's name, a relative path.", None),
        ("sha256", str, "The SHA-256 of the script.", "^[0-9a-f]{64}$"),
        ("template_name", str, "The template's name.", None),
        ("handler_name", str, "The handler's name.", None),
    )
}
"""Every parameter that stands in an address, by its name: a view takes them by these names."""
OWN_ID = OpenApiParameter(
    "task_id",
    {
        "type": "string",
        "format": "uuid",
        "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$",
    },
    OpenApiParameter.PATH,
    description="A UUID of version 7, made within the last day.",
)
ANSWERS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "v1" / "examples.json").read_text())
"""An example answer for each operation, taken from a running platform; a test compares each with its shape."""
EXAMPLE_ID = "0198c9a0-5a3e-7c62-9b1e-2f4f1c0f6a11"
EXAMPLE_REQUEST = "0198c9a0-6b2f-7d11-8a3c-9f0e1d2c3b4a"

DETAILS = {
    "malformed_body": "The body is not valid JSON: Expecting value at line 1, column 9.",
    "not_authenticated": "Send your API key in the header: Authorization: Bearer KEY",
    "not_permitted": "This key lacks the scope 'submit'.",
    "not_found": f"There is no task {EXAMPLE_ID}.",
    "conflict": "the task has ended already: succeeded",
    "precondition_failed": "It has changed since; read it again.",
    "too_large": "the payload has 300000 bytes; the plan allows 262144",
    "unsupported_media_type": "The body must be application/json.",
    "invalid_input": "must be from 0 to 1000",
    "limit_exceeded": "Limit exceeded",
    "unavailable": "The database does not answer; try again.",
}
FIELDS = {"too_large": "args", "invalid_input": "priority"}


def problem_example(code: str) -> OpenApiExample:
    """An example of a problem with this code."""
    status, body = STATUS[code][0], problem_body(code, DETAILS[code], EXAMPLE_REQUEST)
    if code in FIELDS:
        body["field"] = FIELDS[code]
    return OpenApiExample(code, value=body, media_type=PROBLEM_TYPE, status_codes=[str(status)], response_only=True)


def _problems(statuses: Sequence[int]) -> dict[Any, Any]:
    found = {}
    for status in statuses:
        codes = [code for code, (number, _) in STATUS.items() if number == status]
        found[status, PROBLEM_TYPE] = OpenApiResponse(ProblemOut, description=f"Problem: {', '.join(codes)}.")
    return found


def _fields(known: frozenset[str], *, is_list: bool) -> OpenApiParameter:
    some = ",".join(sorted(known & {"id", "name", "state", "at"}) or sorted(known)[:2])
    where = "of each item" if is_list else "of the answer"
    return OpenApiParameter(
        "fields",
        {"type": "string", "pattern": f"^({'|'.join(sorted(known))})(,({'|'.join(sorted(known))}))*$"},
        description=f"Only these fields {where}, by comma: {some}. The answer is then {PARTIAL}.",
    )


def _sort(known: frozenset[str]) -> OpenApiParameter:
    words = [sign + name for name in sorted(known) for sign in ("", "-")]
    text = "One field; with - before it descending. What has none comes last."
    return OpenApiParameter("sort", {"type": "string", "enum": words}, description=text)


def _reading(answer: Any, given: Sequence[OpenApiParameter], scope: str) -> tuple[Operation, list[OpenApiParameter]]:
    """The parameters of every GET: fields, sort for a list, ETags."""
    fields, plain, is_list = names_of(answer)
    parameters = [*given, IF_NONE_MATCH]
    paged = any(p.name == "cursor" for p in given)
    here = plain if is_list and not paged else frozenset()
    if here:
        parameters += [_sort(here), *PAGING]
    if fields:
        parameters.append(_fields(fields, is_list=is_list))
    return Operation(
        query=_query(parameters), scope=scope, fields=fields, is_list=is_list, sorted_here=here
    ), parameters


def _query(parameters: Sequence[OpenApiParameter]) -> frozenset[str]:
    return frozenset(p.name for p in parameters if p.location == OpenApiParameter.QUERY)


def describe(
    operation_id: str,
    summary: str,
    scope: str,
    answers: Mapping[int, Any],
    *parameters: OpenApiParameter,
    body: Any = None,
    problems: Sequence[int] = (),
    examples: Sequence[OpenApiExample] = (),
    media: str = "application/json",
    takes: str = "application/json",
    conditional: bool = False,
    quote: Any = None,
    deprecated: Deprecated | None = None,
) -> Callable[[View], View]:
    """Describe a method of an endpoint; the scope is checked, and unknown parameters are refused, as described.

    The parameters of its address are those that the method takes. ``problems``: statuses besides those that every
    endpoint has, every address with parameters and every body. ``body``: a shape;
    ``NO_BODY`` for nothing or ``{}``. ``media``, ``takes``: the types of answer and body. ``conditional``: a change that heeds
    ``If-Match``. ``quote``: the shape of what ``dry_run`` answers. ``deprecated``: it is to go, as its
    answers tell. What answers 200 with a shape to a GET gets an ETag, and takes ``fields`` and, where it is a list, ``sort``.
    """
    shape = answers.get(200)
    reads = body is None and set(answers) == {200} and media == "application/json" and names_of(shape)[0]

    def decorate(view: View) -> View:
        replies: dict[Any, Any] = {(code, media): found for code, found in answers.items()}
        names = list(signature(view).parameters)[2:]  # after ``self`` and ``request``
        shown = list({each.name: each for each in (*(IN_PATH[name] for name in names), *parameters)}.values())
        statuses = {*ALWAYS, *problems}
        if names:
            statuses.add(404)
        if body is not None:
            statuses |= {400, 413, 415}
        if conditional:
            shown.append(IF_MATCH)
            statuses.add(412)
        if quote is not None:
            shown.append(DRY_RUN)
        keeps = view.__name__ not in {"get", "put"} and IDEMPOTENCY_KEY not in shown
        if keeps:
            shown.append(IDEMPOTENCY_KEY)
        operation = Operation(
            query=_query(shown),
            scope=scope,
            keeps_answer=keeps,
            takes_nothing=body is NO_BODY,
            quotes=quote is not None,
        )
        if reads and view.__name__ == "get":
            operation, shown = _reading(shape, shown, scope)
            replies[200, PARTIAL] = OpenApiResponse(OpenApiTypes.OBJECT, description="With `fields`: a part.")
            replies[304] = OpenApiResponse(description="Nothing has changed since `If-None-Match`.")
        if quote is not None:
            replies[200, QUOTE] = OpenApiResponse(quote, description="With `dry_run`: a quote; nothing was stored.")
        operation = replace(operation, deprecated=deprecated)
        problem_examples = [problem_example(code) for code in DETAILS if STATUS[code][0] in statuses]
        described: View = extend_schema(
            operation_id=operation_id,
            summary=summary,
            description="Needs any scope." if scope == "any" else f"Needs the scope `{scope}`.",
            request=None if body in (None, NO_BODY) else {takes: body},
            responses={**replies, **_problems(sorted(statuses))},
            parameters=[*shown, REQUEST_ID],
            deprecated=deprecated is not None,
            examples=[*examples, *_answered(operation_id, media), *problem_examples],
        )(view)
        vars(described)["operation"] = operation
        return described

    return decorate


def _answered(operation_id: str, media: str) -> list[OpenApiExample]:
    """The example answer of an operation, if there is one."""
    found = ANSWERS.get(operation_id)
    if found is None:
        return []
    status, value = found["status"], found["value"]
    example = OpenApiExample("answer", value=value, response_only=True, status_codes=[str(status)], media_type=media)
    return [example]


def request_example(name: str, value: Any, summary: str = "") -> OpenApiExample:
    """A body as a client may send it."""
    return OpenApiExample(name, value=value, summary=summary or name, request_only=True)


def answer_example(name: str, value: Any, status: int = 200) -> OpenApiExample:
    """A body as a client gets it."""
    return OpenApiExample(name, value=value, response_only=True, status_codes=[str(status)])
