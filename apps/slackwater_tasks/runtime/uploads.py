"""Uploads: files that clients hand over in pieces and tasks read, kept as long as the plan keeps tasks.

A piece counts once its row is committed: after a crash the client asks how much is here and goes on from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Sum
from django.utils import timezone

from scheduler_ext.core.errors import Conflict, InvalidInput, NotFound, TooLarge
from scheduler_ext.task.artifacts import check_name, check_type
from slackwater_tasks.ledger.connection import Database, execute
from slackwater_tasks.models import Upload, UploadPart, new_id
from slackwater_tasks.runtime import objects
from slackwater_tenants.models import Tenant

UNFINISHED_KEPT: Final = timedelta(days=1)
"""How long an upload is kept after its last piece."""
MAX_UPLOADS: Final = 10_000
"""The most uploads of one tenant."""
EXPIRED = """
SELECT id, tenant_id FROM slackwater_tasks_upload WHERE expires_at < clock_timestamp()
ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED
"""
PARTS_GONE = "DELETE FROM slackwater_tasks_uploadpart WHERE upload_id = ANY(%s)"
GONE = "DELETE FROM slackwater_tasks_upload WHERE id = ANY(%s)"


def begin(tenant: Tenant, name: str, size: int, content_type: str) -> Upload:
    """Begin an upload of ``size`` bytes; ``TooLarge`` beyond what the plan allows the tenant's uploads together."""
    row = Upload(id=new_id(), tenant=tenant, name=check_name(name), content_type=check_type(content_type), size=size)
    limit = tenant.plan.max_upload_bytes
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)  # one after the other: together they are within
        rows = Upload.objects.all()
        used = rows.aggregate(sum=Sum("size"))["sum"] or 0
        if used + size > limit:
            raise TooLarge(
                f"{size} bytes, and {used} of the tenant's other uploads: the plan allows {limit}",
                field="Upload-Length", limit=limit,
            )  # fmt: skip
        if rows.count() >= MAX_UPLOADS:
            raise InvalidInput(f"a tenant has at most {MAX_UPLOADS} uploads; delete some")
        row.expires_at = timezone.now() + UNFINISHED_KEPT
        row.save(force_insert=True)
        if not size:
            _finish(row, tenant)
    return row


def find(upload_id: UUID) -> Upload:
    """An upload of the tenant in context; ``NotFound`` without one of that id."""
    row: Upload | None = Upload.objects.filter(pk=upload_id).first()
    if row is None:
        raise NotFound(f"There is no upload {upload_id}.")
    return row


def find_whole(upload_id: str) -> Upload:
    """A complete upload by the text of its id; ``NotFound`` if the tenant in context has none."""
    try:
        row = find(UUID(upload_id))
    except ValueError:
        raise NotFound(f"There is no upload {upload_id[:60]!r}.") from None
    if row.finished_at is None:
        raise NotFound(f"The upload {upload_id} is not whole: {row.received} of {row.size} bytes are here.")
    return row


def add(tenant: Tenant, row: Upload, start: int, content: bytes) -> Upload:
    """Keep the piece that begins at ``start``, which must be where the last one ended: ``Conflict`` otherwise."""
    _check(row, start, len(content))
    if not content:
        return row
    kept = objects.keep(objects.folder_of_upload(tenant.pk, row.pk), content)
    with transaction.atomic():
        row = Upload.objects.select_for_update().filter(pk=row.pk).first() or find(row.pk)
        _check(row, start, len(content))
        UploadPart(
            upload=row, tenant_id=tenant.pk, start=start, size=len(content), content=kept.here, key=kept.key
        ).save(force_insert=True)
        row.received += len(content)
        row.expires_at = timezone.now() + UNFINISHED_KEPT
        row.save(update_fields=["received", "expires_at"])
        if row.received == row.size:
            _finish(row, tenant)
    return row


def _check(row: Upload, start: int, size: int) -> None:
    if start != row.received:
        raise Conflict(
            f"{row.received} bytes are here: the next piece begins there, not at {start}", field="Upload-Offset"
        )
    if start + size > row.size:
        raise TooLarge(f"the upload was announced with {row.size} bytes", field="Upload-Length", limit=row.size)


def _finish(row: Upload, tenant: Tenant) -> None:
    whole = hashlib.sha256()
    for piece in content(row):
        whole.update(piece)
    row.sha256, row.finished_at = whole.hexdigest(), timezone.now()
    days = tenant.plan.retention_days
    row.expires_at = row.finished_at + timedelta(days=days) if days else None
    row.save(update_fields=["sha256", "finished_at", "expires_at"])


def content(row: Upload, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Its bytes from ``start`` up to ``end``, in pieces."""
    end = row.received if end is None else end
    parts = UploadPart._plain.filter(upload_id=row.pk, start__lt=end).order_by("start")
    for part_id, first, size, key in parts.values_list("pk", "start", "size", "key"):
        if first + size > start:
            yield from objects.read(
                "slackwater_tasks_uploadpart", part_id, key, max(start - first, 0), min(end - first, size)
            )


def delete(row: Upload) -> None:
    """Delete it, complete or not."""
    with transaction.atomic():
        execute(objects.NOTE, (objects.folder_of_upload(row.tenant_id, row.pk),))
        row.delete()


def expire(db: Database, limit: int) -> int:
    """Delete expired uploads; returns how many."""
    return db.repeatable(partial(_expire, limit))


def _expire(limit: int, conn: Any) -> int:
    rows = conn.execute(EXPIRED, (limit,)).fetchall()
    ids = [upload_id for upload_id, _ in rows]
    for upload_id, tenant_id in rows:
        conn.execute(objects.NOTE, (objects.folder_of_upload(tenant_id, upload_id),))
    if ids:
        conn.execute(PARTS_GONE, (ids,))
        conn.execute(GONE, (ids,))
    return len(ids)


def forget_all(tenant: Tenant) -> None:
    """Note the folders of a tenant about to be deleted, in the same transaction."""
    for upload_id in of(tenant).values_list("pk", flat=True):
        execute(objects.NOTE, (objects.folder_of_upload(tenant.pk, upload_id),))


def of(tenant: Tenant) -> QuerySet[Any]:
    return Upload.objects.unscoped().for_tenant(tenant.pk)  # it is named


def shown(row: Upload) -> dict[str, Any]:
    """An upload as the API shows it."""
    return {
        "id": row.pk, "name": row.name, "content_type": row.content_type, "size": row.size, "received": row.received,
        "sha256": row.sha256 or None, "created_at": row.created_at, "finished_at": row.finished_at,
        "expires_at": row.expires_at,
    }  # fmt: skip
