"""What can be done to schedules. Every way in (REST, Python, admin, commands) calls these functions.

A change never loses a firing: what is due when it is made fires first, under the schedule as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet

from apps.schedules import firing
from apps.schedules.fields import RULE_FIELDS, parse_schedule
from apps.schedules.firing import Counts, due_time, rule_of, write_fires
from apps.schedules.models import Schedule, ScheduleFire
from apps.schedules.planning import Due
from apps.schedules.recurrence import INSTANT, Rule, between, next_after
from apps.schedules.submitting import Firing, build_task, submit_all
from apps.tasks.admission import admit
from apps.tasks.specs import parse_task
from apps.tenants.models import Tenant
from scheduler_ext.core.errors import Conflict, InvalidInput, NotFound, NotGranted, SlackwaterError, TooLarge

MAX_BACKFILL: Final = 1_000
TIMING: Final = frozenset({*RULE_FIELDS, "jitter_s"})
"""Fields whose change moves the next firing."""

__all__ = [
    "Backfill",
    "backfill",
    "create_schedule",
    "create_schedules",
    "delete_schedule",
    "get_schedule",
    "next_firings",
    "pause_schedule",
    "resume_schedule",
    "update_schedule",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """What a backfill did."""

    counts: Counts
    task_ids: list[UUID]


def create_schedule(tenant: Tenant, data: Mapping[str, Any], *, actor: str = "") -> Schedule:
    """Create a schedule; ``data`` has the fields of :data:`apps.schedules.fields.FIELDS`.

    ``InvalidInput`` names the field at fault (``rule.times[0]``, ``task.handler``), ``Conflict`` a taken name.
    """
    return _create(tenant, [data], [""], actor)[0]


def create_schedules(
    tenant: Tenant, items: Sequence[Mapping[str, Any]], *, actor: str = ""
) -> list[Schedule]:
    """Create several schedules, all or none; errors name ``schedules[3].name``."""
    return _create(tenant, items, [f"schedules[{n}]." for n in range(len(items))], actor)


def _create(
    tenant: Tenant, items: Sequence[Mapping[str, Any]], paths: Sequence[str], actor: str
) -> list[Schedule]:
    now = _database_now()
    made = []
    for data, path in zip(items, paths, strict=True):
        try:
            made.append(_build(tenant, data, now, actor))
        except SlackwaterError as error:
            error.field = f"{path}{error.field}" if error.field else path.rstrip(".") or None
            raise
    try:
        with transaction.atomic():
            # Unscoped: the tenant is named in each row.
            Schedule.objects.unscoped().bulk_create(made, batch_size=1_000)
    except IntegrityError as error:
        if "schedule_name_unique" not in str(error):
            raise
        raise Conflict("there is a schedule of that name already", field="name") from None
    return made


def _build(tenant: Tenant, data: Mapping[str, Any], now: datetime, actor: str) -> Schedule:
    values = parse_schedule(data)
    for name in ("name", "kind", "task"):
        if name not in values:
            raise InvalidInput("must be given", field=name)
    schedule = Schedule(
        tenant=tenant,
        anchor_at=now,
        created_at=now,
        updated_at=now,
        created_by=actor[:120],
        updated_by=actor[:120],
        **values,
    )
    _check_task(tenant, schedule)
    rule = _check_rule(schedule, now)
    # A schedule made to run once, now, is due now.
    first = next_after(rule, now - INSTANT)
    if first is None:
        raise InvalidInput("never fires: all its times have passed or do not exist", field="rule")
    _set_next(schedule, first)
    return schedule


def _check_rule(schedule: Schedule, now: datetime) -> Rule:
    rule = rule_of(schedule)
    if rule.start and rule.end and rule.end < rule.start:
        raise InvalidInput("must not lie before start_at", field="end_at")
    if rule.at is not None:
        if rule.at < now:
            raise InvalidInput("must lie in the future; leave it out to run now", field="rule.at")
        schedule.rule = {"at": rule.at.isoformat()}
    return rule


def _check_task(tenant: Tenant, schedule: Schedule) -> None:
    """Refuse a template that the plan would refuse today; tomorrow's refusals become rows of failed firings."""
    try:
        admit(tenant, [parse_task(build_task(schedule, schedule.anchor_at.isoformat()))])
    except (InvalidInput, NotGranted) as error:
        error.field = f"task.{error.field}" if error.field else "task"
        raise


