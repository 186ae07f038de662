"""Stores tasks of many tenants at once, for a submitter that acts for many, as beat and the group commit do.

What is not ordinary, or is refused, is left to a submission by itself, which says why: no tenant's trouble costs
another anything.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from django.db import DatabaseError

from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.spec import parse_tasks
from slackwater_tasks.submission import admission, familiar, limits, refusal_cache
from slackwater_tasks.submission.store import Part, Wish, are_plain, store, urgent_of


def submit(wishes: Sequence[Wish]) -> list[list[UUID] | None]:
    """Store the wishes, one for each tenant, inside the caller's transaction; returns the ids of each one's tasks.

    ``None`` for a wish of which nothing was stored: it is refused, or its tasks are not ordinary (they depend on
    others, have a webhook or repeat an idempotency key), and is to be submitted by itself. The counters of
    all the tenants stay locked until the transaction ends.
    """
    parts = _admitted(wishes)
    return _ids(wishes, parts, store(parts, reference_cache.now()) if len(parts) > 1 else set())


def submit_if_free(wishes: Sequence[Wish], patience_ms: int = 0) -> list[list[UUID] | None]:
    """The same in one statement, outside of a transaction, and waiting for nobody.

    Nothing is stored either of a tenant whose counters somebody else holds, nor of any where it would take more than
    one statement. ``patience_ms``: who holds them is waited for so long, and then nothing is stored of any
    (``DatabaseError``, of ``LockNotAvailable``).
    """
    if (known := familiar.submit_for_many(wishes, patience_ms)) is not None:
        return [known.get(wish.tenant.pk) for wish in wishes]
    parts = _admitted(wishes)
    if len(parts) < 2 or not are_plain(parts):
        return [None for _ in wishes]
    items = {wish.tenant.pk: wish.items for wish in wishes}
    # Made before anything is stored: what fails after that would be taken for a submission that has failed.
    kinds = {part.tenant.pk: familiar.kinds_of(part, items[part.tenant.pk]) for part in parts}
    stored = store(parts, reference_cache.now(), patience_ms=patience_ms)
    for tenant_id in stored:
        for key, kind in kinds[tenant_id]:
            familiar.remember(key, kind)
    return _ids(wishes, parts, stored)


def _admitted(wishes: Sequence[Wish]) -> list[Part]:
    return [part for wish in wishes if (part := _admit(wish)) is not None]


def _ids(wishes: Sequence[Wish], parts: Sequence[Part], stored: Collection[int]) -> list[list[UUID] | None]:
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
    except DatabaseError:
        raise
    except Exception:  # noqa: BLE001 (whatever it is, its submission by itself says so)
        return None
    return Part(tenant=tenant, tasks=tasks, actors=wish.actors)
