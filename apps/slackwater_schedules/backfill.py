"""Making up for a past range: the firings that never became tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from scheduler_ext.core.errors import DoesNotFit, InvalidInput, TooLarge
from slackwater_schedules.firing import rule_of, write_fires
from slackwater_schedules.lookups import database_now, locked_schedule
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_schedules.occurrences import Due
from slackwater_schedules.recurrence import between
from slackwater_schedules.submission import Firing, actor_of, build_task, find_open_tasks, submit_flow, written
from slackwater_tasks.submission import service as tasks

MAX_BACKFILL: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The result of a backfill."""

    task_ids: list[UUID]
    """Its tasks, in the order of the times they are for."""
    workflow_id: UUID | None
    """The workflow that holds them; None when nothing was missing, or where each firing is a workflow."""
    workflow_ids: list[UUID] = field(default_factory=list)
    """The workflows, where the schedule submits those."""


def backfill(tenant_id: int, schedule_id: UUID, start: datetime, end: datetime, *, actor: str = "") -> Backfill:
    """Submit the firings from ``start`` to ``end`` (aware, both included, in the past) that were never submitted.

    They become one workflow, all or none; those of a schedule of workflows stay workflows. The rule is taken as it is
    now, from before its start too. Where firings must not overlap, each waits for the one before. ``TooLarge`` above
    1,000 firings; errors of a submission.
    """
    for name, value in (("start", start), ("end", end)):
        if value.tzinfo is None:
            raise InvalidInput("needs a time zone, for example Z or +01:00", field=name)
    if end < start:
        raise DoesNotFit("must not lie before start", field="end")
    with transaction.atomic():
        schedule = locked_schedule(tenant_id, schedule_id)
        if end > database_now():
            raise DoesNotFit("must lie in the past", field="end")
        firings = _missing(schedule, start, end)
        if not firings:
            return Backfill(task_ids=[], workflow_id=None)
        if schedule.workflow:
            return _workflows(schedule, firings, actor)
        workflow = {"name": f"backfill {schedule.name}", "tasks": _items(schedule, firings)}
        done = tasks.submit_workflow(schedule.tenant, workflow, actor=actor or actor_of(schedule))
        for firing, task_id in zip(firings, done.task_ids, strict=True):
            firing.outcome, firing.task_id = ScheduleFire.Outcome.SUBMITTED, task_id
        write_fires(firings, backfill=True)
    return Backfill(task_ids=done.task_ids, workflow_id=done.workflow_id)


def _workflows(schedule: Schedule, firings: Sequence[Firing], actor: str) -> Backfill:
    """Submit each as a workflow; one after the other where they must not overlap."""
    apart = schedule.overlap != Schedule.Overlap.ALLOW
    waits_for = find_open_tasks({schedule.pk})[schedule.pk] if apart else []
    for firing in firings:
        firing.by, firing.waits_for = actor, waits_for
        firing.outcome, firing.workflow_id = ScheduleFire.Outcome.SUBMITTED, submit_flow(schedule.tenant, firing)
        waits_for = [str(firing.workflow_id)] if apart else []
    write_fires(firings, backfill=True)
    return Backfill(task_ids=[], workflow_id=None, workflow_ids=[f.workflow_id for f in firings if f.workflow_id])


def _items(schedule: Schedule, firings: Sequence[Firing]) -> list[dict[str, Any]]:
    """The tasks, named by their times; one after the other where they must not overlap."""
    waits_for: list[str] = []
    if schedule.overlap != Schedule.Overlap.ALLOW:
        waits_for = find_open_tasks({schedule.pk})[schedule.pk]
    items = []
    for firing in firings:
        item = build_task(schedule, firing.due.fire_at)
        item["name"] = f"{item['name'][:150]} {written(firing.due.fire_at)}"
        if waits_for:
            item |= {"depends_on": waits_for, "condition": "all_done"}
        if schedule.overlap != Schedule.Overlap.ALLOW:
            waits_for = [item["name"]]
        items.append(item)
    return items


def _missing(schedule: Schedule, start: datetime, end: datetime) -> list[Firing]:
    rule = replace(rule_of(schedule), start=None, end=None)
    if rule.every is not None and rule.anchor is not None and rule.anchor > start:
        rule = replace(rule, anchor=rule.anchor - ((rule.anchor - start) // rule.every + 1) * rule.every)
    made = set(
        ScheduleFire.objects.unscoped()  # the tenant was named when the schedule was read
        .filter(schedule=schedule, fire_at__gte=start, fire_at__lte=end, outcome=ScheduleFire.Outcome.SUBMITTED)
        .values_list("fire_at", flat=True)
    )
    firings: list[Firing] = []
    for fire_at in between(rule, start, end):
        if fire_at in made:
            continue
        if len(firings) >= MAX_BACKFILL:
            raise TooLarge(f"holds more than {MAX_BACKFILL} firings; take a shorter range", field="end")
        firings.append(Firing(schedule=schedule, due=Due(fire_at=fire_at, due_at=fire_at, run=True)))
    return firings
