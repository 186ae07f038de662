"""Many tasks at once: cancel, or run again, all that a filter matches; a dry run tells which."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from slackwater_api.http.body import read_fields, read_flag, read_task_id
from slackwater_api.http.endpoint import CANCEL, SUBMIT, ApiView
from slackwater_api.http.openapi import EXAMPLE_ID, answer_example, describe, request_example
from slackwater_api.v1.filters import matching_tasks
from slackwater_api.v1.shapes import bulk as shapes
from slackwater_tasks.control import bulk

COUNTS = {"matched": 1, "matched_is_minimum": False, "more": False, "next": None, "task_ids": [EXAMPLE_ID]}


def _asked(view: ApiView, request: Request) -> tuple[QuerySet[Any], dict[str, Any]]:
    """The tasks that the body's filter matches, and the options of the operation."""
    data = read_fields(request._request, "filter", "dry_run", "limit", "after")
    limit = bulk.check_limit(data.get("limit", bulk.DEFAULT_LIMIT))
    how = {"limit": limit, "dry_run": read_flag(data, "dry_run"), "after": read_task_id(data, "after")}
    return matching_tasks(data.get("filter"), check=view.check_filters), how


class CancelTasks(ApiView, path="tasks/cancel", tag="tasks"):
    @describe(
        "cancel_tasks",
        "Cancel all tasks that a filter matches",
        CANCEL,
        {200: shapes.BulkCancelled},
        body=shapes.BulkIn,
        examples=[
            request_example("what waits of a handler", {"filter": {"status": "waiting", "handler": "mail.send"}}),
            request_example("only tell which", {"filter": {"tag": "nightly"}, "dry_run": True, "limit": 100}),
            answer_example("cancelled", {**COUNTS, "dry_run": False, "asked_task_ids": []}),
        ],
    )
    def post(self, request: Request) -> Response:
        """The first ``limit`` of them by age, in one transaction; go on with ``after`` while ``next`` names one."""
        rows, how = _asked(self, request)
        done = bulk.cancel_matching(self.tenant, rows, actor=self.actor, **how)
        return Response(done.shown("skipped"))


class RetryTasks(ApiView, path="tasks/retry", tag="tasks"):
    @describe(
        "retry_tasks",
        "Run all failed, cancelled or expired tasks again that a filter matches",
        SUBMIT,
        {200: shapes.BulkRetried},
        problems=(409, 429),
        body=shapes.BulkIn,
        examples=[
            request_example("what failed today", {"filter": {"state": "failed", "tag": "nightly"}}),
            answer_example("run again", {**COUNTS, "dry_run": False, "skipped": []}),
        ],
    )
    def post(self, request: Request) -> Response:
        """The first ``limit`` of them by age, all or none, counted against the plan; go on with ``after``."""
        rows, how = _asked(self, request)
        done = bulk.retry_matching(self.tenant, rows, actor=self.actor, **how)
        return Response(done.shown("asked_task_ids"))
