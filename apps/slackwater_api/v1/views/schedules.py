"""Schedules: make, list, look at with the next firings, change, pause, remove, make up for the past."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import Faults, InvalidInput, whole
from slackwater_api.http.body import read_json, read_object
from slackwater_api.http.endpoint import READ, SUBMIT, ApiView, created
from slackwater_api.http.openapi import NO_BODY, describe, request_example
from slackwater_api.http.operation import asks_quote
from slackwater_api.http.sorting import Column, PagedList, each, moment
from slackwater_api.v1.filters import FireFilter, ScheduleFilter
from slackwater_api.v1.shapes.common import as_shape, listing
from slackwater_api.v1.shapes.explain import Quote
from slackwater_api.v1.shapes.schedules import (
    BackfillIn,
    BackfillOut,
    FiringOut,
    PreviewIn,
    PreviewOut,
    ScheduleChange,
    ScheduleDetail,
    ScheduleIn,
    ScheduleSummary,
)
from slackwater_schedules import services
from slackwater_schedules.backfill import backfill
from slackwater_schedules.lookups import get_schedule
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_tasks.field_kinds import Moment, Whole

NEXT = 10
MOMENT = Moment()
COUNT = Whole(1, 1_000)
SCHEDULES = PagedList(
    present=each(lambda row: as_shape(ScheduleSummary, row, next_firing_at=row.next_fire_at)),
    filters=ScheduleFilter,
    columns={
        "name": Column("name"),
        "created_at": Column("created_at", moment),
        "updated_at": Column("updated_at", moment),
        "next_firing_at": Column("next_fire_at", moment, may_lack=True),
    },
    default="name",
)
FIRES = PagedList(
    present=each(partial(as_shape, FiringOut)),
    filters=FireFilter,
    columns={"fire_at": Column("fire_at", moment)},
    default="-fire_at",
    tie=Column("fire_at", moment, "fire_at"),
)
EXAMPLE = {
    "name": "report",
    "kind": "weekly",
    "rule": {"weekdays": ["mon"], "times": ["07:30"]},
    "time_zone": "Europe/Berlin",
    "overlap": "skip",
    "task": {"handler": "demo.echo", "args": ["report"]},
}


def _detail(schedule: Schedule) -> dict[str, Any]:
    upcoming = services.next_firings(schedule, NEXT)
    return as_shape(ScheduleDetail, schedule, next_firing_at=schedule.next_fire_at, next_firings=upcoming)


def _firing(fire: ScheduleFire) -> dict[str, Any]:
    return as_shape(FiringOut, fire)


class Schedules(ApiView, path="schedules", tag="schedules"):
    @describe(
        "create_schedule",
        "Create a schedule",
        SUBMIT,
        {201: ScheduleDetail},
        problems=(409,),
        body=ScheduleIn,
        examples=[request_example("weekly", EXAMPLE)],
        quote=Quote,
    )
    def post(self, request: Request) -> Response:
        """Store a schedule; it fires from its next time on."""
        made = services.create_schedule(self.tenant, read_json(request._request), actor=self.actor)
        if asks_quote(request):  # of what it would submit now
            return Response(_firing(services.run_now(self.tenant.pk, made.pk, actor=self.actor)))
        return created(_detail(made), f"/api/v1/schedules/{made.pk}")

    @describe("list_schedules", "List schedules by name", READ, {200: listing(ScheduleSummary)}, *SCHEDULES.parameters)
    def get(self, request: Request) -> Response:
        return Response(SCHEDULES.page(request.query_params, Schedule.objects.all()))


class Preview(ApiView, path="schedules/preview", tag="schedules"):
    @describe(
        "preview_schedule",
        "Preview the firings of times that are not stored",
        READ,
        {200: PreviewOut},
        body=PreviewIn,
        examples=[request_example("cron", {"kind": "cron", "rule": {"cron": "30 7 * * mon"}, "count": 3})],
    )
    def post(self, request: Request) -> Response:
        """The next times that a schedule made now would fire for; nothing is stored."""
        data = read_json(request._request)
        count = data.pop("count", NEXT) if isinstance(data, dict) else NEXT
        return Response({"next_firings": services.preview(data, COUNT.check(count, "count"))})


class RunSchedule(ApiView, path="schedules/<uuid:schedule_id>/run", tag="schedules"):
    @describe(
        "run_schedule",
        "Fire a schedule now",
        SUBMIT,
        {201: FiringOut},
        body=NO_BODY,
        problems=(409, 429),
        quote=Quote,
    )
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Submit what it submits, now; its times stay. 409 where its overlap rule skips the firing."""
        made = services.run_now(self.tenant.pk, schedule_id, actor=self.actor)
        kind, found = ("workflows", made.workflow_id) if made.workflow_id else ("tasks", made.task_id)
        return created(_firing(made), f"/api/v1/{kind}/{found}")


