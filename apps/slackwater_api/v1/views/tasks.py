"""Tasks: submit, list, read, wait for, change, cancel, run again."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput, NotFound
from slackwater_api.http.auth import Principal
from slackwater_api.http.body import read_any_object, read_flag, read_json, read_object, read_submission
from slackwater_api.http.endpoint import CANCEL, READ, SUBMIT, ApiView, created
from slackwater_api.http.once import REPLAYED, idempotency_key
from slackwater_api.http.openapi import (
    EXAMPLE_ID,
    NO_BODY,
    OWN_ID,
    SUBMISSION,
    answer_example,
    describe,
    request_example,
)
from slackwater_api.http.pieces import Pieces
from slackwater_api.http.sorting import BY_AGE, Column, PagedList, moment, whole
from slackwater_api.live.status_cache import Statuses, is_about_status
from slackwater_api.v1.filters import TaskFilter
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.explain import Explanation, Quote
from slackwater_api.v1.shapes.tasks import (
    AttemptOut,
    CancelIn,
    HistoryEntry,
    Submitted,
    TaskAmong,
    TaskAnew,
    TaskChange,
    TaskDetail,
    TaskOrTasks,
    TaskStatusOut,
    TaskSummary,
)
from slackwater_api.v1.waits import read_seconds
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.edit import edit
from slackwater_tasks.control.forget import forget_result
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.control.resubmit import resubmit
from slackwater_tasks.explain.explanation import explain
from slackwater_tasks.field_kinds import Text
from slackwater_tasks.models import LiveTask, Task
from slackwater_tasks.read import history, tasks, workflows
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.submission import service

POLL_S = 0.2
REASON = Text(150)
TASKS = PagedList(
    present=tasks.summaries,
    filters=TaskFilter,
    columns={
        "submitted_at": BY_AGE,
        "finished_at": Column("finished_at", moment, may_lack=True),
        "name": Column("name", may_lack=True),
        "priority": Column("priority", whole),
    },
    default="-submitted_at",
    looks=True,
)
WAIT = OpenApiParameter(
    "wait",
    {"type": "number", "minimum": 0, "maximum": 60},
    description="Seconds to hold the answer until the end; then it comes as it is.",
)
SUBMIT_EXAMPLES = [
    request_example("handler", {"handler": "demo.add", "args": [2, 3], "name": "sum"}, "A Celery task"),
    request_example(
        "urgent",
        {"handler": "mail.send", "kwargs": {"to": "a@example.org"}, "category": "urgent", "delay_tolerance_s": 2},
        "Urgent work",
    ),
    request_example(
        "several",
        [
            {"name": "fetch", "handler": "demo.echo", "args": ["x"]},
            {"name": "use", "handler": "demo.echo", "depends_on": ["fetch"]},
        ],
        "Several tasks, all or none",
    ),
]


def submitted(one: service.Submission, *, as_first: bool = False) -> tuple[int, dict[str, Any], dict[str, str]]:
    """The answer to the submission of one task: status, body and headers."""
    task_id, is_new = str(one.task_ids[0]), one.created or as_first
    body = {"id": task_id, "task_ids": [task_id], "created": is_new}
    headers = {"Location": f"/api/v1/tasks/{task_id}", **({} if one.created else REPLAYED)}
    return (201 if is_new else 200), body, headers


class Tasks(ApiView, path="tasks", tag="tasks"):
    @describe(
        "submit_tasks",
        "Submit one task, or several at once",
        SUBMIT,
        {201: Submitted, 200: Submitted},
        *SUBMISSION,
        problems=(409, 429),
        body=TaskOrTasks,
        examples=[
            *SUBMIT_EXAMPLES,
            answer_example("stored", {"id": EXAMPLE_ID, "task_ids": [EXAMPLE_ID], "created": True}, 201),
        ],
        quote=Quote,
    )
    def post(self, request: Request) -> Response:
        """Store the tasks; a repeat is answered as the first, and with 200 where its key stands in the body."""
        data = read_submission(request._request)
        tenant, actor, key = self.tenant, self.actor, idempotency_key(request)
        trace = trace_context.of_request(request.META)
        if isinstance(data, list | Pieces):
            self.array = "tasks"
            many = service.submit_many(tenant, data, actor=actor, idempotency_key=key, trace=trace)
            return created({"task_ids": many.task_ids, "created": many.created}, "/api/v1/tasks", first=many.created)
        if not isinstance(data, dict):
            raise InvalidInput("The body must be an object, or an array of objects.")
        one = service.submit(tenant, data, actor=actor, idempotency_key=key, trace=trace)
        status, body, headers = submitted(one)
        return Response(body, status=status, headers=headers)

    @describe("list_tasks", "List tasks, newest first", READ, {200: listing(TaskSummary)}, *TASKS.parameters)
    def get(self, request: Request) -> Response:
        return Response(TASKS.page(request.query_params, Task.objects.all()))


class OneTask(ApiView, path="tasks/<uuid:task_id>", tag="tasks"):
    @describe(
        "get_task",
        "Get a task, or wait for its end",
        READ,
        {200: TaskDetail},
        WAIT,
    )
    def get(self, request: Request, task_id: UUID) -> Response:
        """One task; with ``wait`` held until it ends."""
        query = request.query_params
        if "wait" in query:
            tasks.require_task(task_id)
            hold(request, task_id)
        elif "fields" in query and is_about_status(query["fields"]):
            return Response(_status(request, self.principal, task_id))
        return Response(tasks.task(task_id))

    @describe(
        "put_task",
        "Submit a task under an id of your own",
        SUBMIT,
        {201: Submitted, 200: Submitted},
        OWN_ID,
        *SUBMISSION[1:],
        problems=(409, 429),
        body=TaskAmong,
        examples=[
            request_example("once", {"handler": "demo.add", "args": [2, 3]}),
            answer_example("stored", {"id": EXAMPLE_ID, "task_ids": [EXAMPLE_ID], "created": True}, 201),
        ],
        quote=Quote,
    )
    def put(self, request: Request, task_id: UUID) -> Response:
        """The id is a UUID of version 7 that you make: what is sent again under it is stored once (200)."""
        trace = trace_context.of_request(request.META)
        one = service.put(self.tenant, task_id, read_json(request._request), actor=self.actor, trace=trace)
        status, body, headers = submitted(one)
        return Response(body, status=status, headers=headers)

    @describe(
        "change_task",
        "Change a waiting task",
        SUBMIT,
        {200: TaskDetail},
        problems=(409, 429),
        body=TaskChange,
        conditional=True,
        examples=[request_example("later", {"start_at": "2030-01-31T09:00:00+01:00", "priority": 10})],
    )
    def patch(self, request: Request, task_id: UUID) -> Response:
        """Change fields of a waiting task; its history keeps the old values."""
        changes = read_json(request._request)
        with self.unchanged(LiveTask.objects.filter(pk=task_id)):
            edit(self.tenant.pk, task_id, changes, actor=self.actor)
        return Response(tasks.task(task_id))


def hold(request: Request, subject: UUID) -> None:
    """Wait in this thread, where something other than the ASGI front serves the request: that has waited already."""
    seconds = read_seconds(request.query_params["wait"])
    until = time.monotonic() + seconds
    if getattr(request._request, "scope", {}).get("slackwater.waited"):
        return
    while time.monotonic() < until and not workflows.ended_ids([subject]):
        time.sleep(POLL_S)


class TaskStatus(ApiView, path="tasks/<uuid:task_id>/status", tag="tasks"):
    @describe("get_task_status", "Get a task's status", READ, {200: TaskStatusOut})
    def get(self, request: Request, task_id: UUID) -> Response:
        """State and status alone: answered from memory, which the feed of changes keeps true."""
        return Response(_status(request, self.principal, task_id))


def _status(request: Request, principal: Principal, task_id: UUID) -> dict[str, Any]:
    statuses: Statuses | None = getattr(request._request, "scope", {}).get("slackwater.statuses")
    if statuses is None:
        return tasks.status(task_id)
    return statuses.get(principal.tenant.pk, task_id, lambda: tasks.status(task_id))


class TaskHistory(ApiView, path="tasks/<uuid:task_id>/history", tag="tasks"):
    @describe("get_task_history", "Get a task's history", READ, {200: listing(HistoryEntry)})
    def get(self, request: Request, task_id: UUID) -> Response:
        """Every change of state and every edit, oldest first."""
        return Response({"items": history.history(task_id)})


class ExplainTask(ApiView, path="tasks/<uuid:task_id>/explain", tag="tasks"):
    @describe("explain_task", "Explain why a task waits", READ, {200: Explanation})
    def get(self, request: Request, task_id: UUID) -> Response:
        """Every blocker by name, what would remove it, and when the task will likely start."""
        return Response(explain(task_id))


class TaskAttempts(ApiView, path="tasks/<uuid:task_id>/attempts", tag="tasks"):
    @describe("get_task_attempts", "List a task's attempts", READ, {200: listing(AttemptOut)})
    def get(self, request: Request, task_id: UUID) -> Response:
        """The attempts that began and ended, oldest first."""
        tasks.require_task(task_id)
        return Response({"items": tasks.attempts(task_id)})


def read_reason(data: dict[str, Any], usual: str) -> str:
    """Why something is cancelled, as history tells it: ``usual`` and what the client says."""
    given = REASON.check(data.get("reason", ""), "reason")
    return f"{usual}: {given}" if given else usual


class CancelTask(ApiView, path="tasks/<uuid:task_id>/cancel", tag="tasks"):
    @describe(
        "cancel_task",
        "Cancel a task",
        CANCEL,
        {200: TaskDetail, 202: TaskDetail},
        problems=(409,),
        body=CancelIn,
        examples=[request_example("with dependants", {"dependents": True, "reason": "the order was withdrawn"})],
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        """End it at once where it waits (200); a running one is asked to end, then killed, unless ``waiting_only`` (202)."""
        data: dict[str, Any] = read_object(request._request, "dependents", "waiting_only", "reason")
        how = {name: read_flag(data, name) for name in ("dependents", "waiting_only")}
        reason = read_reason(data, "cancelled on request")
        state = cancel(self.tenant.pk, task_id, actor=self.actor, reason=reason, **how)
        return Response(tasks.task(task_id), status=202 if state.name == "RUNNING" else 200)


class TaskResult(ApiView, path="tasks/<uuid:task_id>/result", tag="tasks"):
    @describe("forget_result", "Delete a task's result", SUBMIT, {204: None})
    def delete(self, request: Request, task_id: UUID) -> Response:
        """What it returned goes at once, not when retention says; its state and history stay."""
        if not forget_result(self.tenant.pk, task_id):
            raise NotFound(f"There is no task {task_id}.")
        return Response(status=204)


class RetryTask(ApiView, path="tasks/<uuid:task_id>/retry", tag="tasks"):
    @describe(
        "retry_task",
        "Run a failed, cancelled or expired task again",
        SUBMIT,
        {200: TaskDetail},
        body=NO_BODY,
        problems=(409, 429),
        quote=Quote,
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        """Give it its attempts anew; its dead letter goes. A `start_at` that is still ahead stays."""
        retry(self.tenant.pk, task_id, actor=self.actor)
        return Response(tasks.task(task_id))


class ResubmitTask(ApiView, path="tasks/<uuid:task_id>/resubmit", tag="tasks"):
    @describe(
        "resubmit_task",
        "Submit an ended task anew, edited",
        SUBMIT,
        {201: Submitted},
        body=TaskAnew,
        problems=(403, 409, 429),
        examples=[
            request_example("another argument", {"kwargs": {"to": "b@example.org"}, "tier": "regular"}),
            answer_example("stored", {"id": EXAMPLE_ID, "task_ids": [EXAMPLE_ID], "created": True}, 201),
        ],
        quote=Quote,
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        """A new task, whose ``copied_from`` is this one: what is given is merged over what it had."""
        made = resubmit(self.tenant.pk, task_id, read_any_object(request._request), actor=self.actor)
        return created({"id": made, "task_ids": [made], "created": True}, f"/api/v1/tasks/{made}")
