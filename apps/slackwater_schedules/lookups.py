"""Finding a tenant's schedule, and asking the database for the time."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from scheduler_ext.core.errors import NotFound
from slackwater_schedules.models import Schedule
from slackwater_tasks.ledger.connection import fetch_value


def get_schedule(tenant_id: int, schedule_id: UUID) -> Schedule:
    """The tenant's schedule of that id; ``NotFound`` when it has none."""
    return _found(_rows(tenant_id), schedule_id)


def locked_schedule(tenant_id: int, schedule_id: UUID) -> Schedule:
    """The same with its row locked, which waits for a beat that works on it; inside a transaction."""
    return _found(_rows(tenant_id).select_for_update(of=("self",)), schedule_id)


def _rows(tenant_id: int) -> QuerySet[Any]:
    # Unscoped, because the tenant is named: another tenant's schedule is not found.
    return Schedule.objects.unscoped().for_tenant(tenant_id).select_related("tenant__plan")


def _found(rows: QuerySet[Any], schedule_id: UUID) -> Schedule:
    schedule: Schedule | None = rows.filter(pk=schedule_id).first()
    if schedule is None:
        raise NotFound(f"there is no schedule {schedule_id}")
    return schedule


def database_now() -> datetime:
    """The database's time."""
    now: datetime = fetch_value("SELECT clock_timestamp()")
    return now
