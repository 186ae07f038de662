"""Tasks of many tenants stored at once: one statement counts them all, one COPY writes them.

For whoever submits for many, as a beat does. What is not ordinary, or is refused, is left to the way of a lone
submission, which says why: so no tenant's trouble costs another anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from scheduler_ext.core.errors import SlackwaterError
from scheduler_ext.core.states import Category
from slackwater_tasks.ledger import active_policies, hints, reference_cache
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.spec import parse_tasks
from slackwater_tasks.submission import admission, refusal_cache, store
from slackwater_tenants.models import Tenant

# In one order: two that submit for many cannot wait for each other in a ring.
LOCK: Final = "SELECT 1 FROM slackwater_tenants_tenantcounter WHERE tenant_id = ANY(%s) ORDER BY tenant_id FOR UPDATE"
COUNTED: Final = (
    ("tenant", "bigint"), ("n", "bigint"), ("urgent", "bigint"), ("most", "bigint"), ("step", "float8"),
    ("burst", "float8"), ("charged", "float8"), ("permille", "bigint"), ("urgent_free", "bigint"),
)  # fmt: skip


def _count_many() -> str:
    """The statement that counts one tenant's tasks, over rows of its parameters."""
    arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in COUNTED)
    rows = f"FROM unnest({arrays}) AS u({', '.join(name for name, _ in COUNTED)})\nWHERE"
    return re.sub(r"%\((\w+)\)s::\w+(?!\[)\b", r"u.\1", store.COUNT).replace("WHERE", rows, 1) + "RETURNING tenant_id"


COUNT_MANY: Final = _count_many()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a tenant is to get, all or none of it."""

    tenant: Tenant
    items: Sequence[Mapping[str, Any]]
    """Tasks, as :func:`slackwater_tasks.submission.service.submit_many` takes them."""
    actors: Sequence[str]
    """Who submits each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Admitted:
    """A wish that passed admission."""

    wish: Wish
    tasks: list[store.Accepted]
    count: dict[str, Any]
    """The parameters by which it is counted."""


def submit(wishes: Sequence[Wish]) -> list[list[UUID] | None]:
    """Store the wishes, one for each tenant, inside the caller's transaction; the ids of each one's tasks.

    ``None`` for a wish of which nothing was stored: it is refused, or its tasks are not ordinary (they depend on
    others, resume, repeat an idempotency key or are told of apart), and is to be submitted by itself. The counters of
    all the tenants stay locked until the transaction ends.
    """
    with connection.cursor() as cur:
        cur.execute(LOCK, ([wish.tenant.pk for wish in wishes],))
        admitted = [found for wish in wishes if (found := _admit(wish)) is not None]
        counted = _count(cur, [found.count for found in admitted])
        stored = [found for found in admitted if found.wish.tenant.pk in counted]
        _write(cur, stored)
    for cell in {found.wish.tenant.cell for found in stored}:
        transaction.on_commit(partial(hints.wake_dispatcher, cell))
    ids = {found.wish.tenant.pk: [task.id for task in found.tasks] for found in stored}
    return [ids.get(wish.tenant.pk) for wish in wishes]


def _admit(wish: Wish) -> _Admitted | None:
    tenant = wish.tenant
    try:
        refusal_cache.check(tenant, len(wish.items))
        specs, payloads = parse_tasks(wish.items, "tasks")
        if any(spec.depends_on or spec.aside or spec.idempotency_key for spec in specs):
            return None
        tasks = admission.admit(tenant, specs, payloads=payloads, where="tasks").tasks
        urgent = sum(1 for spec in specs if spec.category is Category.URGENT)
        count = store.count_params(tenant, tenant.plan, n=len(tasks), urgent=urgent, charged=len(tasks))
    except SlackwaterError:
        return None
    return None if any(task.checkpoints for task in tasks) else _Admitted(wish=wish, tasks=tasks, count=count)


def _count(cur: Any, counts: Sequence[dict[str, Any]]) -> set[int]:
    """Raise the counters that allow it; returns whose they are."""
    if not counts:
        return set()
    cur.execute(COUNT_MANY, {name: [count[name] for count in counts] for name, _ in COUNTED})
    return {row[0] for row in cur.fetchall()}


def _write(cur: Any, stored: Sequence[_Admitted]) -> None:
    conf, at = reference_cache.scheduler_conf(), reference_cache.now()
    wide: list[tuple[Any, ...]] = []
    narrow: list[tuple[Any, ...]] = []
    for found in stored:
        tenant = found.wish.tenant
        chosen = active_policies.current(conf, tenant.cell)
        for task, actor in zip(found.tasks, found.wish.actors, strict=True):
            wide.append(store.task_row(tenant.pk, None, task, at, actor))
            narrow.append(store.live_row(tenant.pk, task, at, at, chosen, conf.promote_lead_s))
    store.insert(cur, "slackwater_tasks_task", store.TASK_COLUMNS, wide)
    store.insert(cur, "slackwater_tasks_livetask", store.LIVE_COLUMNS, narrow)
    for found in stored:
        trace_context.write(cur, found.wish.tenant.pk, found.tasks, None, None)
