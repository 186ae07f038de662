"""Receipts of what has ended, and the keys that seal them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.endpoint import READ, ApiView
from slackwater_api.http.openapi import describe
from slackwater_api.http.pagination import PAGING, asked_page, decode, encode
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.receipts import ReceiptKeyOut, ReceiptOut
from slackwater_monitoring.receipts import keys, pages
from slackwater_tasks.field_kinds import Moment

MOMENT = Moment()


class Receipts(ApiView, path="receipts", tag="platform"):
    @describe(
        "list_receipts",
        "List the receipts of what has ended, oldest first",
        READ,
        {200: listing(ReceiptOut)},
        OpenApiParameter("ended_after", datetime, description="Only what ended then or later."),
        OpenApiParameter("ended_before", datetime, description="Only what ended before."),
        OpenApiParameter("task_id", UUID, description="Only those of a task; found while the task itself is kept."),
        *PAGING,
    )
    def get(self, request: Request) -> Response:
        """A page of them, in the order of their chain. What ended in the last few seconds may have none yet."""
        query = request.query_params
        limit, cursor = asked_page(query)
        after = decode(cursor, int)[0] if cursor else 0
        items, more = pages.listed(
            self.tenant.pk, self.tenant.slug, after=after, limit=limit, since=_moment(query, "ended_after"),
            until=_moment(query, "ended_before"), task_id=_id(query.get("task_id")),
        )  # fmt: skip
        return Response({"items": items, "next_cursor": encode(str(items[-1]["number"])) if more else None})


def _moment(query: Any, name: str) -> datetime | None:
    found: datetime | None = MOMENT.check(query[name], name) if name in query else None
    return found


def _id(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        raise InvalidInput("must be the id of a task", field="task_id") from None


class ReceiptKeys(ApiView, path="receipt-keys", tag="platform"):
    @describe("list_receipt_keys", "List the public keys that seal receipts", READ, {200: listing(ReceiptKeyOut)})
    def get(self, request: Request) -> Response:
        """All there ever were, the newest first: receipts are checked with them, also where no server is."""
        return Response({"items": keys.published()})
