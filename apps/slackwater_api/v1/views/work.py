"""Workflows, scripts and dead letters."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import Faults, InvalidInput
from slackwater_api.http.body import read_fields, read_submission
from slackwater_api.http.endpoint import CANCEL, READ, SUBMIT, ApiView, created
from slackwater_api.http.once import idempotency_key
from slackwater_api.http.openapi import (
    EXAMPLE_ID,
    NO_BODY,
    SUBMISSION,
    answer_example,
    describe,
    request_example,
)
from slackwater_api.http.sorting import BY_AGE, Column, PagedList, moment, whole
from slackwater_api.v1.filters import DeadLetterFilter, ScriptFilter, WorkflowFilter
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.explain import Quote
from slackwater_api.v1.shapes.platform import DeadLetterOut, ScriptDetail, ScriptIn, ScriptSummary
from slackwater_api.v1.shapes.tasks import TaskDetail, WorkflowDetail, WorkflowIn, WorkflowSubmitted, WorkflowSummary
from slackwater_api.v1.views.tasks import WAIT, hold
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.control.scripts import delete_script
from slackwater_tasks.field_kinds import of_type
from slackwater_tasks.models import DeadLetter, Script, Workflow
from slackwater_tasks.read import dead_letters, tasks, workflows
from slackwater_tasks.runtime import trace_context
from slackwater_tasks.submission import service
from slackwater_tasks.upkeep import ended_workflows

WORKFLOWS = PagedList(
    present=workflows.workflow_rows,
    filters=WorkflowFilter,
    columns={
        "submitted_at": BY_AGE,
        "name": Column("name", may_lack=True),
        "finished_at": Column("finished_at", moment, may_lack=True),
        "task_count": Column("task_count", whole),
        "edge_count": Column("edge_count", whole),
    },
    default="-submitted_at",
)
SCRIPTS = PagedList(
    present=dead_letters.script_rows,
    filters=ScriptFilter,
    columns={"created_at": Column("created_at", moment), "name": Column("name"), "size": Column("size", whole)},
    default="-created_at",
    tie=Column("sha256", item="sha256"),
)
DEAD_LETTERS = PagedList(
    present=dead_letters.dead_letter_rows,
    filters=DeadLetterFilter,
    columns={
        "at": Column("at", moment),
        "retries": Column("retries", whole),
        "next_retry_at": Column("next_retry_at", moment, may_lack=True),
    },
    default="-at",
    tie=Column("task_id", UUID, "task_id"),
)
DIAMOND = {
    "name": "photo",
    "tasks": [
        {"name": "fetch", "handler": "demo.echo"},
        {"name": "small", "handler": "demo.echo", "depends_on": ["fetch"]},
        {"name": "large", "handler": "demo.echo", "depends_on": ["fetch"]},
        {"name": "publish", "handler": "demo.echo", "depends_on": ["small", "large"]},
    ],
}


class Workflows(ApiView, path="workflows", tag="workflows"):
    @describe(
        "submit_workflow",
        "Submit a graph of tasks",
        SUBMIT,
        {201: WorkflowSubmitted, 200: WorkflowSubmitted},
        *SUBMISSION,
        problems=(409, 429),
        body=WorkflowIn,
        examples=[
            request_example("diamond", DIAMOND),
            answer_example("stored", {"id": EXAMPLE_ID, "task_ids": [EXAMPLE_ID], "created": True}, 201),
        ],
        quote=Quote,
    )
    def post(self, request: Request) -> Response:
        """Check and store the whole graph, or nothing of it."""
        data = read_submission(request._request)
        if not isinstance(data, dict):
            raise InvalidInput("The body must be an object.")
        found = service.submit_workflow(
            self.tenant, data, actor=self.actor, idempotency_key=idempotency_key(request),
            trace=trace_context.of_request(request.META),
        )  # fmt: skip
        body = {"id": found.workflow_id, "task_ids": found.task_ids, "created": found.created}
        return created(body, f"/api/v1/workflows/{found.workflow_id}", first=found.created)

    @describe(
        "list_workflows", "List workflows, newest first", READ, {200: listing(WorkflowSummary)}, *WORKFLOWS.parameters
    )
    def get(self, request: Request) -> Response:
        return Response(WORKFLOWS.page(request.query_params, Workflow.objects.all()))


class OneWorkflow(ApiView, path="workflows/<uuid:workflow_id>", tag="workflows"):
    @describe("get_workflow", "Get a workflow, or wait for its end", READ, {200: WorkflowDetail}, WAIT)
    def get(self, request: Request, workflow_id: UUID) -> Response:
        """One workflow with its tasks counted by state; with ``wait`` held until all of them have ended."""
        if "wait" in request.query_params:
            workflows.find(workflow_id)
            hold(request, workflow_id)
        return Response(workflows.workflow(workflow_id))

    @describe(
        "delete_workflow", "Delete a workflow that has ended", CANCEL, {204: None}, problems=(409,), conditional=True
    )
    def delete(self, request: Request, workflow_id: UUID) -> Response:
        """Remove it with its tasks, their history and files."""
        with self.unchanged(Workflow.objects.filter(pk=workflow_id)):
            ended_workflows.delete(self.tenant.pk, workflow_id)
        return Response(status=204)


def _content(data: dict[str, Any]) -> bytes:
    """A script's bytes, given as text or in base64."""
    for name in ("content", "content_base64"):
        if not isinstance(data.get(name, ""), str):
            raise InvalidInput("must be a string", field=name)
    if ("content" in data) == ("content_base64" in data):
        raise InvalidInput("give exactly one of content and content_base64", field="content")
    if "content" in data:
        return bytes(data["content"].encode())
    try:
        return base64.b64decode(data["content_base64"], validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("is not base64", field="content_base64") from None


class Scripts(ApiView, path="scripts", tag="scripts"):
    @describe(
        "store_script",
        "Store a script",
        SUBMIT,
        {201: ScriptSummary},
        body=ScriptIn,
        examples=[request_example("shell", {"name": "hello.sh", "content": "#!/bin/sh\necho hello\n"})],
    )
    def post(self, request: Request) -> Response:
        """Store a script under the hash of its content; the same content is stored once."""
        data = read_fields(request._request, "name", "content", "content_base64")
        faults = Faults()
        name = faults.of(of_type, data.get("name"), str, "a string", "name")
        content = faults.of(_content, data)
        faults.tell()
        script = service.store_script(self.tenant, name, content)
        return created(dead_letters.script_summary(script), f"/api/v1/scripts/{script.sha256}")

    @describe(
        "list_scripts", "List stored scripts, newest first", READ, {200: listing(ScriptSummary)}, *SCRIPTS.parameters
    )
    def get(self, request: Request) -> Response:
        return Response(SCRIPTS.page(request.query_params, Script.objects.all()))


class OneScript(ApiView, path="scripts/<sha256:sha256>", tag="scripts"):
    @describe(
        "get_script",
        "Get a stored script",
        READ,
        {200: ScriptDetail},
    )
    def get(self, request: Request, sha256: str) -> Response:
        return Response(dead_letters.script(sha256))

    @describe("delete_script", "Delete a stored script", SUBMIT, {204: None}, problems=(409,), conditional=True)
    def delete(self, request: Request, sha256: str) -> Response:
        """Remove it from the store; 409 while a task that has not ended runs it."""
        with self.unchanged(Script.objects.filter(sha256=sha256)):
            delete_script(self.tenant.pk, sha256)
        return Response(status=204)


class DeadLetters(ApiView, path="dead-letters", tag="dead letters"):
    @describe(
        "list_dead_letters",
        "List dead letters, latest first",
        READ,
        {200: listing(DeadLetterOut)},
        *DEAD_LETTERS.parameters,
    )
    def get(self, request: Request) -> Response:
        """A page of the tenant's tasks whose attempts are used up."""
        return Response(DEAD_LETTERS.page(request.query_params, DeadLetter.objects.all()))


class OneDeadLetter(ApiView, path="dead-letters/<uuid:task_id>", tag="dead letters"):
    @describe("get_dead_letter", "Get a dead letter", READ, {200: DeadLetterOut})
    def get(self, request: Request, task_id: UUID) -> Response:
        return Response(dead_letters.dead_letter(task_id))


class RetryDeadLetter(ApiView, path="dead-letters/<uuid:task_id>/retry", tag="dead letters"):
    @describe(
        "retry_dead_letter",
        "Run a dead letter's task again",
        SUBMIT,
        {200: TaskDetail},
        body=NO_BODY,
        problems=(409, 429),
        quote=Quote,
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        """Give the task its attempts anew and remove its dead letter."""
        dead_letters.dead_letter(task_id)
        retry(self.tenant.pk, task_id, actor=self.actor, reason="run again from the dead letters")
        return Response(tasks.task(task_id))
