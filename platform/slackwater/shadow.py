"""The shadow: tasks that ``SHADOW`` names stay Celery's, and what becomes of them is noted beside for ``doctor --compare``."""

from __future__ import annotations

import logging
from functools import wraps
from typing import Any

from celery import Celery, signals
from django.utils import timezone

from scheduler_ext.task import handlers
from slackwater_tasks.control import shadow

log = logging.getLogger(__name__)


def install() -> None:
    """Watch what every Celery application of this process publishes and runs. Once: more does nothing."""
    original: Any = Celery.send_task
    if getattr(original, "shadows", False):
        return

    @wraps(original)
    def send_task(self: Any, name: str, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        at = timezone.now()
        result = original(self, name, args, kwargs, *more, **options)
        try:
            given = {**options, **dict(zip(("countdown", "eta", "task_id"), more, strict=False))}
            if shadow.concerns(name, kwargs, given):
                shadow.note_call(self, result.id, name, args, kwargs, given, at)
        except Exception:  # whatever it is: Celery has the task
            log.exception("the shadow could not note a call of %s", name)
        return result

    send_task.shadows = True  # type: ignore[attr-defined]  # a mark of ours
    setattr(Celery, "send_task", send_task)  # noqa: B010 - mypy refuses the assignment
    signals.task_prerun.connect(_began, weak=False)
    signals.task_postrun.connect(_ended, weak=False)
    signals.task_revoked.connect(_revoked, weak=False)


def _is_watched(task: Any, request: Any) -> bool:
    return handlers.is_shadowed(task.name) and not getattr(request, "is_eager", False)


def _began(task_id: str, task: Any, **_: Any) -> None:
    if _is_watched(task, task.request):
        shadow.note_begin(task, task_id)


def _ended(task_id: str, task: Any, state: str, retval: Any, **_: Any) -> None:
    if _is_watched(task, task.request):
        shadow.note_end(task, task_id, state, retval)


def _revoked(sender: Any, request: Any, **_: Any) -> None:
    if _is_watched(sender, request):
        shadow.note_revoked(sender.name, request)
