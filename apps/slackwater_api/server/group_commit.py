"""Submissions gathered: those that come while another of their tenant's is being stored are stored together, next.

Nobody waits for company: a submission that finds none of its tenant's under way goes at once. What is handed in
meanwhile in this process is one transaction then, in the order it came (see
``slackwater_tasks.submission.group_commit``), however many they are; so a crowd costs a few transactions, and who is
over the limit knows it when the few are through.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
from django.http.response import HttpResponseBase

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.auth import Principal, principal_of, remembered
from slackwater_api.http.body import parse
from slackwater_api.http.endpoint import SUBMIT
from slackwater_api.server.response import PlainRequest
from slackwater_api.v1.views.tasks import idempotency_key, submitted
from slackwater_conf import conf
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.submission import group_commit
from slackwater_tasks.submission.group_commit import Single
from slackwater_tasks.submission.service import Submission
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope

PATH: Final = "/api/v1/tasks"
ONE: Final = re.compile(rb"\s*\{")
"""How a body begins that hands in one task."""
MOST_BYTES: Final = 65_536
"""A longer one would keep its neighbours waiting."""
NEVER: Final = b"depends_on"
"""Goes by itself: it may have to wait for others."""
AT_ONCE: Final = 256
"""Submissions of one transaction."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A submission that waits for its answer."""

    scope: Any
    body: bytes
    authorization: str
    answer: asyncio.Future[HttpResponseBase]


def ordinary(scope: Any, body: Any) -> bytes | None:
    """The body of a request that hands in one task of the usual kind; ``body`` has been taken in whole."""
    if scope["method"] != "POST" or scope["path"] != PATH or scope["query_string"]:
        return None
    most = min(MOST_BYTES, conf().api_max_body_bytes)
    if type(body) is not io.BytesIO or body.tell() > most:
        return None
    text = body.getvalue()
    if not ONE.match(text) or NEVER in text:
        return None
    headers = dict(scope["headers"])
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        return None
    trace = {"HTTP_TRACEPARENT": headers.get(b"traceparent", b"").decode("latin-1")}
    return text if trace_context.of_request(trace) is None else None


class Gatherer:
    """Hands submissions to a thread: a tenant's first at once, those that come meanwhile together."""

    def __init__(self, run: Callable[..., Awaitable[Any]]) -> None:
        """``run(function, *args)`` calls a function in a thread."""
        self._run = run
        self._waiting: dict[Hashable, list[Entry]] = {}
        """By tenant, for each that has some under way; by key, where its tenant is not known yet."""

    async def answer(self, scope: Any, body: bytes) -> HttpResponseBase:
        """The answer to an ordinary submission."""
        authorization = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        place: Hashable = authorization
        if authorization not in self._waiting and (principal := remembered.known(authorization)) is not None:
            place = principal.tenant.pk
        entry = Entry(scope, body, authorization, asyncio.get_running_loop().create_future())
        if place in self._waiting:
            self._waiting[place].append(entry)
        else:
            self._waiting[place] = []
            self._start(place, [entry])
        return await entry.answer

    def _start(self, place: Hashable, entries: list[Entry]) -> None:
        job = asyncio.ensure_future(self._run(answers, entries))
        job.add_done_callback(partial(self._done, place, entries))

    def _done(self, place: Hashable, entries: list[Entry], job: asyncio.Future[list[HttpResponseBase]]) -> None:
        waiting = self._waiting.pop(place)
        if waiting:
            self._waiting[place] = waiting[AT_ONCE:]
            self._start(place, waiting[:AT_ONCE])
        fault = asyncio.CancelledError() if job.cancelled() else job.exception()
        for n, entry in enumerate(entries):
            if entry.answer.done():
                continue  # its client has left
            if fault is not None:
                entry.answer.set_exception(fault)
            else:
                entry.answer.set_result(job.result()[n])


def answers(entries: Sequence[Entry]) -> list[HttpResponseBase]:
    """Store what the submissions hand in; their answers, in their order."""
    requests = [PlainRequest(entry.scope) for entry in entries]
    found: dict[int, HttpResponseBase] = {}
    by_tenant: dict[int, list[tuple[int, Tenant, Single]]] = defaultdict(list)
    for n, (entry, request) in enumerate(zip(entries, requests, strict=True)):
        if request.instead is not None:
            found[n] = request.instead
            continue
        try:
            tenant, single = _read(entry, request)
            by_tenant[tenant.pk].append((n, tenant, single))
        except Exception as error:  # noqa: BLE001 (the boundary: every error becomes a problem, and is logged)
            found[n] = request.problem(error)
    for some in by_tenant.values():
        for (n, _, _), outcome in zip(some, _stored(some[0][1], [one for _, _, one in some]), strict=True):
            request = requests[n]
            if isinstance(outcome, Exception):
                found[n] = request.problem(outcome)
            else:
                found[n] = request.answer(*submitted(outcome))
    return [found[n] for n in range(len(entries))]


def _stored(tenant: Tenant, singles: Sequence[Single]) -> Sequence[Submission | Exception]:
    with structlog.contextvars.bound_contextvars(tenant=tenant.slug), tenant_scope(tenant.pk):
        return group_commit.submit_each(tenant, singles)


def _read(entry: Entry, request: PlainRequest) -> tuple[Tenant, Single]:
    """Who hands in what; raises what a view would."""
    principal: Principal = principal_of(entry.authorization)
    principal.require(SUBMIT)
    data, key = parse(entry.body), idempotency_key(request.http)
    if not isinstance(data, dict):
        raise InvalidInput("The body must be an object, or an array of objects.")
    return principal.tenant, Single(data=data, actor=principal.actor, idempotency_key=key)
