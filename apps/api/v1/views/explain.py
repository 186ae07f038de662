"""Why a task waits."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.base import READ, ApiView
from apps.api.schema import describe, path_id
from apps.api.v1.shapes.explain import Explanation
from apps.tasks import explaining


class ExplainTask(ApiView):
    """``/api/v1/tasks/{id}/explain``"""

    scopes = {"GET": READ}

    @describe(
        "explain_task",
        summary="Ask why a task waits",
        tag="tasks",
        scope=READ,
        answers={200: Explanation},
        problems=(404,),
        parameters=[path_id("task_id", "task")],
    )
    def get(self, request: Request, task_id: UUID) -> Response:
        """Every blocker by name, what would remove it, and when the task will likely start."""
        return Response(explaining.explain(task_id))