def _set_next(schedule: Schedule, fire_at: datetime | None) -> None:
    schedule.next_fire_at = fire_at
    schedule.next_due_at = None if schedule.paused else due_time(schedule, fire_at)


def get_schedule(tenant_id: int, schedule_id: UUID) -> Schedule:
    """The tenant's schedule of that id; ``NotFound`` when it has none."""
    return _found(_rows(tenant_id), schedule_id)


def _rows(tenant_id: int) -> QuerySet[Any]:
    # Unscoped, because the tenant is named: another tenant's schedule is not found.
    return Schedule.objects.unscoped().for_tenant(tenant_id).select_related("tenant__plan")


def _found(rows: QuerySet[Any], schedule_id: UUID) -> Schedule:
    schedule: Schedule | None = rows.filter(pk=schedule_id).first()
    if schedule is None:
        raise NotFound(f"there is no schedule {schedule_id}")
    return schedule


def _locked(tenant_id: int, schedule_id: UUID) -> Schedule:
    """The schedule under its row's lock, after a beat that works on it."""
    return _found(_rows(tenant_id).select_for_update(of=("self",)), schedule_id)


def update_schedule(
    tenant_id: int,
    schedule_id: UUID,
    changes: Mapping[str, Any],
    *,
    actor: str = "",
    version: int | None = None,
) -> Schedule:
    """Change fields of a schedule; its version rises. What fired already stays, what is due fires as it was.

    ``version`` is the one the change was made from: ``Conflict`` when the schedule has moved on since. Other errors
    as in :func:`create_schedule`.
    """
    values = parse_schedule(changes)
    if not values:
        raise InvalidInput("give at least one field to change")
    with transaction.atomic():
        schedule = _locked(tenant_id, schedule_id)
        if version is not None and version != schedule.version:
            raise Conflict(
                f"it was changed since: version {schedule.version}, not {version}", field="version"
            )
        now = _database_now()
        firing.fire_locked([schedule], now)
        _apply(schedule, values, now)
        _save(schedule, now, actor)
    return schedule


def _apply(schedule: Schedule, values: Mapping[str, Any], now: datetime) -> None:
    """Set the values, check the whole, and find the next firing where its times have changed."""
    was_paused = schedule.paused
    if "kind" in values and values["kind"] != schedule.kind and "rule" not in values:
        values = {**values, "rule": {}}
    for name, value in values.items():
        setattr(schedule, name, value)
    if {"task", "name"} & set(values):
        _check_task(schedule.tenant, schedule)
    if was_paused and not schedule.paused:
        _set_next(schedule, next_after(rule_of(schedule), now))
    elif TIMING & set(values):
        _set_next(schedule, _next_after_change(schedule, values, now))
    elif schedule.paused:
        schedule.next_due_at = None


def _next_after_change(schedule: Schedule, values: Mapping[str, Any], now: datetime) -> datetime | None:
    """The first firing under the new rule. One that waits for its jitter is not passed over."""
    pending = schedule.next_fire_at
    if not RULE_FIELDS & set(values):
        return pending
    if "rule" in values or "kind" in values:
        if schedule.kind == Schedule.Kind.ONCE and not schedule.rule.get("at"):
            schedule.rule = {"at": now.isoformat()}
        rule = _check_rule(schedule, now)
    else:
        rule = rule_of(schedule)
    if rule.start and rule.end and rule.end < rule.start:
        raise InvalidInput("must not lie before start_at", field="end_at")
    after = now if pending is None else min(now, pending)
    found = next_after(rule, after - INSTANT)
    if found is None and {"kind", "rule"} & set(values):
        raise InvalidInput("never fires: all its times have passed or do not exist", field="rule")
    return found


