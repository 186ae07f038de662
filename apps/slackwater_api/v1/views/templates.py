"""Workflow templates: store versions, read them, submit them with parameters, remove them."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.body import read_any_object, read_json
from slackwater_api.http.endpoint import CANCEL, READ, SUBMIT, ApiView, created
from slackwater_api.http.openapi import EXAMPLE_ID, answer_example, describe, request_example
from slackwater_api.http.sorting import Column, PagedList, each, moment, whole
from slackwater_api.v1.filters import TemplateFilter
from slackwater_api.v1.shapes.common import as_shape, listing
from slackwater_api.v1.shapes.explain import Quote
from slackwater_api.v1.shapes.tasks import WorkflowSubmitted
from slackwater_api.v1.shapes.templates import TemplateIn, TemplateOut, TemplateSummary, TemplateUse
from slackwater_tasks.submission import templates

VERSION = OpenApiParameter(
    "version", {"type": "integer", "minimum": 1, "maximum": 999_999_999}, description="Not given: the latest."
)
LIST = PagedList(
    present=each(partial(as_shape, TemplateSummary)),
    filters=TemplateFilter,
    columns={"name": Column("name"), "created_at": Column("created_at", moment)},
    default="name",
    tie=Column("name", str, "name"),
)
VERSIONS = PagedList(
    present=each(partial(as_shape, TemplateSummary)),
    columns={"version": Column("version", whole)},
    default="-version",
    tie=Column("version", whole, "version"),
)
EXAMPLE = {
    "name": "thumbs",
    "description": "Thumbnails of a day",
    "parameters": {
        "properties": {"day": {"type": "string", "format": "date"}, "width": {"type": "integer", "default": 200}},
        "required": ["day"],
    },
    "workflow": {
        "tasks": [
            {"name": "fetch", "handler": "demo.echo", "args": [{"$param": "day"}]},
            {"name": "thumbs", "handler": "demo.echo", "args": [{"$param": "width"}], "depends_on": ["fetch"]},
        ]
    },
}


class Templates(ApiView, path="workflow-templates", tag="workflows"):
    @describe(
        "store_workflow_template",
        "Store a version of a workflow template",
        SUBMIT,
        {201: TemplateOut, 200: TemplateOut},
        body=TemplateIn,
        examples=[request_example("thumbnails", EXAMPLE)],
    )
    def post(self, request: Request) -> Response:
        """201: a new version; 200: what is stored already. Older versions stay as they are."""
        found, new = templates.store(self.tenant, read_json(request._request), actor=self.actor)
        return created(as_shape(TemplateOut, found), f"/api/v1/workflow-templates/{quote(found.name)}", new=new)

    @describe("list_workflow_templates", "List workflow templates by name", READ, {200: listing(TemplateSummary)},
              *LIST.parameters)  # fmt: skip
    def get(self, request: Request) -> Response:
        """The latest version of each."""
        return Response(LIST.page(request.query_params, templates.latest(self.tenant.pk)))


class OneTemplate(ApiView, path="workflow-templates/<str:template_name>", tag="workflows"):
    @describe("get_workflow_template", "Get a workflow template", READ, {200: TemplateOut}, VERSION)
    def get(self, request: Request, template_name: str) -> Response:
        """A version of it."""
        text = request.query_params.get("version")
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidInput("must be a whole number from 1 on", field="version")
        found = templates.find(self.tenant.pk, template_name, None if text is None else int(text))
        return Response(as_shape(TemplateOut, found))

    @describe("delete_workflow_template", "Delete a workflow template with all its versions", CANCEL, {204: None})
    def delete(self, request: Request, template_name: str) -> Response:
        """What was submitted stays; a schedule of it fails to fire from now on."""
        templates.delete(self.tenant.pk, template_name)
        return Response(status=204)


class TemplateVersions(ApiView, path="workflow-templates/<str:template_name>/versions", tag="workflows"):
    @describe("list_workflow_template_versions", "List the versions of a workflow template, newest first", READ,
              {200: listing(TemplateSummary)}, *VERSIONS.parameters)  # fmt: skip
    def get(self, request: Request, template_name: str) -> Response:
        """What was stored under this name."""
        templates.find(self.tenant.pk, template_name)
        rows = templates.versions(self.tenant.pk).filter(name=template_name)
        return Response(VERSIONS.page(request.query_params, rows))


class SubmitTemplate(ApiView, path="workflow-templates/<str:template_name>/submit", tag="workflows"):
    @describe(
        "submit_workflow_template",
        "Submit a workflow template with parameters",
        SUBMIT,
        {201: WorkflowSubmitted},
        problems=(409, 429),
        body=TemplateUse,
        examples=[
            request_example("a day", {"parameters": {"day": "2030-01-31"}}),
            answer_example("stored", {"id": EXAMPLE_ID, "task_ids": [EXAMPLE_ID], "created": True}, 201),
        ],
        quote=Quote,
    )
    def post(self, request: Request, template_name: str) -> Response:
        """A workflow like any other; its parameters are checked by the template's schema."""
        found = templates.submit(self.tenant, template_name, read_any_object(request._request), actor=self.actor)
        body = {"id": found.workflow_id, "task_ids": found.task_ids, "created": True}
        return created(body, f"/api/v1/workflows/{found.workflow_id}")
