"""Operations on schedules. Every way in (REST, Python, admin, commands) calls these functions.

A change never loses a firing: what is due when it is made fires first, under the schedule as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, transaction

from scheduler_ext.core.errors import Conflict, DoesNotFit, InvalidInput, NotFound, NotGranted, misfit, placed
from slackwater_schedules import firing
from slackwater_schedules.fields import RULE_FIELDS, parse_schedule
from slackwater_schedules.firing import due_time, rule_of
from slackwater_schedules.lookups import database_now, locked_schedule
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_schedules.occurrences import Due
from slackwater_schedules.recurrence import INSTANT, Kind, Rule, next_after
from slackwater_schedules.submission import Firing, build_task, build_workflow, submit_all
from slackwater_tasks.spec import parse_task, parse_tasks
from slackwater_tasks.submission.admission import admit
from slackwater_tasks.submission.service import no_inner_keys, parse_header
from slackwater_tenants.models import Tenant

TIMING: Final = frozenset({*RULE_FIELDS, "jitter_s"})
"""Fields whose change moves the next firing."""


def create_schedule(tenant: Tenant, data: Mapping[str, Any], *, actor: str = "") -> Schedule:
    """Create a schedule; ``data`` has the fields of :data:`slackwater_schedules.fields.FIELDS`.

    ``InvalidInput`` names the field at fault (``rule.times[0]``, ``task.handler``), ``Conflict`` a taken name.
    """
    made = _build(tenant, data, database_now(), actor)
    with _unique_names():
        made.save(force_insert=True)
    return made


def _build(tenant: Tenant, data: Mapping[str, Any], now: datetime, actor: str) -> Schedule:
    values = parse_schedule(data, "name", "kind")
    if ("task" in values) == ("workflow" in values):
        raise InvalidInput("give exactly one of task and workflow", field="task")
    values.setdefault("task", {})
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
    first = next_after(rule, _from_now_on(rule, now))
    if first is None:
        raise DoesNotFit("never fires: all its times have passed or do not exist", field="rule")
    _set_next(schedule, first)
    return schedule


def _from_now_on(rule: Rule, now: datetime) -> datetime:
    """The moment before the first firing. A schedule that runs once, now, is due now; an interval begins a step later."""
    return now - INSTANT if rule.kind is Kind.ONCE else now


def _check_rule(schedule: Schedule, now: datetime) -> Rule:
    rule = rule_of(schedule)
    if rule.start and rule.end and rule.end < rule.start:
        raise DoesNotFit("must not lie before start_at", field="end_at")
    if rule.end and rule.end < now:
        raise DoesNotFit("must lie in the future, or it never fires", field="end_at")
    if rule.at is not None:
        if rule.at < now:
            raise DoesNotFit("must lie in the future; leave it out to run now", field="rule.at")
        schedule.rule = {"at": rule.at.isoformat()}
    return rule


def _check_task(tenant: Tenant, schedule: Schedule) -> None:
    """Refuse a template that the plan would refuse today; tomorrow's refusals become rows of failed firings."""
    where = "workflow" if schedule.workflow else "task"
    try:
        if schedule.workflow:
            data = build_workflow(schedule, schedule.anchor_at)
            parse_header(data)
            specs, payloads = parse_tasks(data["tasks"], "tasks")
            no_inner_keys(specs)
            admit(tenant, specs, payloads=payloads, where="tasks", workflow=True)
        else:
            admit(tenant, [parse_task(build_task(schedule, schedule.anchor_at))])
    except NotFound as error:
        raise DoesNotFit(error.message, field="workflow.template") from None
    except InvalidInput as error:
        of_template = "template" in (schedule.workflow or {})
        raise (misfit if of_template else placed)(error, where) from None
    except NotGranted as error:
        error.field = f"{where}.{error.field}" if error.field else where
        raise


def _set_next(schedule: Schedule, fire_at: datetime | None) -> None:
    schedule.next_fire_at = fire_at
    schedule.next_due_at = None if schedule.paused else due_time(schedule, fire_at)


def update_schedule(
    tenant_id: int, schedule_id: UUID, changes: Mapping[str, Any], *, actor: str = "", version: int | None = None
) -> Schedule:
    """Change fields of a schedule; its version rises. Past firings stay, and those already due fire as they were.

    ``version`` is the one the change was made from: ``Conflict`` when the schedule has moved on since. Other errors
    as in :func:`create_schedule`.
    """
    values = parse_schedule(changes)
    if not values and version is None:
        raise InvalidInput("give at least one field to change")
    with transaction.atomic():
        schedule = locked_schedule(tenant_id, schedule_id)
        if version is not None and version != schedule.version:
            raise Conflict(f"it was changed since: version {schedule.version}, not {version}", field="version")
        if values:
            now = database_now()
            firing.fire_locked([schedule], now)
            _apply(schedule, values, now)
            _save(schedule, now, actor)
    return schedule


