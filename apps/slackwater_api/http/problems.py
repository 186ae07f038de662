"""Errors as ``application/problem+json`` (RFC 9457): one table gives each stable code its HTTP status."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.db import InterfaceError, OperationalError
from rest_framework.response import Response

from scheduler_ext.core import errors
from slackwater_resources.faults import ENDED
from slackwater_tasks.submission.limits import window_s

log = logging.getLogger(__name__)

PROBLEM_TYPE: Final = "application/problem+json"
DOCUMENTATION: Final = "/api/docs/errors#"
"""Where a problem's ``type`` points; the anchor is its code."""


class MalformedBody(errors.SlackwaterError):
    """The body is not valid JSON."""

    code = "malformed_body"


class BadRequest(errors.SlackwaterError):
    """The request's head is not one that this server answers."""

    code = "bad_request"


class BodyTooSlow(errors.SlackwaterError):
    """The body did not arrive in time; send it faster, or in smaller requests."""

    code = "body_too_slow"


class UnsupportedMediaType(errors.SlackwaterError):
    """The body must be application/json."""

    code = "unsupported_media_type"


class MethodNotAllowed(errors.SlackwaterError):
    """This method is not allowed here."""

    code = "method_not_allowed"

    def __init__(self, method: str = "This", allowed: Iterable[str] = ()) -> None:
        """``allowed``: the methods there are, which the answer names in ``Allow`` (RFC 9110, 15.5.6)."""
        self.allowed = ", ".join(allowed)
        super().__init__(f"{method} is not allowed here; {self.allowed or 'nothing'} is.")


class PreconditionFailed(errors.SlackwaterError):
    """It has changed since; read it again."""

    code = "precondition_failed"


class RangeNotSatisfiable(errors.SlackwaterError):
    """The content has no such bytes."""

    code = "range_not_satisfiable"

    def __init__(self, size: int = 0) -> None:
        """``size``: of the content, which the answer names in ``Content-Range`` (RFC 9110, 15.5.17)."""
        self.size = size
        super().__init__(f"The content has {size} bytes.")


class InternalError(errors.SlackwaterError):
    """Something went wrong on our side; it has been logged under the request id."""

    code = "internal"


STATUS: Final[dict[str, tuple[int, str]]] = {
    "bad_request": (400, "Bad request"),
    "malformed_body": (400, "Malformed body"),
    "not_authenticated": (401, "Not authenticated"),
    "not_permitted": (403, "Not permitted"),
    "not_granted": (403, "Not granted by the plan"),
    "not_found": (404, "Not found"),
    "method_not_allowed": (405, "Method not allowed"),
    "body_too_slow": (408, "Body too slow"),
    "conflict": (409, "Conflict"),
    "idempotency_mismatch": (422, "Idempotency key used before"),
    "precondition_failed": (412, "Precondition failed"),
    "too_large": (413, "Too large"),
    "stream_too_large": (413, "Stream too large"),
    "unsupported_media_type": (415, "Unsupported media type"),
    "range_not_satisfiable": (416, "Range not satisfiable"),
    "invalid_input": (422, "Invalid input"),
    "does_not_fit": (422, "Does not fit"),
    "unknown_dependency": (422, "Unknown dependency"),
    "dependency_cycle": (422, "Dependency cycle"),
    "duplicate_name": (422, "Duplicate name"),
    "impossible": (422, "Impossible to run"),
    "limit_exceeded": (429, "Limit exceeded"),
    "quota_exceeded": (429, "Quota exceeded"),
    "internal": (500, "Internal error"),
    "unavailable": (503, "Unavailable"),
    # These mean that the platform itself is wrong; a client can do nothing about them.
    "error": (500, "Internal error"),
    "no_tenant": (500, "Internal error"),
    "configuration": (500, "Internal error"),
}
"""Code -> (HTTP status, title). The only such table; a code keeps its meaning for ever."""

