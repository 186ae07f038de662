"""Remembers refusals: a flood over the limit is turned away before anything is read, parsed or locked.

The counter row in PostgreSQL decides, and it alone; what is remembered here is a fact that it told, with the time it
ends. A tenant that keeps to its limit costs a look into a dictionary. One that was refused lately is looked up in
Redis too, where the other submitters leave what they were told: that holds for a minute, and once, until the row has
been asked. Without Redis nothing changes but who asks whom.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection

from scheduler_ext.core.errors import LimitExceeded
from scheduler_ext.dispatch import redis_client
from slackwater_conf import conf
from slackwater_tasks.ledger.hints import keys
from slackwater_tenants.models import Plan, Tenant

log = logging.getLogger(__name__)

SUSPECT_S = 60.0
"""How long after its last refusal a tenant is looked up in Redis."""
AWAY_S = 5.0
"""How long Redis is left alone after it did not answer."""
MAX_KNOWN = 10_000
TIMEOUT_S = 0.1


@dataclass(frozen=True, slots=True)
class _Refusal:
    mark: str
    """The plan's numbers by which it was refused: when they change, the refusal no longer holds."""
    until: float
    """The monotonic time at which one submission would be accepted."""
    heard: bool = False
    """Whether another submitter said so, through Redis. When it is over the ledger is asked, not Redis again."""


class _Remembered:
    """The refusals known to this process."""

    def __init__(self) -> None:
        self.refusals: dict[int, _Refusal] = {}
        self.away_until = float("-inf")
        self._clients: dict[str, redis_client.Redis] = {}

    def redis(self) -> redis_client.Redis | None:
        """A client, unless Redis did not answer a moment ago."""
        if time.monotonic() < self.away_until:
            return None
        url = conf().redis_url
        if url not in self._clients:
            self._clients[url] = redis_client.connect(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
        return self._clients[url]

    def lost(self, error: Exception) -> None:
        """Leave Redis alone for a while."""
        self.away_until = time.monotonic() + AWAY_S
        log.debug("refusals are not shared: %s", error)

    def forget(self) -> None:
        """Forget everything, for tests."""
        self.refusals.clear()
        self.away_until = float("-inf")


_remembered = _Remembered()
forget = _remembered.forget


def _mark(plan: Plan) -> str:
    return f"{plan.pk}:{plan.tasks_per_hour}:{plan.burst}"


def any_known() -> bool:
    """Whether this process remembers any refusal."""
    return bool(_remembered.refusals)


def known(tenant: Tenant) -> LimitExceeded | None:
    """The refusal of one submission now, if this process knows it by itself; asks neither Redis nor the database."""
    refusal, plan, now = _remembered.refusals.get(tenant.pk), tenant.plan, time.monotonic()
    if refusal is None or refusal.until <= now or refusal.mark != _mark(plan):
        return None
    if not plan.tasks_per_hour or not plan.burst:
        return None  # no time would help: admission says so
    return LimitExceeded(retry_after=refusal.until - now, limit=plan.tasks_per_hour, burst=plan.burst, available=0)


def check(tenant: Tenant, n: int) -> None:
    """``LimitExceeded`` if ``n`` submissions are known to be over the rate now. Not to be asked for a repeat."""
    refusal = _remembered.refusals.get(tenant.pk)
    if refusal is None:
        return
    plan, now = tenant.plan, time.monotonic()
    if n > plan.burst or not plan.tasks_per_hour:
        return  # no time would help: admission says so
    if refusal.mark != _mark(plan) or now > refusal.until + SUSPECT_S:
        _remembered.refusals.pop(tenant.pk, None)
        return
    heard = refusal.heard or refusal.until <= now
    until = refusal.until if refusal.until > now or refusal.heard else _shared(tenant.pk, refusal.mark)
    if until > now:
        _keep(tenant.pk, _Refusal(refusal.mark, until, heard))
        wait = until - now + (n - 1) * 3600.0 / plan.tasks_per_hour
        raise LimitExceeded(retry_after=wait, limit=plan.tasks_per_hour, burst=plan.burst, available=0)


@contextmanager
def gate(tenant: Tenant, n: int, *, repeat: bool) -> Iterator[None]:
    """Let ``n`` submissions be made inside, unless they are known to be over the rate; remember a refusal.

    ``repeat``: they may repeat a key, and are to be checked when it is known that they do not.
    """
    if not repeat:
        check(tenant, n)
    try:
        yield
    except LimitExceeded as error:
        remember(tenant, error, n)
        raise


def remember(tenant: Tenant, error: LimitExceeded, n: int) -> None:
    """Keep a refusal of ``n`` submissions by the counter, if not even one would be accepted now."""
    plan = tenant.plan
    # What a caller's own transaction has counted may be taken back with it: that is no fact yet.
    if error.retry_after is None or not plan.tasks_per_hour or connection.in_atomic_block:
        return
    wait_s = error.retry_after - (n - 1) * 3600.0 / plan.tasks_per_hour
    if wait_s <= 0:
        return
    _keep(tenant.pk, _Refusal(_mark(plan), time.monotonic() + wait_s))
    client = _remembered.redis()
    if client is None:
        return
    try:
        client.set(keys().refusal(tenant.pk), _mark(plan), px=max(1, int(wait_s * 1000)))
    except redis_client.RedisError as away:
        _remembered.lost(away)


def _keep(tenant_id: int, refusal: _Refusal) -> None:
    if len(_remembered.refusals) >= MAX_KNOWN:
        _remembered.refusals.clear()
    _remembered.refusals[tenant_id] = refusal


def _shared(tenant_id: int, mark: str) -> float:
    """Until when another submitter was refused; the distant past if none was, or Redis is away."""
    client = _remembered.redis()
    if client is None:
        return float("-inf")
    asked = time.monotonic()
    try:
        with client.pipeline(transaction=False) as pipe:
            pipe.get(keys().refusal(tenant_id))
            pipe.pttl(keys().refusal(tenant_id))
            found: Any = pipe.execute()
    except redis_client.RedisError as error:
        _remembered.lost(error)
        return float("-inf")
    stored, left_ms = found
    # Whoever can write to Redis can leave any: it holds for a minute at the most, and once.
    return asked + min(left_ms / 1000, SUSPECT_S) if stored == mark.encode() else float("-inf")
