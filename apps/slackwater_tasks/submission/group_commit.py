"""Stores single submissions in one transaction, each with an answer of its own.

Each by itself would be a transaction, and of one tenant wait for the one before it at the tenant's counters. Together
they are written as a bulk submission is. Those that cannot be stored together (one is refused, at fault, a repeat, or
depends on others) are split, first by tenant, then down to single ones: no submission's answer depends on its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import psycopg
import structlog
from django.db import DatabaseError

from scheduler_ext.core.errors import LimitExceeded, QuotaExceeded, SlackwaterError
from slackwater_tasks.submission import many_tenants, refusal_cache, service
from slackwater_tasks.submission.service import Single, Submission
from slackwater_tasks.submission.store import MAX_KINDS, Wish
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope

ITS_OWN_FAULT: Final = ("22", "23", "40")
"""Classes of SQLSTATE (data, integrity, rolled back) that tell of what was written: nothing is stored, others may be.

Any other fault of the database's is everybody's; where the connection broke, nobody knows whether it was stored.
"""
PATIENCE_MS: Final = 20
"""So long those whose counters somebody held are waited for together: another process's flight, as a rule, that is soon over."""
Answers = Sequence[Submission | Exception]


def submit_all(asked: Sequence[tuple[Tenant, Sequence[Single]]]) -> list[Answers]:
    """Submit what each tenant asks for; returns for each tenant what :func:`submit_each` would."""
    found: dict[int, Answers] = {}
    # A tenant is a kind of task at least.
    for start in range(0, len(asked), MAX_KINDS):
        some = asked[start : start + MAX_KINDS]
        found |= _together(some)
        found |= _together([one for one in some if one[0].pk not in found], PATIENCE_MS)
    return [found[tenant.pk] if tenant.pk in found else _by_itself(tenant, singles) for tenant, singles in asked]


def _together(asked: Sequence[tuple[Tenant, Sequence[Single]]], patience_ms: int = 0) -> dict[int, Answers]:
    """Submit for some tenants at once; returns the answers of those who need not go by themselves."""
    plain = [(tenant, singles) for tenant, singles in asked if not any(single.may_repeat() for single in singles)]
    if len(plain) < 2:
        return {}
    wishes = [
        Wish(tenant=tenant, items=[single.data for single in singles], actors=[single.actor for single in singles])
        for tenant, singles in plain
    ]
    try:
        stored = many_tenants.submit_if_free(wishes, patience_ms)
    except DatabaseError as error:
        if _is_own_fault(error) or _is_held(error):
            return {}
        return {tenant.pk: [error] * len(singles) for tenant, singles in plain}
    return {
        tenant.pk: [Submission(task_ids=[task_id]) for task_id in ids]
        for (tenant, _), ids in zip(plain, stored, strict=True)
        if ids is not None
    }


def _by_itself(tenant: Tenant, singles: Sequence[Single]) -> Answers:
    with structlog.contextvars.bound_contextvars(tenant=tenant.slug), tenant_scope(tenant.pk):
        return submit_each(tenant, singles)


def submit_each(tenant: Tenant, singles: Sequence[Single]) -> list[Submission | Exception]:
    """Submit each of ``singles``, in order; returns for each the answer or error it would have got alone."""
    if len(singles) == 1:
        return [_alone(tenant, singles[0])]
    cut = len(singles) // 2
    try:
        return [*service.submit_together(tenant, singles)]
    except LimitExceeded as error:
        if refusal_cache.known(tenant) is not None or isinstance(error, QuotaExceeded):
            # Few or none have room, and one by one a refusal writes nothing; the rate's is known by now.
            return [_alone(tenant, single) for single in singles]
        cut = _room(tenant, error, len(singles)) or cut
    except (SlackwaterError, service.Inseparable):
        pass
    except DatabaseError as error:
        if not _is_own_fault(error):
            return [error] * len(singles)
    return [*submit_each(tenant, singles[:cut]), *submit_each(tenant, singles[cut:])]


def _alone(tenant: Tenant, single: Single) -> Submission | Exception:
    try:
        return service.submit(tenant, single.data, actor=single.actor, idempotency_key=single.idempotency_key)
    except Exception as error:  # noqa: BLE001 (it is the answer, of this one alone)
        return error


def _room(tenant: Tenant, error: LimitExceeded, n: int) -> int:
    """How many of ``n`` the rate had room for; 0 if unknown or none."""
    if error.retry_after is None or not tenant.plan.tasks_per_hour:
        return 0
    return max(0, n - math.ceil(error.retry_after * tenant.plan.tasks_per_hour / 3600.0))


def _is_held(error: DatabaseError) -> bool:
    return isinstance(error.__cause__, psycopg.errors.LockNotAvailable)


def _is_own_fault(error: DatabaseError) -> bool:
    cause = error.__cause__
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    return state is not None and state[:2] in ITS_OWN_FAULT
