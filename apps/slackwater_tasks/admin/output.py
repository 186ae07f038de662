"""What tasks wrote, line by line, for operators: of a workflow, of a handler's tasks over all workflows, of a tenant, of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from slackwater_adminkit.display import short
from slackwater_resources.models import Handler
from slackwater_tasks.models import Task, Workflow
from slackwater_tasks.read import output
from slackwater_tenants.models import Tenant

LINES: Final = 200
"""Rows of output that a page has, each some lines."""
OFFERED: Final = 200
"""Names of handlers that are offered while one is typed."""


def of_workflow(request: HttpRequest, workflow: Workflow, back: str) -> HttpResponse:
    """What all its tasks wrote, some at a time, or the lines with a text."""
    tasks = Task.objects.unscoped().filter(workflow=workflow)
    # Without their order, whose id would make each of them distinct.
    names = tasks.exclude(handler="").order_by().values_list("handler", flat=True).distinct()
    return _page(
        request, f"Output of {workflow}", workflow.tenant_id, workflow=workflow.pk, names=sorted(names), back=back
    )


def of_all(request: HttpRequest) -> HttpResponse:
    """The same over all workflows and single tasks, narrowed by handler and tenant."""
    if not request.user.has_perm("slackwater_tasks.view_task"):
        raise PermissionDenied
    slug = request.GET.get("tenant", "").strip()
    tenant = Tenant.objects.filter(slug=slug).first() if slug else None
    names = list(Handler.objects.order_by("name").values_list("name", flat=True)[:OFFERED])
    if slug and tenant is None:
        return _page(request, "Output", 0, names=names, unknown=slug)
    return _page(request, "Output", tenant.pk if tenant else None, names=names)


def _page(
    request: HttpRequest, title: str, tenant_id: int | None, *, names: Sequence[str], workflow: UUID | None = None,
    back: str = "", unknown: str = "",
) -> HttpResponse:  # fmt: skip
    given = {name: request.GET.get(name, "").strip()[:200] for name in ("q", "handler", "tenant")}
    try:
        before = UUID(request.GET["before"]) if request.GET.get("before") else None
    except ValueError as error:
        raise Http404 from error
    lines, more = output.search_of(
        tenant_id, given["q"], workflow_id=workflow, handler=given["handler"], before=before, limit=LINES
    )
    # Unscoped: the admin sees all tenants.
    tasks = Task.objects.unscoped().filter(pk__in={line["task_id"] for line in lines})
    told = {pk: (name, slug) for pk, name, slug in tasks.values_list("pk", "name", "tenant__slug")}
    context = {
        **admin.site.each_context(request), **given, "title": title, "back": back, "names": names, "unknown": unknown,
        "lines": [_line(line, *told.get(line["task_id"], ("", ""))) for line in lines],
        "more": urlencode({**given, "before": more}) if more else "",
    }  # fmt: skip
    return TemplateResponse(request, "slackwater_dashboard/output.html", context)


def _line(line: dict[str, object], name: str, tenant: str) -> dict[str, object]:
    return {**line, "name": name or short(line["task_id"]), "tenant": tenant}
