"""Idempotency keys: the first submission with a key is stored, a repeat gets its answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from scheduler_ext.core.errors import DoesNotFit, IdempotencyMismatch, InvalidInput
from slackwater_tasks.models import IdempotencyKey, Task
from slackwater_tenants.models import Tenant

MAX_KEY_LENGTH: Final = 200
CLAIM: Final = """
INSERT INTO slackwater_tasks_idempotencykey (tenant_id, key, body_hash, task_id, workflow_id, task_ids)
SELECT %s, u.key, u.body_hash, u.task_id, %s, %s
FROM unnest(%s::text[], %s::text[], %s::uuid[]) AS u(key, body_hash, task_id)
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The answer to a submission."""

    task_ids: list[UUID]
    workflow_id: UUID | None = None
    created: bool = True
    """False if its idempotency key returned the first answer."""


class Key(NamedTuple):
    """An idempotency key with what was submitted under it."""

    key: str
    body_hash: str

    @classmethod
    def of(cls, given: str | None, inner: str, body: Any) -> Key | None:
        """The key given in the header or in the body; ``None`` without one, ``InvalidInput`` if they differ."""
        if given and inner and given != inner:
            raise DoesNotFit("differs from the Idempotency-Key header", field="idempotency_key")
        key = given or inner
        if len(key) > MAX_KEY_LENGTH:
            raise InvalidInput(f"must be at most {MAX_KEY_LENGTH} characters", field="idempotency_key")
        return cls(key, body_hash(body)) if key else None


def claim(cur: Any, tenant: Tenant, keys: Sequence[tuple[Key, UUID]], *, workflow_id: UUID | None = None,
          task_ids: list[UUID] | None = None) -> bool:  # fmt: skip
    """Take keys, each for a task; False if one was taken before. The database makes concurrent repeats wait.

    ``task_ids``: all the tasks of one key, where a workflow does not tell them.
    """
    # In one order, and before the counters: nobody waits in a ring.
    rows = sorted((key.key, key.body_hash, task_id) for key, task_id in keys)
    cur.execute(CLAIM, (tenant.pk, workflow_id, task_ids, *map(list, zip(*rows, strict=True))))
    return bool(cur.rowcount == len(rows))


def first_or_claim(cur: Any, tenant: Tenant, key: Key, ids: list[UUID], workflow_id: UUID | None = None,
                   ) -> Submission | None:  # fmt: skip
    """The first answer to this key; ``None`` if it was free, and is now taken for these tasks."""
    # One id, or a workflow's, tells the answer in most cases; only a plain list needs them all.
    several = ids if workflow_id is None and len(ids) > 1 else None
    if claim(cur, tenant, [(key, ids[0])], workflow_id=workflow_id, task_ids=several):
        return None
    return first_answer(tenant, key)


def first_answer(tenant: Tenant, key: Key) -> Submission | None:
    """The first answer to this key; ``IdempotencyMismatch`` if it had another body."""
    first = IdempotencyKey.objects.filter(tenant=tenant, key=key.key).first()
    if first is None:
        return None
    if first.body_hash != key.body_hash:
        raise IdempotencyMismatch(field="Idempotency-Key")
    if first.workflow_id is not None:
        tasks = Task.objects.unscoped().filter(workflow_id=first.workflow_id)  # the key is the tenant's own
        ids = list(tasks.order_by("pk").values_list("pk", flat=True))
        return Submission(task_ids=ids, workflow_id=first.workflow_id, created=False)
    return Submission(task_ids=first.task_ids or [i for i in [first.task_id] if i], created=False)


def body_hash(data: Any) -> str:
    """A hash of a submission, equal for equal bodies, wherever the idempotency key stood."""
    if isinstance(data, Mapping) and "idempotency_key" in data:
        data = {name: value for name, value in data.items() if name != "idempotency_key"}
    digest = hashlib.sha256()
    for part in _canonical(data):
        digest.update(part.encode())
    return digest.hexdigest()


def _canonical(data: Any) -> Iterator[str]:
    """The canonical JSON text of a body. A lazy array stays lazy."""
    if isinstance(data, Mapping) and any(_is_made_late(value) for value in data.values()):
        for n, name in enumerate(sorted(data)):
            yield f"{', ' if n else '{'}{json.dumps(name)}: "
            yield from _canonical(data[name])
        yield "}"
    elif _is_made_late(data):
        for n, item in enumerate(data):
            yield f"{', ' if n else '['}{json.dumps(item, sort_keys=True, default=str)}"
        yield "]"
    else:
        yield json.dumps(data, sort_keys=True, default=str)


def _is_made_late(data: Any) -> bool:
    return isinstance(data, Sequence) and bool(data) and not isinstance(data, (str, bytes, list, tuple))
