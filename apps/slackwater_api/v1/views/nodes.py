"""Draining and resuming nodes, for those who run the platform."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from slackwater_api.http.endpoint import OPERATE, ApiView
from slackwater_api.http.openapi import describe
from slackwater_api.v1.shapes import platform as shapes
from slackwater_resources import services
from slackwater_resources.models import Node

NODE = OpenApiParameter("node_id", OpenApiTypes.INT64, OpenApiParameter.PATH, description="The node's id.")
log = structlog.get_logger(__name__)


class NodeChange(ApiView):
    """Operations on one node of any cell."""

    def change(self, node_id: int, doing: Callable[[Node], None]) -> Response:
        """Do it, and say so in the log: a node has no history of its own."""
        node = services.find_node(node_id)
        doing(node)
        log.info("node changed", node=node.pk, name=node.name, state=node.state, actor=self.principal.actor)
        return Response({"id": node.pk, "name": node.name, "cell": node.cell, "state": node.state})


class DrainNode(NodeChange, tag="platform"):
    """``/api/v1/nodes/{id}/drain``"""

    @describe("drain_node", "Give a node nothing new", OPERATE, {200: shapes.NodeChanged}, NODE, problems=(409,))
    def post(self, request: Request, node_id: int) -> Response:
        """What has not begun goes back within a second, what saves checkpoints yields, the rest is finished."""
        return self.change(node_id, services.drain_node)


class ResumeNode(NodeChange, tag="platform"):
    """``/api/v1/nodes/{id}/resume``"""

    @describe(
        "resume_node", "Give a draining node work again", OPERATE, {200: shapes.NodeChanged}, NODE, problems=(409,)
    )
    def post(self, request: Request, node_id: int) -> Response:
        """A node that left or was lost comes back by itself, when its worker starts."""
        return self.change(node_id, services.activate_node)
