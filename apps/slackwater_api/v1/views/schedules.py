"""Schedules: make, list, look at with the next firings, change, pause, remove, make up for the past."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.utils.dateparse import parse_datetime
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.body import read_json, read_object
from slackwater_api.http.endpoint import READ, SUBMIT, ApiView, created
from slackwater_api.http.openapi import PAGING, describe, path_id, request_example
from slackwater_api.http.operation import unchanged
from slackwater_api.http.sorting import Column, Sorting, moment
from slackwater_api.v1.filters import FireFilter, ScheduleFilter
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.schedules import (
    BackfillIn,
    BackfillOut,
    ScheduleChange,
    ScheduleDetail,
    ScheduleFireOut,
    ScheduleIn,
    ScheduleSummary,
)
from slackwater_schedules import services
from slackwater_schedules.fields import FIELDS
from slackwater_schedules.models import Schedule, ScheduleFire

ID = path_id("schedule_id", "schedule")
NEXT = 10
SORT = Sorting(
    columns={
        "name": Column("name"),
        "created_at": Column("created_at", moment),
        "updated_at": Column("updated_at", moment),
        "next_fire_at": Column("next_fire_at", moment, may_lack=True),
    },
    default="name",
)
FIRES = Sorting(
    columns={"fire_at": Column("fire_at", moment)},
    default="-fire_at",
    tie=Column("fire_at", moment, "fire_at"),
)
SHOWN = (*FIELDS, "version", "next_fire_at", "created_at", "created_by", "updated_at", "updated_by")
EXAMPLE = {
    "name": "report",
    "kind": "weekly",
    "rule": {"weekdays": ["mon"], "times": ["07:30"]},
    "time_zone": "Europe/Berlin",
    "overlap": "skip",
    "task": {"handler": "demo.echo", "args": ["report"]},
}


def _shown(schedule: Schedule) -> dict[str, Any]:
    return {"id": schedule.pk, **{name: getattr(schedule, name) for name in SHOWN}}


def _detail(schedule: Schedule) -> dict[str, Any]:
    return {**_shown(schedule), "next_firings": services.next_firings(schedule, NEXT)}


class Schedules(ApiView):
    """``/api/v1/schedules``"""

    scopes = {"POST": SUBMIT, "GET": READ}

    @describe(
        "create_schedule",
        summary="Make a schedule",
        tag="schedules",
        scope=SUBMIT,
        body=ScheduleIn,
        answers={201: ScheduleDetail},
        problems=(409,),
        examples=[request_example("weekly", EXAMPLE)],
    )
    def post(self, request: Request) -> Response:
        """Store a schedule; it fires from its next time on."""
        principal = self.principal
        made = services.create_schedule(principal.tenant, read_json(request._request), actor=principal.actor)
        return created(_detail(made), f"/api/v1/schedules/{made.pk}", new=True)

    @describe(
        "list_schedules",
        summary="List schedules by name",
        tag="schedules",
        scope=READ,
        answers={200: listing(ScheduleSummary)},
        parameters=[*ScheduleFilter.parameters(), SORT.parameter, *PAGING],
    )
    def get(self, request: Request) -> Response:
        """A page of the tenant's schedules."""
        query = request._request.GET
        rows = ScheduleFilter.narrow(query, Schedule.objects.all())
        return Response(SORT.page(query, rows, lambda some: [_shown(row) for row in some]))


