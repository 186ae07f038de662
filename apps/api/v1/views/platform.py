"""What a tenant sees of the platform: nodes, its lines, its limits."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.base import READ, ApiView, PublicView
from apps.api.schema import describe
from apps.api.v1 import serializers as shapes
from apps.tasks import overview
from scheduler_ext.core.errors import NotFound


class Nodes(ApiView):
    """``/api/v1/nodes``"""

    scopes = {"GET": READ}

    @describe(
        "list_nodes",
        summary="List the nodes that run your tasks",
        tag="platform",
        scope=READ,
        answers={200: shapes.listing(shapes.NodeOut, paged=False)},
    )
    def get(self, request: Request) -> Response:
        """The live nodes of the tenant's cell, with its own tasks on each."""
        return Response({"items": overview.nodes(self.principal.tenant)})


class Queues(ApiView):
    """``/api/v1/queues``"""

    scopes = {"GET": READ}

    @describe(
        "list_queues",
        summary="List your lines and what stands in them",
        tag="platform",
        scope=READ,
        answers={200: shapes.listing(shapes.QueueOut, paged=False)},
    )
    def get(self, request: Request) -> Response:
        """One row for each category and tier the tenant has used."""
        return Response({"items": overview.queues(self.principal.tenant)})


class Limits(ApiView):
    """``/api/v1/limits``"""

    scopes = {"GET": READ}

    @describe(
        "get_limits",
        summary="Read your plan's limits and what is used of them",
        tag="platform",
        scope=READ,
        answers={200: shapes.LimitsOut},
    )
    def get(self, request: Request) -> Response:
        """The plan's numbers beside the counters."""
        return Response(overview.limits(self.principal.tenant))


class Nowhere(PublicView):
    """What no endpoint answers: a problem like every other, not a page."""

    schema = None

    def _none(self, *args: object, **kwargs: object) -> Response:
        raise NotFound("There is no such endpoint.")

    get = post = put = patch = delete = _none
