"""Single submissions of one tenant stored in one transaction, each with an answer of its own.

Each by itself would be a transaction that waits for the one before it at the tenant's counters. Together they are
written as a bulk submission is. What does not go together (one is refused, at fault, a repeat, or depends on others) is
split, and what is left alone is submitted as ever: so nobody's answer depends on his neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from django.db import DatabaseError, connection, transaction

from scheduler_ext.core.errors import LimitExceeded, QuotaExceeded, SlackwaterError
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.spec import body_hash, parse_tasks
from slackwater_tasks.submission import admission, refusal_cache, service
from slackwater_tasks.submission.service import Submission
from slackwater_tenants.models import Tenant

ITS_OWN_FAULT: Final = ("22", "23", "40")
"""Classes of SQLSTATE (data, integrity, rolled back) that tell of what was written: nothing is stored, others may be.

Any other fault of the database's is everybody's; where the connection broke, nobody knows whether it was stored.
"""
CLAIM: Final = """
INSERT INTO slackwater_tasks_idempotencykey (tenant_id, key, body_hash, task_id)
SELECT %s, u.key, u.body_hash, u.task_id FROM unnest(%s::text[], %s::text[], %s::uuid[]) AS u(key, body_hash, task_id)
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """One task handed in, as :func:`slackwater_tasks.submission.service.submit` takes it."""

    data: Any
    actor: str = ""
    idempotency_key: str | None = None


class _Apart(Exception):
    """These do not go into one transaction."""


def submit_each(tenant: Tenant, singles: Sequence[Single]) -> list[Submission | Exception]:
    """Submit each of ``singles``, in their order; returns what each would have got alone: its answer, or its error."""
    if len(singles) == 1:
        return [_alone(tenant, singles[0])]
    cut = len(singles) // 2
    try:
        return [*_together(tenant, singles)]
    except LimitExceeded as error:
        refusal_cache.remember(tenant, error, len(singles))
        if refusal_cache.known(tenant) is not None or isinstance(error, QuotaExceeded):
            # Few or none have room, and one by one a refusal writes nothing; the rate's is known by now.
            return [_alone(tenant, single) for single in singles]
        cut = _room(tenant, error, len(singles)) or cut
    except (SlackwaterError, _Apart):
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


def _together(tenant: Tenant, singles: Sequence[Single]) -> list[Submission]:
    specs, payloads = parse_tasks([single.data for single in singles], "tasks")
    keys = [service.one_key(s.idempotency_key, spec.idempotency_key) for s, spec in zip(singles, specs, strict=True)]
    taken = [key for key in keys if key is not None]
    if len(set(taken)) < len(taken) or any(spec.depends_on for spec in specs):
        raise _Apart  # a repeat; or names, which mean nothing from one submission to another
    if not taken:
        refusal_cache.check(tenant, len(singles))
    tasks = admission.admit(tenant, specs, payloads=payloads, where="tasks").tasks
    # In one order, and before the counters, as a lone submission's: nobody waits in a ring.
    claims = sorted(
        (key, body_hash(single.data), task.id)
        for key, single, task in zip(keys, singles, tasks, strict=True)
        if key is not None
    )
    with transaction.atomic(), connection.cursor() as cur:
        if claims:
            cur.execute(CLAIM, (tenant.pk, *map(list, zip(*claims, strict=True))))
            if cur.rowcount != len(claims):
                raise _Apart  # one of them was used before
            refusal_cache.check(tenant, len(singles))
        actors = [single.actor for single in singles]
        service.write_tasks(cur, tenant, tasks, [], None, reference_cache.now(), actors)
    return [Submission(task_ids=[task.id]) for task in tasks]


def _room(tenant: Tenant, error: LimitExceeded, n: int) -> int:
    """How many of ``n`` the rate had room for; 0 where that is not known, or where it had none."""
    if error.retry_after is None or not tenant.plan.tasks_per_hour:
        return 0
    return max(0, n - math.ceil(error.retry_after * tenant.plan.tasks_per_hour / 3600.0))


def _is_own_fault(error: DatabaseError) -> bool:
    cause = error.__cause__
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    return state is not None and state[:2] in ITS_OWN_FAULT
