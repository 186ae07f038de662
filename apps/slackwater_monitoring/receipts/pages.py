"""Receipts stored: a sealed page for each tenant and account, which continues the tenant's chain.

A page and the marks of what it accounts for are one transaction, and a page's first number is unique: no crash loses or
doubles a receipt, and no two processes continue a chain twice.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from slackwater_monitoring.models import ReceiptPage
from slackwater_monitoring.receipts import keys
from slackwater_monitoring.receipts.account import Receipt
from slackwater_monitoring.receipts.chain import START, chained, sealed_text
from slackwater_monitoring.receipts.moments import Texts, as_datetime, since_epoch
from slackwater_tasks.ledger.connection import fetch_all

KEPT_DAYS: Final = 400
# One row of each tenant's pages: there are many.
HEADS = """
SELECT n.id, n.slug, p.last + 1, p.head FROM slackwater_tenants_tenant n LEFT JOIN LATERAL (
    SELECT last, head FROM slackwater_monitoring_receiptpage WHERE tenant_id = n.id ORDER BY first DESC LIMIT 1) p ON true
WHERE n.id = ANY(%s) ORDER BY n.id
"""
WRITE = """
INSERT INTO slackwater_monitoring_receiptpage
    (tenant_id, first, last, since, until, charged_micros, before, head, key_id, signature, body)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
# The newest page of a tenant stays: the next one follows it.
OLD = """
DELETE FROM slackwater_monitoring_receiptpage p USING (
    SELECT tenant_id, first FROM slackwater_monitoring_receiptpage x WHERE until < clock_timestamp() - %s * interval '1 day'
        AND EXISTS (SELECT 1 FROM slackwater_monitoring_receiptpage y WHERE y.tenant_id = x.tenant_id AND y.first > x.first)
    ORDER BY until LIMIT %s) old
WHERE p.tenant_id = old.tenant_id AND p.first = old.first
"""
MOMENTS = """
SELECT finished_at FROM slackwater_tasks_attempt WHERE task_id = %s AND tenant_id = %s
UNION SELECT at FROM slackwater_tasks_taskevent WHERE task_id = %s AND tenant_id = %s
"""


def write(conn: Any, receipts: Iterable[Receipt]) -> int:
    """Continue the chains of the tenants with their receipts; returns how many there were."""
    found: dict[int, list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        found[receipt.tenant].append(receipt)
    if not found:
        return 0
    name, private = keys.current(conn)
    rows = []
    for tenant, slug, first, head in conn.execute(HEADS, (list(found),)).fetchall():  # but those that go just now
        page = found[tenant]
        first, start = first or 1, START if head is None else bytes(head)  # noqa: PLW2901 - of the first page
        head, lines = start, []  # noqa: PLW2901
        for number, receipt in enumerate(page, first):
            line = receipt.text(number)
            head = chained(head, line)  # noqa: PLW2901
            lines.append(line)
        ends = [receipt.at for receipt in page]
        charged = sum(receipt.charged_micros for receipt in page)
        last = first + len(page) - 1
        signature = private.sign(sealed_text(slug, last, head))
        body = zlib.compress(b"\n".join(lines), 1)
        rows.append((tenant, first, last, as_datetime(min(ends)), as_datetime(max(ends)), charged, start, head,
                     name, signature, body))  # fmt: skip
    conn.cursor().executemany(WRITE, rows)
    return sum(map(len, found.values()))


def shown(page: ReceiptPage, slug: str) -> Iterator[dict[str, Any]]:
    """The receipts of a page with their proof, as clients see them."""
    head = bytes(page.before)
    for number, line in enumerate(zlib.decompress(page.body).split(b"\n"), page.first):
        own = chained(head, line)
        seal = None
        if number == page.last:
            seal = {"tenant": slug, "key_id": page.key_id, "signature": base64.b64encode(page.signature).decode()}
        yield {**json.loads(line), "previous": head.hex(), "hash": own.hex(), "seal": seal}
        head = own


def listed(tenant_id: int, slug: str, *, after: int, limit: int, since: datetime | None, until: datetime | None,
           task_id: UUID | None) -> tuple[list[dict[str, Any]], bool]:  # fmt: skip
    """Receipts by number, and whether there are more.

    ``since``, ``until``: of their ends, the latter not included. ``task_id``: found while the task itself is kept.
    """
    rows = ReceiptPage.objects.unscoped().filter(tenant_id=tenant_id)  # the tenant is named
    if since is not None:
        rows = rows.filter(until__gte=since)
    if until is not None:
        rows = rows.filter(since__lt=until)
    if task_id is not None:
        moments = [row[0] for row in fetch_all(MOMENTS, [task_id, tenant_id, task_id, tenant_id])]
        wanted = Q(first=0)  # none
        for at in moments:
            wanted |= Q(since__lte=at, until__gte=at)
        rows = rows.filter(wanted)
    found: list[dict[str, Any]] = []
    low, high = (None if at is None else Texts().of(since_epoch(at))[1:-1] for at in (since, until))
    task = str(task_id) if task_id else None
    for page in rows.filter(last__gt=after).order_by("first").iterator(chunk_size=4):
        for receipt in shown(page, slug):
            if receipt["number"] <= after or (task and receipt["task_id"] != task):
                continue
            if (low and receipt["ended_at"] < low) or (high and receipt["ended_at"] >= high):
                continue
            if len(found) == limit:
                return found, True
            found.append(receipt)
    return found, False
