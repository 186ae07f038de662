"""The platform as a tenant sees it: nodes, its lines, its limits."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import NotFound
from slackwater_api.http.body import read_json
from slackwater_api.http.endpoint import CANCEL, READ, ApiView, PublicView
from slackwater_api.http.openapi import describe, request_example
from slackwater_api.http.operation import unchanged
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.platform import LimitsOut, NodeOut, QueueChange, QueueOut
from slackwater_tasks.control import lines
from slackwater_tasks.models import Line
from slackwater_tasks.read import overview
from slackwater_tasks.read.lines import find_line

CATEGORY = OpenApiParameter("category", str, OpenApiParameter.PATH, description="The line's category.")
TIER = OpenApiParameter("tier_name", str, OpenApiParameter.PATH, description="The name of its tier.")


class Nodes(ApiView, tag="platform"):
    """``/api/v1/nodes``"""

    @describe("list_nodes", "List the nodes that run your tasks", READ, {200: listing(NodeOut, paged=False)})
    def get(self, request: Request) -> Response:
        """The live nodes of the tenant's cell, with its own tasks on each."""
        return Response({"items": overview.nodes(self.tenant)})


class Queues(ApiView, tag="platform"):
    """``/api/v1/queues``"""

    @describe("list_queues", "List your lines and what stands in them", READ, {200: listing(QueueOut, paged=False)})
    def get(self, request: Request) -> Response:
        """One row for each category and tier the tenant has used."""
        return Response({"items": overview.queues(self.tenant)})


class OneQueue(ApiView, tag="platform"):
    """``/api/v1/queues/{category}/{tier_name}``"""

    @describe("get_queue", "Look at one of your lines", READ, {200: QueueOut}, CATEGORY, TIER)
    def get(self, request: Request, category: str, tier_name: str) -> Response:
        """What stands in it."""
        return Response(overview.queue(self.tenant, category, tier_name))

    @describe(
        "change_queue",
        "Pause one of your lines, or let it go on",
        CANCEL,
        {200: QueueOut},
        CATEGORY,
        TIER,
        body=QueueChange,
        conditional=True,
        examples=[request_example("pause", {"paused": True})],
    )
    def patch(self, request: Request, category: str, tier_name: str) -> Response:
        """Its tasks are accepted and none is started; time paused does not count against delay tolerances."""
        tenant = self.tenant
        rows = Line.objects.filter(pk=find_line(tenant.pk, category, tier_name).pk)
        with unchanged(request, rows, lambda: overview.queue(tenant, category, tier_name)):
            lines.change_own_line(tenant.pk, category, tier_name, read_json(request._request))
        return Response(overview.queue(tenant, category, tier_name))


class Limits(ApiView, tag="platform"):
    """``/api/v1/limits``"""

    @describe("get_limits", "Read your plan's limits and what is used of them", READ, {200: LimitsOut})
    def get(self, request: Request) -> Response:
        """The plan's numbers beside the counters."""
        return Response(overview.limits(self.tenant))


class Nowhere(PublicView):
    """Addresses without an endpoint: they answer with a problem, not with a page."""

    schema = None

    def _none(self, *args: object, **kwargs: object) -> Response:
        raise NotFound("There is no such endpoint.")

    get = post = put = patch = delete = _none
