"""Execution rates: at most so many starts in a time frame."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from slackwater_api.http.body import read_json
from slackwater_api.http.endpoint import MANAGE, READ, ApiView, created
from slackwater_api.http.openapi import describe, request_example
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.rates import RateIn, RateOut
from slackwater_tasks.control import rate_limits


class Rates(ApiView, tag="limits"):
    """``/api/v1/rates``"""

    @describe(
        "list_rates", "List the execution rates that apply to your tasks", READ, {200: listing(RateOut, paged=False)}
    )
    def get(self, request: Request) -> Response:
        """Your own and those that operators set."""
        return Response({"items": rate_limits.limits_of(self.tenant)})

    @describe(
        "set_rate",
        "Limit how often tasks start",
        MANAGE,
        {201: RateOut},
        problems=(409, 429),
        body=RateIn,
        examples=[request_example("60 calls a minute", {"key": "bank", "starts": 60, "per_seconds": 60})],
    )
    def post(self, request: Request) -> Response:
        """At most so many starts in any span of so many seconds; takes effect within a second."""
        made = rate_limits.set_limit(self.tenant, read_json(request._request))
        return created(made, f"/api/v1/rates/{made['id']}")


class OneRate(ApiView, tag="limits"):
    """``/api/v1/rates/{id}``"""

    @describe(
        "delete_rate",
        "Remove an execution rate of your own",
        MANAGE,
        {204: None},
        OpenApiParameter("rate_id", int, OpenApiParameter.PATH, description="Its id."),
    )
    def delete(self, request: Request, rate_id: int) -> Response:
        """What waits for it goes on within a second."""
        rate_limits.remove_limit(self.tenant, rate_id)
        return Response(status=204)
