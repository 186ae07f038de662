"""Slackwater, a distributed, multi-tenant task platform that extends Celery: what code of one's own imports.

Each name is loaded on first use: ``import slackwater`` loads neither Django nor Celery.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler_ext.core.errors import Conflict, InvalidInput, NotFound, SlackwaterError
    from scheduler_ext.core.types import WorkKind
    from scheduler_ext.task.context import TaskContext, TaskInterrupted, checkpoint, current, once
    from scheduler_ext.task.effects import DidNotHappen, InDoubt
    from scheduler_ext.task.handlers import export, handler
    from slackwater.client import ApiError, AsyncClient, Client, TaskFailed, TimedOut
    from slackwater.durable import install
    from slackwater_schedules.services import create_schedule
    from slackwater_tasks.control.cancel import cancel
    from slackwater_tasks.control.edit import edit
    from slackwater_tasks.control.rerun import retry
    from slackwater_tasks.control.resubmit import resubmit
    from slackwater_tasks.submission.canvas import submit_canvas
    from slackwater_tasks.submission.service import Submission, submit, submit_many, submit_workflow
    from slackwater_tenants.models import Tenant
    from slackwater_tenants.services import create_tenant

__version__ = "0.2.0"

__all__ = [
    "DJANGO_APPS", "ApiError", "AsyncClient", "Client", "Conflict", "DidNotHappen", "InDoubt", "InvalidInput",
    "NotFound", "SlackwaterError", "Submission", "TaskContext", "TaskFailed", "TaskInterrupted", "Tenant", "TimedOut",
    "WorkKind", "cancel", "checkpoint", "create_schedule", "create_tenant", "current", "edit", "export", "handler",
    "install", "once", "resubmit", "retry", "submit", "submit_canvas", "submit_many", "submit_workflow",
]  # fmt: skip

DJANGO_APPS = (
    "slackwater_tenants",
    "slackwater_resources",
    "slackwater_tasks",
    "slackwater_schedules",
    "slackwater_monitoring",
    "slackwater_dashboard",
    "slackwater",
)
"""What a Django project adds to its ``INSTALLED_APPS``, after ``unfold``, ``unfold.contrib.filters`` and
``django_celery_beat``."""

_HOMES = {
    "scheduler_ext.core.errors": ("Conflict", "InvalidInput", "NotFound", "SlackwaterError"),
    "scheduler_ext.core.types": ("WorkKind",),
    "scheduler_ext.task.context": ("TaskContext", "TaskInterrupted", "checkpoint", "current", "once"),
    "scheduler_ext.task.effects": ("DidNotHappen", "InDoubt"),
    "scheduler_ext.task.handlers": ("export", "handler"),
    "slackwater.client": ("ApiError", "AsyncClient", "Client", "TaskFailed", "TimedOut"),
    "slackwater.durable": ("install",),
    "slackwater_schedules.services": ("create_schedule",),
    "slackwater_tasks.control.cancel": ("cancel",),
    "slackwater_tasks.control.edit": ("edit",),
    "slackwater_tasks.control.rerun": ("retry",),
    "slackwater_tasks.control.resubmit": ("resubmit",),
    "slackwater_tasks.submission.canvas": ("submit_canvas",),
    "slackwater_tasks.submission.service": ("Submission", "submit", "submit_many", "submit_workflow"),
    "slackwater_tenants.models": ("Tenant",),
    "slackwater_tenants.services": ("create_tenant",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name, from where it lives."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
