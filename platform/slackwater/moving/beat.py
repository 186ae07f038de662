"""Celery's periodic tasks as schedules: those of ``beat_schedule`` and of django-celery-beat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from celery import Celery
from celery.schedules import crontab, schedule
from django.apps import apps
from django.utils import timezone

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.task import handlers
from scheduler_ext.task.celery_json import CALL
from scheduler_ext.task.celery_options import fields_of_call

FIELDS = (
    ("minute", 60, 0),
    ("hour", 24, 0),
    ("day_of_month", 31, 1),
    ("month_of_year", 12, 1),
    ("day_of_week", 7, 0),
)
"""Of a crontab, in cron's order: how many values there are, and the first."""
NOT_OF_SCHEDULES: Final = frozenset({"task_id", "chain", "chord", "group_id", "link", "link_error"})
"""Options of a call that a schedule's template has no place for."""
COLUMNS: Final[dict[str, type[Any]]] = {"args": list, "kwargs": dict, "headers": dict}
"""Of a periodic task: those that hold JSON, and of which kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A periodic task, from wherever it was told."""

    name: str
    task: str
    when: Any
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    start: datetime | None = None
    end: datetime | None = None
    enabled: bool = True
    once: bool = False
    relative: bool = False
    """Whether an interval is rounded to its multiples."""
    unread: str = ""
    """The column whose text is none that beat could read."""


def of_app(app: Celery) -> Iterator[Entry]:
    """What the app's ``beat_schedule`` tells."""
    for name, given in sorted((app.conf.beat_schedule or {}).items()):
        yield Entry(
            name=str(name), task=given["task"], when=given["schedule"], args=list(given.get("args") or ()),
            kwargs=dict(given.get("kwargs") or {}), options=given.get("options") or {},
            relative=bool(given.get("relative")),
        )  # fmt: skip


def of_database() -> Iterator[Entry]:
    """What django-celery-beat's tables tell; nothing where it is not installed."""
    if not apps.is_installed("django_celery_beat"):
        return
    from django_celery_beat.models import PeriodicTask

    rows = PeriodicTask.objects.select_related("interval", "crontab", "solar", "clocked").order_by("name")
    for row in rows.exclude(task__startswith="celery."):
        read = {name: _json(getattr(row, name), kind) for name, kind in COLUMNS.items()}
        options = {"queue": row.queue, "exchange": row.exchange, "routing_key": row.routing_key, "priority": row.priority,
                   "headers": read["headers"], "expires": row.expire_seconds}  # fmt: skip
        yield Entry(
            name=row.name, task=row.task,
            when=row.clocked.clocked_time if row.clocked else row.solar or row.schedule,  # a solar one needs a library
            args=read["args"] or [], kwargs=read["kwargs"] or {},
            options={name: value for name, value in options.items() if value not in (None, "", {})},
            start=row.start_time, end=row.expires, enabled=row.enabled, once=row.one_off,
            unread=next((name for name, value in read.items() if value is None), ""),
        )  # fmt: skip


def _json(text: str, kind: type[Any]) -> Any:
    """What a column holds; ``None`` when it is no JSON, or not of the kind."""
    try:
        found = json.loads(text) if text else kind()
    except ValueError:
        return None
    return found if isinstance(found, kind) else None


def is_over(entry: Entry) -> bool:
    """Whether its single moment has passed and beat has done with it."""
    return isinstance(entry.when, datetime) and not entry.enabled and entry.when <= timezone.now()


def schedule_of(entry: Entry, app: Celery) -> dict[str, Any]:
    """The fields of the schedule that does the same; ``InvalidInput`` names what cannot be kept."""
    if entry.name != entry.name.strip() or not 1 <= len(entry.name) <= 100:
        raise InvalidInput("must have 1 to 100 characters and no spaces around it", field="name")
    if entry.unread:
        raise InvalidInput("cannot be read as JSON of its kind; beat cannot send it either", field=entry.unread)
    if (entry.relative or getattr(entry.when, "relative", False)) and not isinstance(entry.when, crontab):
        raise InvalidInput(
            "cannot be kept: tell an interval that begins at its multiples as a crontab", field="relative"
        )
    if entry.once and not isinstance(entry.when, datetime):
        raise InvalidInput("give a moment (clocked) to what is to run a single time", field="one_off")
    if lost := sorted(NOT_OF_SCHEDULES & entry.options.keys()):
        raise InvalidInput("cannot be kept: each firing is a task of its own", field=f"options.{lost[0]}")
    fields = fields_of_call(entry.options, app, timezone.now(), "options")
    if "start_at" in fields:
        raise InvalidInput("the schedule says when a task starts", field="options.countdown")
    kwargs = {**entry.kwargs, **({CALL: fields.pop(CALL)} if CALL in fields else {})}
    export = handlers.of_task(entry.task)
    extra = fields.pop("slackwater", {})
    return {
        "name": entry.name, "paused": not entry.enabled, "overlap": "allow", **_rule(entry.when, app),
        **({"start_at": entry.start} if entry.start else {}), **({"end_at": entry.end} if entry.end else {}),
        "task": {
            "handler": export.name if export is not None else entry.task, "args": entry.args, "kwargs": kwargs,
            **fields, **extra,
        },
    }  # fmt: skip


def _rule(when: Any, app: Celery) -> dict[str, Any]:
    if isinstance(when, crontab):
        return _cron(when, app)
    if isinstance(when, datetime):
        return {"kind": "once", "rule": {"at": when.isoformat()}}
    if type(when) is schedule:
        when = when.run_every  # type: ignore[attr-defined]  # Celery's types do not know it
    seconds = when.total_seconds() if isinstance(when, timedelta) else when
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise InvalidInput(f"{when} cannot be told as a schedule", field="schedule")
    if seconds < 1 or seconds != int(seconds):
        raise InvalidInput(f"an interval is a whole number of seconds, not {seconds}", field="schedule")
    return {"kind": "interval", "rule": {"every_s": int(seconds)}}


def _cron(when: crontab, app: Celery) -> dict[str, Any]:
    days: dict[str, str] = {}
    for name, count, first in FIELDS:
        values = getattr(when, name)
        days[name] = "*" if values >= set(range(first, first + count)) else ",".join(map(str, sorted(values)))
    if days["day_of_month"] != "*" and days["day_of_week"] != "*":
        raise InvalidInput(
            "restricts the day of the month and of the week: with Celery both must hold, with cron either",
            field="schedule",
        )
    # Celery's own belongs to an app, and without one to the current app, whichever that is; django-celery-beat's has a zone.
    zone = app.timezone if type(when) is crontab else when.tz
    return {"kind": "cron", "rule": {"cron": " ".join(days.values())}, "time_zone": getattr(zone, "key", str(zone))}
