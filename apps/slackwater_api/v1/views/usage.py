"""The use of a tenant."""

from __future__ import annotations

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

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
        first, last = usage.days(query.get("since"), query.get("until"), ("since", "until"))
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