class OneSchedule(ApiView, path="schedules/<uuid:schedule_id>", tag="schedules"):
    @describe("get_schedule", "Get a schedule and its next firings", READ, {200: ScheduleDetail})
    def get(self, request: Request, schedule_id: UUID) -> Response:
        """One schedule with the next ten times it fires for."""
        return Response(_detail(get_schedule(self.tenant.pk, schedule_id)))

    @describe(
        "change_schedule",
        "Change, pause or resume a schedule",
        SUBMIT,
        {200: ScheduleDetail},
        problems=(409,),
        body=ScheduleChange,
        conditional=True,
        examples=[request_example("pause", {"paused": True})],
    )
    def patch(self, request: Request, schedule_id: UUID) -> Response:
        """Set the fields given, each as a whole: a ``rule`` or a ``task`` takes the old one's place, nothing is merged.

        Another ``kind`` brings its own ``rule``. ``version`` makes it a 409 when the schedule has moved on since.
        """
        changes = read_json(request._request)
        version = whole(changes.pop("version", None)) if isinstance(changes, dict) else None
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise InvalidInput("must be a whole number", field="version")
        with self.unchanged(Schedule.objects.filter(pk=schedule_id)):
            changed = services.update_schedule(self.tenant.pk, schedule_id, changes, actor=self.actor, version=version)
        return Response(_detail(changed))

    @describe("delete_schedule", "Remove a schedule", SUBMIT, {204: None}, conditional=True)
    def delete(self, request: Request, schedule_id: UUID) -> Response:
        """Remove it with its firings; the tasks it submitted stay."""
        with self.unchanged(Schedule.objects.filter(pk=schedule_id)):
            services.delete_schedule(self.tenant.pk, schedule_id)
        return Response(status=204)


class ScheduleFirings(ApiView, path="schedules/<uuid:schedule_id>/firings", tag="schedules"):
    @describe(
        "list_schedule_firings",
        "List a schedule's firings, missed ones included",
        READ,
        {200: listing(FiringOut)},
        *FIRES.parameters,
    )
    def get(self, request: Request, schedule_id: UUID) -> Response:
        get_schedule(self.tenant.pk, schedule_id)
        return Response(FIRES.page(request.query_params, ScheduleFire.objects.filter(schedule_id=schedule_id)))


class BackfillSchedule(ApiView, path="schedules/<uuid:schedule_id>/backfill", tag="schedules"):
    @describe(
        "backfill_schedule",
        "Backfill a past range",
        SUBMIT,
        {201: BackfillOut, 200: BackfillOut},
        problems=(409, 429),
        body=BackfillIn,
        examples=[request_example("a day", {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T23:59:59Z"})],
        quote=Quote,
    )
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Submit the firings of the range that never became tasks, as one workflow; 200 when none were missing."""
        data = read_object(request._request, "start", "end")
        faults = Faults()
        start, end = (faults.of(MOMENT.check, data.get(name), name) for name in ("start", "end"))
        faults.tell()
        done = backfill(self.tenant.pk, schedule_id, start, end, actor=self.actor)
        body = {"workflow_id": done.workflow_id, "task_ids": done.task_ids, "workflow_ids": done.workflow_ids}
        location = f"/api/v1/workflows/{done.workflow_id}" if done.workflow_id else f"/api/v1/schedules/{schedule_id}"
        return created(body, location, new=bool(done.workflow_id or done.workflow_ids))
