"""Schedules whose time has come, without waiting for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F

from scheduler_ext.core.states import TaskState
from slackwater_schedules import services
from slackwater_schedules.firing import fire_due
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_tasks.models import LiveTask, Task
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER

FIRES = ScheduleFire._plain


def make(tenant: Tenant, name: str = "nightly", **fields: Any) -> Schedule:
    """An hourly schedule unless told otherwise."""
    data = {
        "name": name,
        "kind": "interval",
        "rule": {"every_s": 3600},
        "task": {"handler": HANDLER},
        **fields,
    }
    return services.create_schedule(tenant, data, actor="user:ann")


def rewind(schedule: Schedule, seconds: float) -> Schedule:
    """Move an interval's past: what was made just now was made that long ago."""
    by = timedelta(seconds=seconds)
    for name in ("anchor_at", "next_fire_at", "next_due_at"):
        setattr(schedule, name, getattr(schedule, name) - by)
    schedule.save()
    return schedule


def due(tenant: Tenant, name: str = "nightly", **fields: Any) -> Schedule:
    """A schedule with one firing due a second ago."""
    return rewind(make(tenant, name, **fields), 3601)


def outcomes(schedule: Schedule) -> list[str]:
    """What became of its firings, oldest first."""
    return list(FIRES.filter(schedule=schedule).order_by("fire_at").values_list("outcome", flat=True))


def tasks_of(schedule: Schedule) -> list[UUID]:
    """Its tasks, oldest firing first."""
    rows = FIRES.filter(schedule=schedule, task_id__isnull=False).order_by("fire_at")
    return [task_id for task_id in rows.values_list("task_id", flat=True) if task_id is not None]


def fire_again(schedule: Schedule) -> None:
    """Let an hour pass: its next firing is due; fire."""
    schedule.refresh_from_db()
    FIRES.filter(schedule=schedule).update(fire_at=F("fire_at") - timedelta(hours=1))
    rewind(schedule, 3600)
    fire_due()


def state_of(task_id: UUID) -> str:
    """Where a task stands."""
    live = LiveTask._plain.filter(pk=task_id).first()
    state = live.state if live else Task._plain.get(pk=task_id).state
    assert state is not None
    return TaskState(state).name
