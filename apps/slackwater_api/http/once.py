"""The law of repeats: a change that carries an ``Idempotency-Key`` is made once, and its first answer is given again.

Key, change and answer are one transaction. A repeat that comes meanwhile waits for it; what a crash left undone was not
done; and what was done has its answer, whether or not that reached the client. Submissions keep their tasks' ids in the
same table, and answer from them; where the key came in the body, or the id is the client's own, a repeat says that it is one.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.auth import remembered
from slackwater_api.http.body import read_bytes
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.submission.answers import Answer, once
from slackwater_tasks.submission.idempotency import Key, body_hash
from slackwater_tenants.models import Tenant

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = {"Idempotency-Replayed": "true"}
KEPT: Final = ("Location", "ETag")
"""The headers of an answer that are part of it."""


def idempotency_key(request: Request | HttpRequest) -> str | None:
    """The header's key; ``None`` without one."""
    text: str | None = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if text is None:
        return None
    if not text.isascii() or not text.isprintable() or not 0 < len(text) <= 200:
        raise InvalidInput("must be 1 to 200 printable ASCII characters", field=HEADER)
    return text


def made_once(
    tenant: Tenant, request: HttpRequest, text: str, make: Callable[[], HttpResponseBase]
) -> HttpResponseBase:
    """What ``make`` answers, or answered to the first request with this key; ``IdempotencyMismatch`` for another one."""
    found: list[HttpResponseBase] = []

    def work() -> Answer:
        found.append(make())
        return _answer_of(found[0])

    answer, is_new = once(tenant, Key(text, _hash(request)), work)
    if is_new:
        # The view forgot what it changed before that was committed: others may have remembered it anew meanwhile.
        remembered.forget()
        reference_cache.forget_tiers(tenant.pk)
        return found[0]
    response = HttpResponse(answer.content, status=answer.status, headers={**answer.headers, **REPLAYED})
    response["Content-Type"] = "application/json"
    return response


def as_first(response: Response) -> None:
    """Let the repeat of a submission, which tells of itself, be the first answer: its key came in the header."""
    if response.has_header("Idempotency-Replayed"):
        response.status_code = 201
        response.data["created"] = True


def _hash(request: HttpRequest) -> str:
    """A hash of what is asked for: the method, the address with its query, and the body, however its JSON is written."""
    content = read_bytes(request)
    # The view reads it once more.
    vars(request)["_stream"] = io.BytesIO(content)
    try:
        inner = body_hash(json.loads(content))
    except ValueError:  # no JSON: the view says so
        inner = hashlib.sha256(content).hexdigest()
    return hashlib.sha256(f"{request.method} {request.get_full_path()}\n{inner}".encode()).hexdigest()


def _answer_of(response: Any) -> Answer:
    if isinstance(response, Response):
        content: bytes = b"" if response.data is None else JSONRenderer().render(response.data)
    else:
        content = response.content
    headers = {name: response[name] for name in KEPT if response.has_header(name)}
    return Answer(status=response.status_code, headers=headers, content=content)
