"""Group commit: submissions that arrive while others are being stored are stored together, next.

A submission that finds none under way is stored at once. Those that arrive meanwhile in this process are one flight: one
transaction where that can be, in the order of their arrival (see ``slackwater_tasks.submission.group_commit``). Clients
that send their next one when they are answered come back together, so after a flight of several the next one waits a
moment for as many, as long as that is not in vain. A burst therefore costs a few transactions, and a client over its limit
is answered when those few have committed. A tenant has one flight at a time, so whoever holds its counters holds up
that one alone: the others wait for a flight a moment, then theirs is started beside it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.auth import Principal, principal_of
from slackwater_api.http.body import parse
from slackwater_api.http.endpoint import SUBMIT, told_left
from slackwater_api.http.once import idempotency_key
from slackwater_api.server.response import PlainRequest, Reply
from slackwater_api.server.submission import TaskRequest
from slackwater_api.server.thread_pool import ThreadPool
from slackwater_api.v1.views.tasks import submitted
from slackwater_conf import conf
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.submission import group_commit, limits
from slackwater_tasks.submission.service import Single
from slackwater_tenants.models import Tenant

MAX_BYTES: Final = 65_536
"""A longer body would delay the others of its transaction."""
NOT_GROUPED: Final = b"depends_on"
"""A task that needs others is stored by itself: storing it may have to wait."""
MAX_BATCH: Final = 256
"""Submissions of one flight."""
PATIENCE_S: Final = 0.02
"""So long submissions wait for a flight of other tenants at the most."""
RETURN_S: Final = 0.005
"""So long those who were just answered are waited for at the most."""
MOST_PASSED: Final = 63
"""After waits in vain, so many flights at the most are followed by the next one at once before it is tried again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A submission that waits for its answer."""

    request: TaskRequest
    answer: asyncio.Future[Reply]


def takes(request: TaskRequest) -> bool:
    """Whether a submission is of the usual kind: short, independent and without a trace of its own."""
    if len(request.body) > min(MAX_BYTES, conf().api_max_body_bytes) or NOT_GROUPED in request.body:
        return False
    if not trace_context.is_on():
        return True
    trace = {"HTTP_TRACEPARENT": request.headers.get(b"traceparent", b"").decode("latin-1")}
    return trace_context.of_request(trace) is None


class GroupCommit:
    """Stores submissions in a thread: one that finds none under way at once, those that arrive meanwhile together."""

    def __init__(self, threads: ThreadPool) -> None:
        self._threads = threads
        self._waiting: dict[Hashable, list[Entry]] = {}
        """By tenant, for each with submissions under way; by key where the tenant is not known yet."""
        self._next: list[tuple[Hashable, Entry]] = []
        """Of tenants with none under way: they go when the flight that all wait for is over, or has taken long."""
        self._flight: object | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._awaited = 0
        """How many the next flight waits for."""
        self._to_pass = self._passed = 0
        """How many flights are to be followed by the next one at once, and how many were."""

    async def answer(self, request: TaskRequest) -> Reply:
        """The answer to a submission of the usual kind."""
        place: Hashable = request.authorization
        if place not in self._waiting and (principal := request.principal) is not None:
            place = principal.tenant.pk
        entry = Entry(request, asyncio.get_running_loop().create_future())
        if place in self._waiting:
            self._waiting[place].append(entry)
        else:
            self._next.append((place, entry))
            self._go_on()
        return await entry.answer

    def _go_on(self) -> None:
        """Start those that need not wait any longer."""
        if self._flight is not None:
            if self._patience is None:
                self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._overtake)
            return
        if len(self._next) < self._awaited:
            return
        if self._awaited:
            self._awaited, self._to_pass = 0, self._to_pass // 2
        self._end_patience()
        if not self._next:
            return
        chosen, left, self._next = self._next[:MAX_BATCH], self._next[MAX_BATCH:], []
        places = {place for place, _ in chosen}
        self._waiting |= {place: [] for place in places}
        for place, entry in left:
            if place in places:
                self._waiting[place].append(entry)
            else:
                self._next.append((place, entry))
        flight = self._flight = object()
        entries = [entry for _, entry in chosen]
        self._threads.start(answers, (entries,), partial(self._done, flight, places, entries))
        if self._next:
            self._go_on()

    def _overtake(self) -> None:
        """Wait no longer for a flight that may be held up, by a lock say: only its own tenants do."""
        self._patience = self._flight = None
        self._go_on()

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _wait_for(self, count: int) -> None:
        """Let the next flight wait for as many as were stored together, unless it would lately have been in vain."""
        if count < 2 or len(self._next) > count:
            return
        if self._passed < self._to_pass:
            self._passed += 1
            return
        self._end_patience()
        self._awaited = count + len(self._next)
        self._patience = asyncio.get_running_loop().call_later(RETURN_S, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        """They have not come: it is tried half as often."""
        self._awaited, self._patience = 0, None
        self._passed, self._to_pass = 0, min(2 * self._to_pass + 1, MOST_PASSED)
        self._go_on()

    def _done(self, flight: object, places: Collection[Hashable], entries: list[Entry], found: list[Reply] | None,
              fault: BaseException | None) -> None:  # fmt: skip
        for place in places:
            self._next += [(place, entry) for entry in self._waiting.pop(place)]
        if flight is self._flight:
            self._flight = None
            self._wait_for(len(entries))
        self._go_on()
        for n, entry in enumerate(entries):
            if entry.answer.done():
                continue  # its client has left
            if found is None:
                entry.answer.set_exception(fault or RuntimeError("no answer"))
            else:
                entry.answer.set_result(found[n])


def answers(entries: Sequence[Entry]) -> list[Reply]:
    """Store the submitted tasks and return the answers in the order of the submissions."""
    requests = [PlainRequest(entry.request.scope, entry.request.headers) for entry in entries]
    found: dict[int, Reply] = {}
    asked: dict[int, tuple[Tenant, list[Single]]] = {}
    places: defaultdict[int, list[int]] = defaultdict(list)
    for n, (entry, request) in enumerate(zip(entries, requests, strict=True)):
        if request.instead is not None:
            found[n] = request.instead
            continue
        try:
            tenant, single = _read(entry, request)
            asked.setdefault(tenant.pk, (tenant, []))[1].append(single)
            places[tenant.pk].append(n)
        except Exception as error:  # noqa: BLE001 (the boundary: every error becomes a problem, and is logged)
            found[n] = request.problem(error)
    limits.noted.left.clear()
    for (tenant, singles), stored in zip(asked.values(), group_commit.submit_all(list(asked.values())), strict=True):
        left = told_left(limits.left_of(tenant.pk))
        for n, single, outcome in zip(places[tenant.pk], singles, stored, strict=True):
            request = requests[n]
            if isinstance(outcome, Exception):
                found[n] = request.problem(outcome)
            else:
                status, body, headers = submitted(outcome, as_first=single.idempotency_key is not None)
                found[n] = request.answer(status, body, {**headers, **(left if outcome.created else {})})
    return [found[n] for n in range(len(entries))]


def _read(entry: Entry, request: PlainRequest) -> tuple[Tenant, Single]:
    """Validates the submitter and parses the task; raises what a view would."""
    principal: Principal = principal_of(entry.request.authorization)
    request.key = principal.key
    principal.require(SUBMIT)
    data = parse(entry.request.body)
    key = idempotency_key(request.http) if b"idempotency-key" in entry.request.headers else None
    if not isinstance(data, dict):
        raise InvalidInput("The body must be an object, or an array of objects.")
    return principal.tenant, Single(data=data, actor=principal.actor, idempotency_key=key)
