"""Canvases that began as Celery's before their tasks became durable: each goes on as Celery's to its end.

A message says what it leads to: the steps of its chain and the callback of its chord by the ids that they were given
when the canvas was called, its links by no id, but Celery publishes them in its name. So what a message leads to is told
from what the task's own code calls, which is durable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from celery._state import get_current_worker_task
from celery.canvas import Signature, maybe_signature

LINKS: Final = ("link", "link_error")
MAPS: Final = ("celery.map", "celery.starmap")
CANVASES: Final = ("chain", "group", "chord")
GOES_ON: Final = "slackwater_goes_on"
"""The header of a message for a durable task that is a step of such a canvas: a worker leaves it to Celery."""
UNLOCK: Final = "celery.chord_unlock"
"""Celery's task that waits for the header of a chord where the backend does not."""
_publishes: ContextVar[bool] = ContextVar("slackwater_in_flight", default=False)


def parts(found: Any) -> Iterator[Any]:
    """All signatures in a signature, a canvas, or a list of such: the canvases too, and what they are linked to."""
    if not found:
        return
    if isinstance(found, (list, tuple)):
        for one in found:
            yield from parts(one)
        return
    signature: Any = maybe_signature(found)
    yield signature
    inner = signature.get("kwargs") or {}
    if signature.get("subtask_type") in CANVASES:
        header = inner.get("header")
        yield from parts(list(inner.get("tasks") or ()))
        yield from parts(header if not isinstance(header, (list, tuple)) else list(header))
        yield from parts(inner.get("body"))
    elif signature["task"] in MAPS:
        yield from parts(inner.get("task"))
    for option in LINKS:
        yield from parts((signature.get("options") or {}).get(option))


def is_step(what: str | Signature[Any] | None, options: Mapping[str, Any], *, may_replace: bool) -> bool:
    """Whether the message that runs in this thread leads to what is published now: an id, or a canvas.

    ``may_replace``: whether what the running task is replaced by is one too, and not its own code's call.
    """
    if _publishes.get():
        return True
    task = get_current_worker_task()
    if task is None:
        return False
    request, parent = task.request, options.get("parent_id")
    ids = set(_ids(what)) if isinstance(what, Signature) else {what} - {None}
    if parent is None and not ids:
        return False
    if request.id in ids:  # a retry, or a replacement
        replaces = (what.options if isinstance(what, Signature) else options).get("replaced_task_nesting")
        if may_replace or not replaces:
            return True
    led_to = {*_ids(request.chain), *_ids(request.chord), *_ids(request.callbacks), *_ids(request.errbacks)}
    if task.name == UNLOCK:
        led_to |= set(_ids(list(request.args or ())[1:2]))
    return parent == request.id or parent in led_to or not led_to.isdisjoint(ids)


@contextmanager
def publishing_steps() -> Iterator[None]:
    """Within it whatever is published is a step: a canvas publishes its parts."""
    token = _publishes.set(True)
    try:
        yield
    finally:
        _publishes.reset(token)


def _ids(found: Any) -> Iterator[str]:
    for part in parts(found):
        task_id = (part.get("options") or {}).get("task_id")
        if task_id:
            yield task_id