def _save(schedule: Schedule, now: datetime, actor: str) -> None:
    schedule.version += 1
    schedule.updated_at, schedule.updated_by = now, actor[:120]
    try:
        with transaction.atomic():
            schedule.save(force_update=True)
    except IntegrityError as error:
        if "schedule_name_unique" not in str(error):
            raise
        raise Conflict("there is a schedule of that name already", field="name") from None


def pause_schedule(tenant_id: int, schedule_id: UUID, *, actor: str = "") -> Schedule:
    """Let it fire no more until it is resumed. Its times until then are not missed: nothing was to run."""
    return update_schedule(tenant_id, schedule_id, {"paused": True}, actor=actor)


def resume_schedule(tenant_id: int, schedule_id: UUID, *, actor: str = "") -> Schedule:
    """Let it fire again, from its next time on."""
    return update_schedule(tenant_id, schedule_id, {"paused": False}, actor=actor)


def delete_schedule(tenant_id: int, schedule_id: UUID) -> None:
    """Remove a schedule with its firings; tasks that it submitted stay. ``NotFound`` when there is none."""
    with transaction.atomic():
        _locked(tenant_id, schedule_id).delete()


def next_firings(schedule: Schedule, n: int = 10) -> list[datetime]:
    """The next ``n`` times it fires for, without jitter; those of a paused one are those it would have."""
    if not 1 <= n <= 1_000:
        raise InvalidInput("must be from 1 to 1000", field="n")
    rule = rule_of(schedule)
    found: list[datetime] = []
    upcoming = schedule.next_fire_at
    if schedule.paused:
        upcoming = next_after(rule, _database_now())
    while upcoming is not None and len(found) < n:
        found.append(upcoming)
        upcoming = next_after(rule, upcoming)
    return found


def backfill(
    tenant_id: int, schedule_id: UUID, start: datetime, end: datetime, *, actor: str = ""
) -> Backfill:
    """Submit the firings from ``start`` to ``end`` (aware, both included, in the past) that were never submitted.

    The rule is taken as it is now, from before its start too. Where firings must not overlap, each waits for the one
    before. ``TooLarge`` above 1,000 firings.
    """
    for name, value in (("start", start), ("end", end)):
        if value.tzinfo is None:
            raise InvalidInput("needs a time zone, for example Z or +01:00", field=name)
    if end < start:
        raise InvalidInput("must not lie before start", field="end")
    with transaction.atomic():
        schedule = _locked(tenant_id, schedule_id)
        if end > _database_now():
            raise InvalidInput("must lie in the past", field="end")
        firings = _missing(schedule, start, end)
        submit_all(firings)
        write_fires(firings, backfill=True)
    counts = firing.count(1, firings)
    return Backfill(counts=counts, task_ids=[f.task_id for f in firings if f.task_id is not None])


def _missing(schedule: Schedule, start: datetime, end: datetime) -> list[Firing]:
    rule = replace(rule_of(schedule), start=None, end=None)
    if rule.every is not None and rule.anchor is not None and rule.anchor > start:
        rule = replace(rule, anchor=rule.anchor - ((rule.anchor - start) // rule.every + 1) * rule.every)
    made = set(
        ScheduleFire.objects.unscoped()  # the tenant was named when the schedule was read
        .filter(
            schedule=schedule, fire_at__gte=start, fire_at__lte=end, outcome=ScheduleFire.Outcome.SUBMITTED
        )
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


def _database_now() -> datetime:
    with connection.cursor() as cur:
        cur.execute("SELECT clock_timestamp()")
        now: datetime = cur.fetchone()[0]
    return now