MAX_FIELD: Final = 300
HEADERS: Final = frozenset({"Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID"})
"""What a fault may name that stands in no body."""
STEP: Final = re.compile(r"[^.\[\]]+")
RATE_POLICY: Final = '"submissions";q={};w={}'
WAITING_POLICY: Final = '"waiting";q={}'
"""Items of ``RateLimit-Policy`` (draft-ietf-httpapi-ratelimit-headers-10): the rate, with the seconds in which as many
come back, and the tasks that may be unfinished."""
UNAVAILABLE_RETRY_S: Final = 2.0
QUOTA_RETRY_S: Final = 5.0
"""The seconds to wait that are sent where the end of work cannot be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error as the API shows it."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


def normalized(error: Exception) -> errors.SlackwaterError:
    """``error`` as one of ours: what Django and the database raise is translated, the rest is internal."""
    if isinstance(error, errors.SlackwaterError):
        return error
    if isinstance(error, (OperationalError, InterfaceError)) or isinstance(error.__cause__, ENDED):
        return errors.Unavailable("The database does not answer; try again.")
    if isinstance(error, TooManyFieldsSent):
        return BadRequest("The query has too many parameters.")
    if isinstance(error, RequestDataTooBig):
        return errors.TooLarge("The body is too large.")
    return InternalError()


def problem_body(code: str, detail: str, request_id: str) -> dict[str, Any]:
    """What every problem has."""
    status, title = STATUS[code]
    return {
        "type": f"{DOCUMENTATION}{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "request_id": request_id,
    }


def problem(error: Exception, request_id: str, elsewhere: Collection[str] | None = None, array: str = "") -> Problem:
    """The answer to ``error``. What is internal is logged with its traceback and not shown.

    ``elsewhere``: names of what was sent beside the body, whose fields get JSON pointers; ``None`` where there is no body.
    ``array``: what fields call a body that is an array.
    """
    ours = normalized(error)
    status, _ = STATUS[ours.code]
    if status >= 500 and not isinstance(ours, errors.Unavailable):
        log.error("request failed", exc_info=error, extra={"request_id": request_id})
        ours = InternalError()
    elif isinstance(ours, errors.Unavailable):
        log.warning("request refused: %s", error)
    body = problem_body(ours.code, ours.message, request_id)
    if ours.field:
        body["field"] = _path(ours.field)
    headers = _headers(ours)
    if isinstance(ours, errors.InvalidInput):
        body["errors"] = [_shown(each, elsewhere, array) for each in ours.told()]
        body |= {name: value for name, value in body["errors"][0].items() if name == "suggestion"}
    if "Retry-After" in headers:
        body["retry_after_s"] = int(headers["Retry-After"])
    extra = {key: value for key, value in ours.extra.items() if key != "retry_after"}
    body.update({key: value for key, value in extra.items() if value is not None and key not in body})
    return Problem(status=status, body=body, headers=headers)


def _shown(fault: dict[str, Any], elsewhere: Collection[str] | None, array: str) -> dict[str, Any]:
    if "field" not in fault:
        return fault
    path = _path(fault["field"])
    if elsewhere is None or path in elsewhere or path in HEADERS:
        return {**fault, "field": path}
    steps = [step.replace("~", "~0").replace("/", "~1") for step in STEP.findall(path)]
    steps = steps[1:] if array and steps[:1] == [array] else steps
    pointer = "".join(f"/{step}" for step in steps)
    mend = [{**step, "path": pointer} if step["op"] == "replace" else step for step in fault.get("suggestion", ())]
    return {**fault, "field": path, "pointer": pointer, **({"suggestion": mend} if mend else {})}


def _path(text: str) -> str:
    """A path as it is shown: it may hold names that a client made up, of any length and of what cannot be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()[:MAX_FIELD]


def _headers(error: errors.SlackwaterError) -> dict[str, str]:
    if isinstance(error, errors.NotAuthenticated):
        return {"WWW-Authenticate": 'Bearer realm="slackwater"'}
    if isinstance(error, MethodNotAllowed):
        return {"Allow": error.allowed}
    if isinstance(error, RangeNotSatisfiable):
        return {"Content-Range": f"bytes */{error.size}"}
    if isinstance(error, errors.Unavailable):
        return {"Retry-After": f"{UNAVAILABLE_RETRY_S:.0f}"}
    if isinstance(error, errors.LimitExceeded):
        wait = error.retry_after if error.retry_after is not None else QUOTA_RETRY_S
        seconds = max(1, math.ceil(wait))
        return {"Retry-After": str(seconds), **_refused(error, seconds)}
    return {}


def _refused(error: errors.LimitExceeded, seconds: int) -> dict[str, str]:
    """The limit that was met, as ``endpoint.told_left`` tells what is left: more of it comes in so many seconds."""
    limit, burst, left = error.extra.get("limit"), error.extra.get("burst"), error.extra.get("available", 0)
    if not isinstance(error, errors.QuotaExceeded):
        name, policy = "submissions", RATE_POLICY.format(burst, window_s(burst, limit)) if limit and burst else ""
    else:
        name, policy = ("urgent", "") if error.field else ("waiting", WAITING_POLICY.format(limit))
    return {"RateLimit": f'"{name}";r={left};t={seconds}', **({"RateLimit-Policy": policy} if policy else {})}


def as_response(found: Problem) -> Response:
    """The problem as a response of DRF's."""
    return Response(found.body, status=found.status, headers=found.headers, content_type=PROBLEM_TYPE)
