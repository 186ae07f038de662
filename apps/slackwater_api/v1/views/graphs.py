"""Graphs of tasks, and what is done to whole workflows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.body import read_json, read_object
from slackwater_api.http.endpoint import CANCEL, READ, SUBMIT, ApiView, created
from slackwater_api.http.openapi import (
    EXAMPLE_ID,
    IDEMPOTENCY_KEY,
    TRACE_CONTEXT,
    answer_example,
    describe,
    path_id,
    request_example,
)
from slackwater_api.v1.shapes import graphs as shapes
from slackwater_api.v1.shapes.tasks import WorkflowSubmitted
from slackwater_api.v1.views.tasks import idempotency_key
from slackwater_tasks.control import workflows
from slackwater_tasks.control.workflow_rerun import rerun
from slackwater_tasks.graph import relatives
from slackwater_tasks.runtime import trace_context

GROWTH = {"tasks": [{"name": "extra", "handler": "demo.echo"}]}


class TaskGraph(ApiView):
    """``/api/v1/tasks/{id}/graph``"""

    scopes = {"GET": READ}

    @describe(
        "get_task_graph",
        summary="Look at the graph around a task",
        tag="tasks",
        scope=READ,
        answers={200: shapes.TaskGraphOut},
        problems=(404, 413),
        parameters=[path_id("task_id", "task")],
    )
    def get(self, request: Request, task_id: UUID) -> Response:
        """Ancestors, descendants, a topological order of both, and the longest way through the task."""
        return Response(relatives.graph(task_id))


class WorkflowTasks(ApiView):
    """``/api/v1/workflows/{id}/tasks``"""

    scopes = {"POST": SUBMIT}

    @describe(
        "add_workflow_tasks",
        summary="Add tasks to a workflow",
        tag="workflows",
        scope=SUBMIT,
        body=shapes.WorkflowGrowth,
        answers={201: WorkflowSubmitted, 200: WorkflowSubmitted},
        problems=(404, 409, 429),
        parameters=[path_id("workflow_id", "workflow"), IDEMPOTENCY_KEY, *TRACE_CONTEXT],
        examples=[
            request_example("one more", GROWTH),
            answer_example("stored", {"id": EXAMPLE_ID, "task_ids": [EXAMPLE_ID], "created": True}, 201),
        ],
    )
    def post(self, request: Request, workflow_id: UUID) -> Response:
        """Add tasks, all or none, whether it runs or has ended; what is there stays as it is."""
        data, principal = read_json(request._request), self.principal
        if not isinstance(data, dict):
            raise InvalidInput("The body must be an object.")
        for name in data:
            if name != "tasks":
                raise InvalidInput("there is no such field; known is tasks", field=name[:60])
        found = workflows.add_tasks(
            principal.tenant, workflow_id, data.get("tasks", ()), actor=principal.actor,
            idempotency_key=idempotency_key(request), trace=trace_context.of_request(request.META),
        )  # fmt: skip
        body = {"id": workflow_id, "task_ids": found.task_ids, "created": found.created}
        return created(body, f"/api/v1/workflows/{workflow_id}", new=found.created)


class CancelWorkflow(ApiView):
    """``/api/v1/workflows/{id}/cancel``"""

    scopes = {"POST": CANCEL}

    @describe(
        "cancel_workflow",
        summary="Cancel a workflow",
        tag="workflows",
        scope=CANCEL,
        answers={200: shapes.WorkflowCancelled},
        problems=(400, 404, 413, 415),
        parameters=[path_id("workflow_id", "workflow")],
    )
    def post(self, request: Request, workflow_id: UUID) -> Response:
        """Cancel all that waits in it, and ask what runs to end."""
        read_object(request._request, known=frozenset())
        principal = self.principal
        return Response(workflows.cancel_workflow(principal.tenant, workflow_id, actor=principal.actor))


class RerunWorkflow(ApiView):
    """``/api/v1/workflows/{id}/rerun``"""

    scopes = {"POST": SUBMIT}

    @describe(
        "rerun_workflow",
        summary="Run a workflow again, from its failed tasks or from one on",
        tag="workflows",
        scope=SUBMIT,
        body=shapes.RerunIn,
        answers={200: shapes.RerunOut},
        problems=(404, 409, 429),
        parameters=[path_id("workflow_id", "workflow")],
        examples=[request_example("from the failed tasks", {})],
    )
    def post(self, request: Request, workflow_id: UUID) -> Response:
        """Give the tasks their attempts anew; what succeeded and is not concerned stays."""
        data: dict[str, Any] = read_object(request._request, known=frozenset({"task_id"}))
        principal = self.principal
        ids = rerun(principal.tenant, workflow_id, task_id=_task_id(data.get("task_id")), actor=principal.actor)
        return Response({"task_ids": ids})


def _task_id(value: Any) -> UUID | None:
    if value is None:
        return None
    try:
        return UUID(value) if isinstance(value, str) else UUID("")
    except ValueError:
        raise InvalidInput("must be the id of a task", field="task_id") from None
