"""Ending all work of a workflow, a line, the organisation or the platform, in one act."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from uuid import UUID

import structlog
from rest_framework.request import Request
from rest_framework.response import Response

from slackwater_api.http.body import read_flag, read_object
from slackwater_api.http.endpoint import CANCEL, MANAGE, OPERATE, ApiView
from slackwater_api.http.openapi import describe, request_example
from slackwater_api.v1.shapes.bulk import Terminated, TerminateIn
from slackwater_api.v1.views.tasks import REASON
from slackwater_tasks.control.terminate import Subject, foretell, terminate
from slackwater_tasks.read.overview import find_lines
from slackwater_tenants.models import Tenant

log = structlog.get_logger(__name__)
EXAMPLES = [request_example("only tell how much", {"dry_run": True, "reason": "the release was withdrawn"})]


class Terminating(ApiView):
    """What all of these do."""

    def end(self, subjects: Sequence[Subject], actor: str = "") -> Response:
        """Do it, or tell what it would do; what runs is not waited for."""
        data = read_object(self.request._request, "dry_run", "reason")
        reason = REASON.check(data.get("reason", ""), "reason")
        if read_flag(data, "dry_run"):
            return Response({"dry_run": True, **asdict(foretell(subjects))})
        counts = asdict(terminate(subjects, actor=actor or self.actor, reason=reason, wait_s=0))
        log.info("work terminated", route=self.path, actor=self.actor, reason=reason, **counts)
        return Response({"dry_run": False, **counts})


class TerminateWorkflow(Terminating, path="workflows/<uuid:workflow_id>/terminate", tag="workflows"):
    @describe(
        "terminate_workflow",
        "End all work of a workflow",
        CANCEL,
        {200: Terminated},
        body=TerminateIn,
        examples=EXAMPLES,
    )
    def post(self, request: Request, workflow_id: UUID) -> Response:
        """Cancel what waits, ask what runs to end, delete its dead letters."""
        return self.end([Subject.of_workflow(self.tenant, workflow_id)])


class TerminateQueue(Terminating, path="queues/<str:category>/<str:tier_name>/terminate", tag="platform"):
    @describe(
        "terminate_queue",
        "End all work of one of your lines",
        CANCEL,
        {200: Terminated},
        body=TerminateIn,
        examples=EXAMPLES,
    )
    def post(self, request: Request, category: str, tier_name: str) -> Response:
        """Cancel what waits, ask what runs to end, delete its dead letters."""
        lines = find_lines(self.tenant.pk, category, tier_name).select_related("tenant")
        return self.end([Subject.of_line(line) for line in lines])


class TerminateOrganization(Terminating, path="organization/terminate", tag="organisation"):
    @describe(
        "terminate_organization",
        "End all work of your organisation",
        MANAGE,
        {200: Terminated},
        body=TerminateIn,
        examples=EXAMPLES,
    )
    def post(self, request: Request) -> Response:
        """Cancel what waits, ask what runs to end, delete its dead letters; schedules go on."""
        return self.end([Subject.of_tenant(self.tenant)])


class TerminatePlatform(Terminating, path="platform/terminate", tag="platform"):
    @describe(
        "terminate_platform",
        "End all work of all tenants",
        OPERATE,
        {200: Terminated},
        body=TerminateIn,
        examples=EXAMPLES,
    )
    def post(self, request: Request) -> Response:
        """The tenants' histories say ``platform``; whose key it was stands in the log."""
        return self.end([Subject.of_tenant(each) for each in Tenant.objects.order_by("pk")], "platform")
