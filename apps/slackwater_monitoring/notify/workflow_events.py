"""What is told of a workflow that has ended: deliveries to who asked for it, and a last event on live streams."""

from __future__ import annotations

from typing import Any

from scheduler_ext.core.states import ClientStatus, TaskState
from slackwater_monitoring.models import Subscription
from slackwater_monitoring.notify.deliveries import SUBSCRIPTIONS, Asked, Notice, deliver
from slackwater_monitoring.notify.subscriptions import covers
from slackwater_tasks.field_kinds import utc_text
from slackwater_tasks.upkeep.ended_workflows import Ended, end


def end_workflows(conn: Any, most: int, notices: list[Notice]) -> int:
    """Mark workflows as ended and write the deliveries of it, in the transaction of ``conn``; returns how many.

    ``notices``: what live streams are to be told, once that is committed, is added there.
    """
    ended = end(conn, most)
    if not ended:
        return 0
    asked: dict[int, list[Asked]] = {}
    for entry in conn.execute(SUBSCRIPTIONS, (list({one.tenant_id for one in ended}),)).fetchall():
        asked.setdefault(entry[1], []).append(Asked(*entry))
    payloads = {one.id: _payload(one) for one in ended}
    made = [
        (asking, payloads[one.id]["type"], None, "", payloads[one.id])
        for one in ended
        for asking in asked.get(one.tenant_id, ())
        if _wants(asking, payloads[one.id]["type"], one)
    ]
    if made:
        deliver(conn, made)
    notices += [
        (one.id, int(_state(one)), one.tenant_id, one.id, None, {"id": one.id, **payloads[one.id]["data"]})
        for one in ended
    ]
    return len(ended)


def _wants(asking: Asked, event: str, one: Ended) -> bool:
    """Whether a subscription asked for it. One of some handlers, or of tasks' own addresses, speaks of tasks alone."""
    return (
        covers(asking.events, event)
        and asking.channel != Subscription.Channel.TASK
        and not asking.handlers
        and (not asking.tags or bool(set(asking.tags) & set(one.tags)))
    )


def _state(one: Ended) -> TaskState:
    return TaskState.SUCCEEDED if one.status == ClientStatus.DONE else TaskState.FAILED


def _payload(one: Ended) -> dict[str, Any]:
    data = {
        "workflow_id": one.id,
        "name": one.name or None,
        "status": ClientStatus(one.status).label,
        "task_count": one.task_count,
        "tags": one.tags,
        "metadata": one.metadata or {},
        "submitted_at": utc_text(one.submitted_at),
        "finished_at": utc_text(one.finished_at),
    }
    name = f"workflow.{_state(one).name.lower()}"
    return {"type": name, "timestamp": utc_text(one.finished_at), "data": data}
