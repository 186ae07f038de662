"""The Celery router: it sends what is for one node to that node's own queue and leaves every other message to the next router."""

from __future__ import annotations

from typing import Any

from scheduler_ext.dispatch.keys import KILLED_TASK, SLICE_TASK, token_queue


def route(
    name: str, args: Any, kwargs: Any, options: dict[str, Any], task: Any = None, **_: Any
) -> dict[str, str] | None:
    """Route a token, or word of a killed run, to the queue of the node it is for; ``None`` leaves the choice to the next router.

    Given to Celery as ``task_routes = ("scheduler_ext.dispatch.router.route",)``. A plain callable, because Celery passes
    the message's options to no other form.
    """
    if name not in (SLICE_TASK, KILLED_TASK):
        return None
    return {"queue": token_queue(int(args[0]))}
