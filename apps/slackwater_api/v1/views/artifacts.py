"""Files that tasks left behind: list, download."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from slackwater_api.http import ranges
from slackwater_api.http.endpoint import READ, ApiView
from slackwater_api.http.openapi import describe
from slackwater_api.v1.shapes.common import listing
from slackwater_tasks.runtime import artifacts


class ArtifactOut(s.Serializer[Any]):
    """A file that a task left behind."""

    name = s.CharField()
    content_type = s.CharField(help_text="As the task says; downloads come as application/octet-stream.")
    size = s.IntegerField(help_text="Bytes.")
    sha256 = s.CharField()
    saved_at = s.DateTimeField()


class TaskArtifacts(ApiView, path="tasks/<uuid:task_id>/artifacts", tag="tasks"):
    @describe("list_task_artifacts", "List the files a task left behind", READ, {200: listing(ArtifactOut)})
    def get(self, request: Request, task_id: UUID) -> Response:
        return Response({"items": artifacts.listed(artifacts.of_task(task_id).order_by("name"))})


class OneArtifact(ApiView, path="tasks/<uuid:task_id>/artifacts/<path:artifact_name>", tag="tasks"):
    @describe(
        "get_task_artifact",
        "Download a file a task left behind",
        READ,
        {200: OpenApiTypes.BINARY, 206: OpenApiTypes.BINARY},
        *ranges.HEADERS,
        problems=(416,),
        media="application/octet-stream",
    )
    def get(self, request: Request, task_id: UUID, artifact_name: str) -> HttpResponseBase:
        """Its bytes, or one range of them, to be saved."""
        found = artifacts.get(task_id, artifact_name)
        name = found.name.rpartition("/")[2]
        response = ranges.download(request, name, found.size, found.sha256, partial(artifacts.content, found))
        response["X-Artifact-SHA256"] = found.sha256
        return response
