"""Receipts stored: a sealed page for each tenant and account, which continues the tenant's chain.

A page and the marks of what it accounts for are one transaction, and a page's first number is unique: no crash loses or
doubles a receipt, and no two processes continue a chain twice.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from slackwater_monitoring.models import ReceiptPage
from slackwater_monitoring.receipts import keys
from slackwater_monitoring.receipts.account import Receipt, moment
from slackwater_monitoring.receipts.chain import START, chained, sealed_text
from slackwater_tasks.ledger.connection import fetch_all

KEPT_DAYS: Final = 400
HEADS = """
SELECT DISTINCT ON (tenant_id) tenant_id, last + 1, head FROM slackwater_monitoring_receiptpage
WHERE tenant_id = ANY(%s) ORDER BY tenant_id, first DESC
"""
SLUGS = "SELECT id, slug FROM slackwater_tenants_tenant WHERE id = ANY(%s)"
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
    found = sorted(receipts, key=attrgetter("tenant"))
    tenants = sorted({receipt.tenant for receipt in found})
    if not tenants:
        return 0
    heads = {row[0]: (row[1], bytes(row[2])) for row in conn.execute(HEADS, (tenants,)).fetchall()}
    slugs = dict(conn.execute(SLUGS, (tenants,)).fetchall())
    name, private = keys.current(conn)
    for tenant, group in groupby(found, key=attrgetter("tenant")):
        if tenant not in slugs:
            continue  # it goes just now
        first, head = heads.get(tenant, (1, START))
        page, start = list(group), head
        lines = []
        for number, receipt in enumerate(page, first):
            line = receipt.text(number)
            head = chained(head, line)
            lines.append(line)
        moments = [receipt.at for receipt in page]
        charged = sum(receipt.charged_micros for receipt in page)
        last = first + len(page) - 1
        signature = private.sign(sealed_text(slugs[tenant], last, head))
        body = zlib.compress(b"\n".join(lines), 1)
        conn.execute(WRITE, (tenant, first, last, min(moments), max(moments), charged, start, head, name,
                             signature, body))  # fmt: skip
    return len(found)


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
    low, high = (None if at is None else moment(at) for at in (since, until))
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