def _apply(schedule: Schedule, values: Mapping[str, Any], now: datetime) -> None:
    """Set the values, check the whole, and find the next firing where its times have changed."""
    was_paused = schedule.paused
    if "kind" in values and values["kind"] != schedule.kind and "rule" not in values:
        values = {**values, "rule": {}}
    if "task" in values and "workflow" in values:
        raise InvalidInput("give exactly one of task and workflow", field="task")
    if "task" in values or "workflow" in values:
        values = {"task": {}, "workflow": None, **values}
    for name, value in values.items():
        setattr(schedule, name, value)
    if {"task", "workflow", "name"} & set(values):
        _check_task(schedule.tenant, schedule)
    if was_paused and not schedule.paused:
        schedule.next_fire_at = None  # what was due meanwhile is passed over
        anew = RULE_FIELDS & set(values)
        _set_next(schedule, _next_after_change(schedule, values, now) if anew else next_after(rule_of(schedule), now))
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
        if schedule.kind == Kind.ONCE and not schedule.rule.get("at"):
            schedule.rule = {"at": now.isoformat()}
        rule = _check_rule(schedule, now)
    else:
        rule = rule_of(schedule)
    if rule.start and rule.end and rule.end < rule.start:
        raise DoesNotFit("must not lie before start_at", field="end_at")
    after = pending - INSTANT if pending is not None and pending <= now else _from_now_on(rule, now)
    found = next_after(rule, after)
    if found is None and {"kind", "rule"} & set(values):
        raise DoesNotFit("never fires: all its times have passed or do not exist", field="rule")
    return found


def _save(schedule: Schedule, now: datetime, actor: str) -> None:
    schedule.version += 1
    schedule.updated_at, schedule.updated_by = now, actor[:120]
    with _unique_names():
        schedule.save(force_update=True)


@contextmanager
def _unique_names() -> Iterator[None]:
    """All or nothing; ``Conflict`` where a name is taken."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        if "slackwater_schedule_name_unique" not in str(error):
            raise
        raise Conflict("there is a schedule of that name already", field="name") from None


def pause_schedule(tenant_id: int, schedule_id: UUID, *, actor: str = "") -> Schedule:
    """Pause a schedule until it is resumed. Its times until then do not count as missed."""
    return update_schedule(tenant_id, schedule_id, {"paused": True}, actor=actor)


def resume_schedule(tenant_id: int, schedule_id: UUID, *, actor: str = "") -> Schedule:
    """Resume a schedule from its next time on."""
    return update_schedule(tenant_id, schedule_id, {"paused": False}, actor=actor)


def delete_schedule(tenant_id: int, schedule_id: UUID) -> None:
    """Remove a schedule with its firings; tasks that it submitted stay. ``NotFound`` when there is none."""
    with transaction.atomic():
        locked_schedule(tenant_id, schedule_id).delete()


def run_now(tenant_id: int, schedule_id: UUID, *, actor: str = "") -> ScheduleFire:
    """Fire a schedule now, whatever its times are and whether it is paused; its times stay as they are.

    Its overlap rule holds: ``Conflict`` where that skips the firing. Other errors as of a submission.
    """
    with transaction.atomic():
        schedule = locked_schedule(tenant_id, schedule_id)
        now = database_now()
        made = Firing(schedule=schedule, due=Due(fire_at=now, due_at=now, run=True), by=actor)
        submit_all([made])
        if made.cause is not None:
            raise made.cause
        if made.outcome is ScheduleFire.Outcome.SKIPPED:
            raise Conflict("the last one has not ended, and the schedule's overlap rule skips this one")
        firing.write_fires([made])
    found: ScheduleFire = ScheduleFire.objects.unscoped().get(schedule=schedule, fire_at=now)  # it is the tenant's
    return found


def preview(data: Mapping[str, Any], n: int = 10) -> list[datetime]:
    """The next ``n`` firings that a schedule of these times would have; nothing is stored."""
    values = parse_schedule(data)
    for name in values:
        if name not in RULE_FIELDS:
            raise InvalidInput(f"says nothing of times; known are {', '.join(sorted(RULE_FIELDS))}", field=name)
    if "kind" not in values:
        raise InvalidInput("must be given", field="kind")
    now = database_now()
    schedule = Schedule(anchor_at=now, **values)
    rule = _check_rule(schedule, now)
    schedule.next_fire_at = next_after(rule, _from_now_on(rule, now))
    return next_firings(schedule, n)


def next_firings(schedule: Schedule, n: int = 10) -> list[datetime]:
    """The next ``n`` firings without jitter; of a paused schedule, those it would have."""
    if not 1 <= n <= 1_000:
        raise InvalidInput("must be from 1 to 1000", field="n")
    rule = rule_of(schedule)
    return _following(rule, next_after(rule, database_now()) if schedule.paused else schedule.next_fire_at, n)


def firings_of(rule: Rule, n: int) -> list[datetime]:
    """The first ``n`` firings of a schedule that would be made now with this rule."""
    return _following(rule, next_after(rule, _from_now_on(rule, database_now())), n)


def _following(rule: Rule, upcoming: datetime | None, n: int) -> list[datetime]:
    found: list[datetime] = []
    while upcoming is not None and len(found) < n:
        found.append(upcoming)
        upcoming = next_after(rule, upcoming)
    return found
