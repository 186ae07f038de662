"""The use of a tenant."""

from __future__ import annotations

from datetime import UTC, date, datetime

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.endpoint import READ, ApiView
from slackwater_api.http.openapi import describe
from slackwater_api.v1.shapes import notify as shapes
from slackwater_api.v1.shapes.common import listing
from slackwater_monitoring import right_sizing, usage


class Usage(ApiView, tag="platform"):
    """``/api/v1/usage``"""

    @describe(
        "get_usage",
        "Read what you have used, by day, tier and category",
        READ,
        {200: shapes.UsageOut},
        OpenApiParameter("since", OpenApiTypes.DATE, description="First day (UTC); the month's first by default."),
        OpenApiParameter("until", OpenApiTypes.DATE, description="Last day (UTC); today by default."),
    )
    def get(self, request: Request) -> Response:
        """The sum, and a row for each day, tier and category; the last few seconds may not be in yet."""
        query = request.query_params
        today = datetime.now(UTC).date()
        last = _day(query.get("until"), "until") or today
        first = _day(query.get("since"), "since") or min(last, today).replace(day=1)
        return Response(usage.read(self.tenant.pk, first, last))


class UsageHints(ApiView, tag="platform"):
    """``/api/v1/usage/hints``"""

    @describe(
        "list_usage_hints",
        "List what would run in a smaller tier, by what its last runs used",
        READ,
        {200: listing(shapes.UsageHint, paged=False)},
    )
    def get(self, request: Request) -> Response:
        """One row for each handler or script and tier, measured in its last 20 to 200 runs."""
        return Response({"items": right_sizing.hints(self.tenant)})


def _day(text: str | None, field: str) -> date | None:
    if not text:
        return None
    try:
        found = date.fromisoformat(text) if len(text) == 10 else None
    except ValueError:
        found = None
    if found is None:
        raise InvalidInput("must be a day: 2030-01-31", field=field)
    return found