class OneSchedule(ApiView):
    """``/api/v1/schedules/{id}``"""

    scopes = {"GET": READ, "PATCH": SUBMIT, "DELETE": SUBMIT}

    @describe(
        "get_schedule",
        summary="Look at a schedule and its next firings",
        tag="schedules",
        scope=READ,
        answers={200: ScheduleDetail},
        problems=(404,),
        parameters=[ID],
    )
    def get(self, request: Request, schedule_id: UUID) -> Response:
        """One schedule with the next ten times it fires for."""
        return Response(_detail(services.get_schedule(self.principal.tenant.pk, schedule_id)))

    @describe(
        "change_schedule",
        summary="Change, pause or resume a schedule",
        tag="schedules",
        scope=SUBMIT,
        body=ScheduleChange,
        answers={200: ScheduleDetail},
        problems=(404, 409),
        parameters=[ID],
        conditional=True,
        examples=[request_example("pause", {"paused": True})],
    )
    def patch(self, request: Request, schedule_id: UUID) -> Response:
        """Change fields; ``version`` makes it a 409 when the schedule has moved on since."""
        changes = read_json(request._request)
        version = changes.pop("version", None) if isinstance(changes, dict) else None
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise InvalidInput("must be a whole number", field="version")
        principal = self.principal
        with self._unchanged(request, schedule_id):
            changed = services.update_schedule(
                principal.tenant.pk, schedule_id, changes, actor=principal.actor, version=version
            )
        return Response(_detail(changed))

    @describe(
        "delete_schedule",
        summary="Remove a schedule",
        tag="schedules",
        scope=SUBMIT,
        answers={204: None},
        problems=(404,),
        parameters=[ID],
        conditional=True,
    )
    def delete(self, request: Request, schedule_id: UUID) -> Response:
        """Remove it with its firings; the tasks it submitted stay."""
        with self._unchanged(request, schedule_id):
            services.delete_schedule(self.principal.tenant.pk, schedule_id)
        return Response(status=204)

    def _unchanged(self, request: Request, schedule_id: UUID) -> AbstractContextManager[None]:
        tenant_id = self.principal.tenant.pk
        return unchanged(
            request,
            Schedule.objects.filter(pk=schedule_id),
            lambda: _detail(services.get_schedule(tenant_id, schedule_id)),
        )


class ScheduleFires(ApiView):
    """``/api/v1/schedules/{id}/fires``"""

    scopes = {"GET": READ}

    @describe(
        "list_schedule_fires",
        summary="List what a schedule fired, and what it missed",
        tag="schedules",
        scope=READ,
        answers={200: listing(ScheduleFireOut)},
        problems=(404,),
        parameters=[ID, *FireFilter.parameters(), FIRES.parameter, *PAGING],
    )
    def get(self, request: Request, schedule_id: UUID) -> Response:
        """A page of its firings, latest first."""
        services.get_schedule(self.principal.tenant.pk, schedule_id)
        query = request._request.GET
        rows = FireFilter.narrow(query, ScheduleFire.objects.filter(schedule_id=schedule_id))
        return Response(FIRES.page(query, rows, lambda some: [_fire(row) for row in some]))


def _fire(row: ScheduleFire) -> dict[str, Any]:
    return {
        "fire_at": row.fire_at,
        "due_at": row.due_at,
        "fired_at": row.fired_at,
        "lateness_s": row.lateness_s,
        "outcome": row.outcome,
        "task_id": row.task_id,
        "error": row.error,
        "backfill": row.backfill,
        "version": row.version,
    }


class BackfillSchedule(ApiView):
    """``/api/v1/schedules/{id}/backfill``"""

    scopes = {"POST": SUBMIT}

    @describe(
        "backfill_schedule",
        summary="Make up for a past range",
        tag="schedules",
        scope=SUBMIT,
        body=BackfillIn,
        answers={201: BackfillOut, 200: BackfillOut},
        problems=(404, 409, 429),
        parameters=[ID],
        examples=[request_example("a day", {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T23:59:59Z"})],
    )
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Submit the firings of the range that never became tasks, as one workflow; 200 when none were missing."""
        data = read_object(request._request, known=frozenset({"start", "end"}))
        principal = self.principal
        done = services.backfill(
            principal.tenant.pk,
            schedule_id,
            _moment(data, "start"),
            _moment(data, "end"),
            actor=principal.actor,
        )
        body = {"workflow_id": done.workflow_id, "task_ids": done.task_ids}
        location = f"/api/v1/workflows/{done.workflow_id}" if done.workflow_id else f"/api/v1/schedules/{schedule_id}"
        return created(body, location, new=done.workflow_id is not None)


def _moment(data: dict[str, Any], name: str) -> datetime:
    value = data.get(name)
    try:
        moment = parse_datetime(value) if isinstance(value, str) else None
        if moment is not None and moment.tzinfo is not None:
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise InvalidInput("must be an ISO 8601 date and time, for example 2030-01-31T09:00:00+01:00", field=name)
    return moment
