"""Graphs of tasks, and what is done to whole workflows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import DoesNotFit
from slackwater_api.http.body import read_fields, read_object, read_task_id
from slackwater_api.http.endpoint import CANCEL, READ, SUBMIT, ApiView, created
from slackwater_api.http.once import idempotency_key
from slackwater_api.http.openapi import (
    EXAMPLE_ID,
    SUBMISSION,
    answer_example,
    describe,
    request_example,
)
from slackwater_api.v1.filters import WorkflowTaskFilter
from slackwater_api.v1.shapes import graphs as shapes
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.explain import Quote
from slackwater_api.v1.shapes.tasks import TaskSummary, WorkflowSubmitted
from slackwater_api.v1.views.tasks import TASKS, read_reason
from slackwater_tasks.control import workflows
from slackwater_tasks.control.workflow_rerun import rerun
from slackwater_tasks.field_kinds import Object
from slackwater_tasks.graph import relatives
from slackwater_tasks.models import Task
from slackwater_tasks.read.workflows import find
from slackwater_tasks.runtime import trace_context

OF_WORKFLOW = replace(TASKS, filters=WorkflowTaskFilter)
GROWTH = {"tasks": [{"name": "extra", "handler": "demo.echo"}]}


class TaskGraph(ApiView, path="tasks/<uuid:task_id>/graph", tag="tasks"):
    @describe(
        "get_task_graph",
        "Get the graph around a task",
        READ,
        {200: shapes.TaskGraphOut},
        problems=(413,),
    )
    def get(self, request: Request, task_id: UUID) -> Response:
        """Ancestors, descendants, a topological order of both, and the longest way through the task."""
        return Response(relatives.graph(task_id))


class WorkflowTasks(ApiView, path="workflows/<uuid:workflow_id>/tasks", tag="workflows"):
    @describe(
        "list_workflow_tasks",
        "List the tasks of a workflow, newest first",
        READ,
        {200: listing(TaskSummary)},
        *OF_WORKFLOW.parameters,
    )
    def get(self, request: Request, workflow_id: UUID) -> Response:
        """A page of them, narrowed and sorted like the list of all tasks."""
        find(workflow_id)
        return Response(OF_WORKFLOW.page(request.query_params, Task.objects.filter(workflow_id=workflow_id)))

    @describe(
        "add_workflow_tasks",
        "Add tasks to a workflow",
        SUBMIT,
        {201: WorkflowSubmitted, 200: WorkflowSubmitted},
        *SUBMISSION,
        problems=(409, 429),
        body=shapes.WorkflowGrowth,
        examples=[
            request_example("one more", GROWTH),
            answer_example("stored", {"id": EXAMPLE_ID, "task_ids": [EXAMPLE_ID], "created": True}, 201),
        ],
        quote=Quote,
    )
    def post(self, request: Request, workflow_id: UUID) -> Response:
        """Add tasks, all or none, whether it runs or has ended; what is there stays as it is."""
        data = read_fields(request._request, "tasks")
        found = workflows.add_tasks(
            self.tenant, workflow_id, data.get("tasks", ()), actor=self.actor,
            idempotency_key=idempotency_key(request), trace=trace_context.of_request(request.META),
        )  # fmt: skip
        body = {"id": workflow_id, "task_ids": found.task_ids, "created": found.created}
        return created(body, f"/api/v1/workflows/{workflow_id}", first=found.created)


class CancelWorkflow(ApiView, path="workflows/<uuid:workflow_id>/cancel", tag="workflows"):
    @describe(
        "cancel_workflow",
        "Cancel a workflow",
        CANCEL,
        {200: shapes.WorkflowCancelled},
        body=shapes.WorkflowCancel,
        examples=[request_example("with a reason", {"reason": "the order was withdrawn"})],
    )
    def post(self, request: Request, workflow_id: UUID) -> Response:
        """Cancel all that waits in it, and ask what runs to end."""
        reason = read_reason(read_object(request._request, "reason"), "its workflow was cancelled")
        return Response(workflows.cancel_workflow(self.tenant, workflow_id, actor=self.actor, reason=reason))


class RetryWorkflow(ApiView, path="workflows/<uuid:workflow_id>/retry", tag="workflows"):
    @describe(
        "retry_workflow",
        "Run a workflow again, from its failed tasks or from a given one",
        SUBMIT,
        {200: shapes.WorkflowRetried},
        problems=(409, 429),
        body=shapes.WorkflowRetry,
        examples=[request_example("from the failed tasks", {})],
        quote=Quote,
    )
    def post(self, request: Request, workflow_id: UUID) -> Response:
        """Give the tasks their attempts anew; what succeeded and is not concerned stays."""
        data: dict[str, Any] = read_object(request._request, "task_id", "changes")
        first = None if data.get("task_id") is None else read_task_id(data, "task_id")
        changes = Object().check(data.get("changes", {}), "changes")
        if changes and first is None:
            raise DoesNotFit("say by task_id which task is changed", field="changes")
        ids = rerun(self.tenant, workflow_id, task_id=first, changes=changes, actor=self.actor)
        return Response({"task_ids": ids})
