"""First answers kept under idempotency keys, for every change that is not a submission.

They are sealed, as secrets are: a new key's text is shown once, and would otherwise lie in the table for a day.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection, transaction

from scheduler_ext.core.errors import ConfigurationError, Conflict, IdempotencyMismatch
from slackwater_tasks.models import IdempotencyKey
from slackwater_tasks.submission.idempotency import Key
from slackwater_tenants.models import Tenant

TAKE = """
INSERT INTO slackwater_tasks_idempotencykey (tenant_id, key, body_hash) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
"""
KEEP = "UPDATE slackwater_tasks_idempotencykey SET answer = %s WHERE tenant_id = %s AND key = %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as it was given: its status, the headers that are part of it, and its body."""

    status: int
    headers: dict[str, str]
    content: bytes


def once(tenant: Tenant, key: Key, make: Callable[[], Answer]) -> tuple[Answer, bool]:
    """The answer of ``make``, and True; for a repeat the first answer, and False.

    ``make`` runs in the transaction that takes the key: where it raises, the key is free again. The database waits for a
    repeat under way. Raises ``IdempotencyMismatch`` where the key was taken for something else.
    """
    with transaction.atomic():
        with connection.cursor() as cur:
            cur.execute(TAKE, (tenant.pk, key.key, key.body_hash))
            is_new = cur.rowcount == 1
        if is_new:
            answer = make()
            with connection.cursor() as cur:
                cur.execute(KEEP, (_sealed(tenant.pk, key.key, answer), tenant.pk, key.key))
            return answer, True
    return _kept(tenant.pk, key), False


def _kept(tenant_id: int, key: Key) -> Answer:
    row = IdempotencyKey.objects.filter(tenant_id=tenant_id, key=key.key).first()
    if row is None:
        raise Conflict("this key was forgotten just now; use another one", field="Idempotency-Key")
    if row.body_hash != key.body_hash or row.answer is None:
        raise IdempotencyMismatch(field="Idempotency-Key")
    return _opened(tenant_id, key.key, bytes(row.answer))


def _bound(key: str) -> str:
    """The purpose an answer is sealed for; no secret's name begins so."""
    return f"answer:{key}"


def _sealed(tenant_id: int, key: str, answer: Answer) -> bytes:
    from slackwater_tasks.runtime.sealed import seal  # few changes carry a key, and it loads a library

    content = base64.b85encode(zlib.compress(answer.content, 1)).decode()
    return seal(tenant_id, _bound(key), json.dumps([answer.status, answer.headers, content]))


def _opened(tenant_id: int, key: str, sealed: bytes) -> Answer:
    from slackwater_tasks.runtime.sealed import open_sealed

    try:
        status, headers, content = json.loads(open_sealed(tenant_id, _bound(key), sealed))
    except ConfigurationError:
        raise Conflict("it was done, but its answer cannot be read any more", field="Idempotency-Key") from None
    return Answer(status=status, headers=headers, content=zlib.decompress(base64.b85decode(content)))
