"""Fast refusals: a submission that is certain to be over its rate is answered before any view or thread sees it.

A refusal that this process has met holds until a known moment (see ``slackwater_tasks.submission.refusal_cache``).
Until then, a submission with the same key is answered from memory: its body is not parsed, nothing is routed, and it
waits for no thread. Whatever is not certain goes the ordinary way, which gives the same answer, only later.
"""

from __future__ import annotations

from typing import Final

from slackwater_api.http.endpoint import SUBMIT
from slackwater_api.server.response import PlainRequest, Reply
from slackwater_api.server.submission import TaskRequest
from slackwater_tasks.submission import refusal_cache

MAY_BE_REPEATED: Final = (b"idempotency_key", b"\\u")
"""A body with one of these may be a repeat, which gets its first answer whatever the limit; a key can be escaped."""


def answer(request: TaskRequest) -> Reply | None:
    """The answer to a submission that this process knows to be refused, without asking the database; else None."""
    if not refusal_cache.any_known() or b"idempotency-key" in request.headers:
        return None
    principal = request.principal
    if principal is None or not principal.may(SUBMIT):
        return None
    error = refusal_cache.known(principal.tenant)
    if error is None or any(word in request.body for word in MAY_BE_REPEATED):
        return None
    plain = PlainRequest(request.scope, request.headers)
    plain.key = principal.key
    return plain.problem(error) if plain.instead is None else plain.instead
