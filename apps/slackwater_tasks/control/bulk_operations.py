"""Operations on everything that matches, in the background: the tasks are noted at once, upkeep takes them part by part.

A part is done in the transaction that marks it so. Whatever is killed in between, each task is taken once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection, transaction
from django.db.models import Count, F, Q, QuerySet
from django.utils import timezone

from scheduler_ext.core.errors import Conflict, LimitExceeded
from scheduler_ext.core.states import TaskState
from slackwater_conf.database import in_ledger
from slackwater_tasks.control import bulk
from slackwater_tasks.control.rerun import MAY_RUN_AGAIN
from slackwater_tasks.models import BulkOperation, BulkPart, Task
from slackwater_tenants.models import Tenant

Kind, Status = BulkOperation.Kind, BulkOperation.Status
PART: Final = 1_000
KEPT: Final = timedelta(days=90)
WAIT_S: Final = 10.0
"""When a limit does not say from when on it lets more through."""
NOTE: Final = """
INSERT INTO slackwater_tasks_bulkpart (operation_id, tenant_id, first, ids)
SELECT %s, tenant_id, first, array_agg(id ORDER BY id) FROM (
    SELECT tenant_id, id, first, row_number() OVER (PARTITION BY tenant_id, first ORDER BY id) - 1 AS n
    FROM (SELECT tenant_id, id, row_number() OVER (ORDER BY id) <= %s AS first FROM ({}) matching) numbered) cut
GROUP BY tenant_id, first, n / {} ORDER BY first DESC, n / {}, tenant_id
RETURNING cardinality(ids)
"""


def matching(kind: str, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Those of the tasks to which it can be done now."""
    if kind == Kind.CANCEL:
        return rows.filter(live__isnull=False).exclude(live__state=TaskState.RUNNING, live__cancel_requested=True)
    return rows.filter(state__in=[int(state) for state in MAY_RUN_AGAIN])


@in_ledger
def begin(kind: str, rows: QuerySet[Any], *, what: str, reason: str, actor: str, first: int = 0) -> BulkOperation:
    """Note all tasks of ``rows`` to which it can be done, in one statement; with ``first`` so many try it for the rest.

    ``Conflict`` when there are none.
    """
    chosen = matching(kind, rows).order_by().values_list("tenant_id", "id")
    nothing = Conflict("none of them can be " + ("cancelled" if kind == Kind.CANCEL else "run again"))
    try:
        sql, params = chosen.query.sql_with_params()
    except EmptyResultSet:
        raise nothing from None
    with transaction.atomic(), connection.cursor() as cur:
        BulkOperation.objects.filter(ended_at__lt=timezone.now() - KEPT).delete()
        made = BulkOperation.objects.create(
            kind=kind, what=what[:300], reason=reason[:150], actor=actor[:120], first=first
        )
        cur.execute(NOTE.format(sql, PART, PART), (made.pk, first, *params))
        made.total = sum(row[0] for row in cur.fetchall())
        if not made.total:
            raise nothing
        made.save(update_fields=["total"])
    return made


@in_ledger
def stop(operation: BulkOperation, *, actor: str) -> None:
    """Leave the tasks that are not done as they are; ``Conflict`` when it has ended."""
    if not _end(operation.pk, Status.STOPPED, f"stopped by {actor}"):
        raise Conflict("it has ended")


def _end(pk: UUID, status: str, note: str = "") -> int:
    told = {"note": note} if note else {}
    return BulkOperation.objects.filter(pk=pk, status=Status.OPEN).update(
        status=status, ended_at=timezone.now(), **told
    )


def tasks_of(operation: BulkOperation, **which: Any) -> QuerySet[Any]:
    """Its tasks, whosever they are."""
    ids = BulkPart.objects.filter(operation=operation, **which).values_list("ids", flat=True)
    return Task.objects.unscoped().filter(pk__in=[each for part in ids for each in part])


@in_ledger
def advance() -> int:
    """Do one part of the open operation that was touched the longest ago; returns how many tasks it took."""
    now = timezone.now()
    with transaction.atomic():
        rows = BulkOperation.objects.select_for_update(skip_locked=True)
        operation = rows.filter(status=Status.OPEN).order_by("moved_at").first()
        if operation is None:
            return 0
        BulkOperation.objects.filter(pk=operation.pk).update(moved_at=now)
        left = operation.parts.filter(done=False)
        if not left.exists():
            _end(operation.pk, Status.DONE)
            return 1
        if operation.first and not left.filter(first=True).exists() and not _proven(operation):
            return 0
        due = left.filter(Q(retry_at=None) | Q(retry_at__lte=now))
        if operation.first and left.filter(first=True).exists():
            due = due.filter(first=True)
        part = due.select_related("tenant__plan").order_by("pk").first()
        return _do(operation, part) if part is not None else 0


def _proven(operation: BulkOperation) -> bool:
    """Whether the first tasks have all succeeded; one that ends otherwise stops the operation."""
    ends = dict(tasks_of(operation, first=True).order_by().values_list("state").annotate(Count("pk")))
    good = ends.pop(int(TaskState.SUCCEEDED), 0)
    running = ends.pop(None, 0)
    if ends:
        note = f"{sum(ends.values())} of the first {operation.first} did not succeed: the rest was left as it was"
        _end(operation.pk, Status.STOPPED, note)
        return False
    told = "" if not running else f"waits for the first {operation.first}: {good} succeeded so far"
    if told != operation.note:
        BulkOperation.objects.filter(pk=operation.pk).update(note=told)
        operation.note = told
    return not running


WORK: Final[dict[str, Callable[..., bulk.Done]]] = {Kind.CANCEL: bulk.cancel_matching, Kind.RETRY: bulk.retry_matching}


def _do(operation: BulkOperation, part: BulkPart) -> int:
    """Do one part, or as much of it as its tenant's plan takes at once."""
    tenant: Tenant = part.tenant
    rows = Task.objects.unscoped().for_tenant(tenant.pk).filter(pk__in=part.ids)  # the part says whose they are
    try:
        found = WORK[operation.kind](
            tenant, rows, actor=operation.actor, limit=PART, reason=operation.reason
        )  # fmt: skip
    except LimitExceeded as error:
        part.retry_at = timezone.now() + timedelta(seconds=min(error.retry_after or WAIT_S, 60.0))
        part.save(update_fields=["retry_at"])
        BulkOperation.objects.filter(pk=operation.pk).update(note=f"{tenant.slug}: {error}; it goes on later"[:300])
        return 0
    taken = [each for each in part.ids if found.next is None or each <= found.next]
    part.ids, rest = taken, part.ids[len(taken) :]
    part.done = True
    part.save(update_fields=["ids", "done"])
    if rest:
        BulkPart.objects.create(operation=operation, tenant=tenant, ids=rest, first=part.first)
    note = f"{found.skipped[-1]['task_id']}: {found.skipped[-1]['detail']}" if found.skipped else operation.note
    BulkOperation.objects.filter(pk=operation.pk).update(
        done=F("done") + len(found.task_ids), asked=F("asked") + len(found.asked_task_ids),
        passed=F("passed") + len(taken) - len(found.task_ids), note=note[:300],
    )  # fmt: skip
    return len(taken)
