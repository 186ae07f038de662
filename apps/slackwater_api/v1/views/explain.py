"""Why a task waits."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from slackwater_api.http.endpoint import READ, ApiView
from slackwater_api.http.openapi import describe
from slackwater_api.v1.shapes.explain import Explanation
from slackwater_tasks.explain import explanation


class ExplainTask(ApiView, path="tasks/<uuid:task_id>/explain", tag="tasks"):
    @describe("explain_task", "Explain why a task waits", READ, {200: Explanation})
    def get(self, request: Request, task_id: UUID) -> Response:
        """Every blocker by name, what would remove it, and when the task will likely start."""
        return Response(explanation.explain(task_id))
