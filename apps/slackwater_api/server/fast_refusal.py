"""Refusals answered at the door: a submission that is certain to be over its rate never gets as far as a view.

A refusal that this process was told holds until a known moment (see ``slackwater_tasks.submission.refusal_cache``).
Until then a submission with the same key is answered from memory: its body is not parsed, nothing is routed, no
thread is waited for. Whatever is not certain goes the ordinary way, where the same answer is given, only later.
"""

from __future__ import annotations

import io
import re
from typing import Any, Final

from django.http.response import HttpResponseBase

from scheduler_ext.core.errors import LimitExceeded
from slackwater_api.http.auth import remembered
from slackwater_api.http.endpoint import SUBMIT
from slackwater_api.server.response import PlainRequest
from slackwater_tasks.submission import refusal_cache

PATH: Final = "/api/v1/tasks"
ONE: Final = re.compile(rb"\s*\{")
"""How a body begins that hands in one task: what several cost, and whether they fit at all, is for the view."""
REPEAT: Final = (b"idempotency_key", b"\\u")
"""A body with one of these may be a repeat, which gets its first answer whatever the limit; a key can be escaped."""


def refusal(scope: Any, body: Any) -> LimitExceeded | None:
    """The refusal of a request, if this process knows it without asking anybody; ``body`` has been taken in whole."""
    if not refusal_cache.any_known() or scope["method"] != "POST" or scope["path"] != PATH or scope["query_string"]:
        return None
    headers = dict(scope["headers"])
    if b"idempotency-key" in headers or headers.get(b"content-type") != b"application/json":
        return None
    principal = remembered.known(headers.get(b"authorization", b"").decode("latin-1"))
    if principal is None or not principal.may(SUBMIT) or type(body) is not io.BytesIO:
        return None
    found = refusal_cache.known(principal.tenant)
    if found is None:
        return None
    text = body.getvalue()
    if not ONE.match(text) or any(word in text for word in REPEAT):
        return None
    return found


def answer(scope: Any, error: LimitExceeded) -> HttpResponseBase:
    """The answer to a request that is refused."""
    request = PlainRequest(scope)
    return request.problem(error) if request.instead is None else request.instead
