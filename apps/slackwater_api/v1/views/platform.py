"""The platform as a tenant sees it: nodes, its lines, its limits, execution rates and usage; nodes for operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

import structlog
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import NotFound
from slackwater_api.http.body import read_json
from slackwater_api.http.endpoint import CANCEL, MANAGE, OPERATE, READ, ApiView, PublicView, created
from slackwater_api.http.openapi import describe, request_example
from slackwater_api.http.operation import page_of
from slackwater_api.http.pagination import PAGING
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.notify import UsageHint, UsageOut
from slackwater_api.v1.shapes.platform import LimitsOut, NodeChanged, NodeOut, QueueChange, QueueOut, RateIn, RateOut
from slackwater_monitoring import right_sizing, usage
from slackwater_resources import services
from slackwater_resources.models import Node
from slackwater_tasks.control import lines, rate_limits
from slackwater_tasks.read import overview
from slackwater_tasks.read.overview import find_lines

log = structlog.get_logger(__name__)
ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}")


class Nodes(ApiView, path="nodes", tag="platform"):
    @describe("list_nodes", "List the nodes that run your tasks", READ, {200: listing(NodeOut)})
    def get(self, request: Request) -> Response:
        """The live nodes of the tenant's cell, with its own tasks on each."""
        return Response({"items": overview.nodes(self.tenant)})


class Queues(ApiView, path="queues", tag="platform"):
    @describe("list_queues", "List your lines with their numbers of tasks", READ, {200: listing(QueueOut)})
    def get(self, request: Request) -> Response:
        """One row for each category and tier the tenant has used."""
        return Response({"items": overview.queues(self.tenant)})


class OneQueue(ApiView, path="queues/<str:category>/<str:tier_name>", tag="platform"):
    @describe("get_queue", "Get one of your lines", READ, {200: QueueOut})
    def get(self, request: Request, category: str, tier_name: str) -> Response:
        return Response(overview.queue(self.tenant, category, tier_name))

    @describe(
        "change_queue",
        "Pause or resume one of your lines",
        CANCEL,
        {200: QueueOut},
        body=QueueChange,
        conditional=True,
        examples=[request_example("pause", {"paused": True})],
    )
    def patch(self, request: Request, category: str, tier_name: str) -> Response:
        """Its tasks are accepted and none is started; time paused does not count against delay tolerances."""
        tenant_id = self.tenant.pk
        with self.unchanged(find_lines(tenant_id, category, tier_name)):
            lines.change_own_line(tenant_id, category, tier_name, read_json(request._request))
        return self.get(request, category, tier_name)


class Limits(ApiView, path="limits", tag="platform"):
    @describe("get_limits", "Get your plan's limits and how much of them is used", READ, {200: LimitsOut})
    def get(self, request: Request) -> Response:
        return Response(overview.limits(self.tenant))


class NodeChange(ApiView):
    """Operations on one node of any cell."""

    def change(self, node_id: UUID, doing: Callable[[Node], None]) -> Response:
        """Do it, and say so in the log: a node has no history of its own."""
        node = services.find_node(node_id)
        doing(node)
        log.info("node changed", node=node.pk, name=node.name, state=node.state, actor=self.actor)
        return Response({"id": node.incarnation, "name": node.name, "cell": node.cell, "state": node.state})


class DrainNode(NodeChange, path="nodes/<uuid:node_id>/drain", tag="platform"):
    @describe("drain_node", "Drain a node", OPERATE, {200: NodeChanged}, problems=(409,))
    def post(self, request: Request, node_id: UUID) -> Response:
        """What has not begun goes back within a second, what saves checkpoints yields, the rest is finished."""
        return self.change(node_id, services.drain_node)


class ResumeNode(NodeChange, path="nodes/<uuid:node_id>/resume", tag="platform"):
    @describe("resume_node", "Resume a draining node", OPERATE, {200: NodeChanged}, problems=(409,))
    def post(self, request: Request, node_id: UUID) -> Response:
        """A node that left or was lost comes back by itself, when its worker starts."""
        return self.change(node_id, services.activate_node)


class Rates(ApiView, path="rates", tag="limits"):
    @describe("list_rates", "List the execution rates that apply to your tasks", READ, {200: listing(RateOut)})
    def get(self, request: Request) -> Response:
        """Your own and those that operators set."""
        return Response({"items": rate_limits.limits_of(self.tenant)})

    @describe(
        "set_rate",
        "Limit how often tasks start",
        MANAGE,
        {201: RateOut},
        problems=(409,),
        body=RateIn,
        examples=[request_example("60 calls a minute", {"key": "bank", "starts": 60, "window_s": 60})],
    )
    def post(self, request: Request) -> Response:
        """At most so many starts in any span of so many seconds; takes effect within a second."""
        made = rate_limits.set_limit(self.tenant, read_json(request._request))
        return created(made, f"/api/v1/rates/{made['id']}")


class OneRate(ApiView, path="rates/<uuid:rate_id>", tag="limits"):
    @describe(
        "delete_rate",
        "Remove an execution rate of your own",
        MANAGE,
        {204: None},
    )
    def delete(self, request: Request, rate_id: UUID) -> Response:
        """What waits for it goes on within a second."""
        rate_limits.remove_limit(self.tenant, rate_id)
        return Response(status=204)


class Usage(ApiView, path="usage", tag="platform"):
    @describe(
        "get_usage",
        "Get your usage by day, tier and category",
        READ,
        {200: UsageOut},
        OpenApiParameter("since", OpenApiTypes.DATE, description="First day (UTC); the month's first by default."),
        OpenApiParameter("until", OpenApiTypes.DATE, description="Last day (UTC); today by default."),
        *PAGING,
    )
    def get(self, request: Request) -> Response:
        """The sum, and a row for each day, tier and category; the last few seconds may not be in yet."""
        query = request.query_params
        first, last = usage.days(query.get("since"), query.get("until"), ("since", "until"))
        found = usage.read(self.tenant.pk, first, last)
        return Response({**found, **page_of(found["items"], query, ())})


class UsageHints(ApiView, path="usage/hints", tag="platform"):
    @describe(
        "list_usage_hints",
        "List tasks that would fit a smaller tier, by the usage of their last runs",
        READ,
        {200: listing(UsageHint)},
    )
    def get(self, request: Request) -> Response:
        """One row for each handler or script and tier, measured in its last 20 to 200 runs."""
        return Response({"items": right_sizing.hints(self.tenant)})


class Nowhere(PublicView):
    """Addresses without an endpoint: they answer with a problem, not with a page."""

    schema = None

    def _none(self, request: Request, **given: str) -> Response:
        """``given``: what stands in the address of an endpoint where an id should."""
        for name, text in given.items():
            if not ID.fullmatch(text):
                word = "lower-case " if ID.fullmatch(text.lower()) else ""
                raise NotFound(f"{text[:60]!r} is no {word}id: there is none such.", field=name)
        raise NotFound("There is no such endpoint.")

    get = post = put = patch = delete = _none
