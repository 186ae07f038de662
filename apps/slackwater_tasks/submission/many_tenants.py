"""Stores tasks of many tenants at once, for a submitter that acts for many, as beat does.

What is not ordinary, or is refused, is left to a submission by itself, which says why: no tenant's trouble costs
another anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from scheduler_ext.core.errors import SlackwaterError
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.spec import parse_tasks
from slackwater_tasks.submission import admission, limits, refusal_cache
from slackwater_tasks.submission.store import Part, store, urgent_of
from slackwater_tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a tenant is to get, all or nothing."""

    tenant: Tenant
    items: Sequence[Mapping[str, Any]]
    """Tasks, as :func:`slackwater_tasks.submission.service.submit_many` takes them."""
    actors: Sequence[str]
    """Who submits each task."""


def submit(wishes: Sequence[Wish]) -> list[list[UUID] | None]:
    """Store the wishes, one for each tenant, inside the caller's transaction; returns the ids of each one's tasks.

    ``None`` for a wish of which nothing was stored: it is refused, or its tasks are not ordinary (they depend on
    others, have a webhook or repeat an idempotency key), and is to be submitted by itself. The counters of
    all the tenants stay locked until the transaction ends.
    """
    parts = [part for wish in wishes if (part := _admit(wish)) is not None]
    if len(parts) < 2:
        return [None] * len(wishes)
    stored = store(parts, reference_cache.now())
    ids = {part.tenant.pk: [task.id for task in part.tasks] for part in parts if part.tenant.pk in stored}
    return [ids.get(wish.tenant.pk) for wish in wishes]


def _admit(wish: Wish) -> Part | None:
    tenant, n = wish.tenant, len(wish.items)
    try:
        refusal_cache.check(tenant, n)
        specs, payloads = parse_tasks(wish.items, "tasks")
        if any(spec.depends_on or spec.webhook or spec.idempotency_key for spec in specs):
            return None
        tasks = admission.admit(tenant, specs, payloads=payloads, where="tasks").tasks
        limits.count_of(tenant, n=n, urgent=urgent_of(tasks), charged=n)  # more at once than could ever be
    except SlackwaterError:
        return None
    return Part(tenant=tenant, tasks=tasks, actors=wish.actors)
