"""Turning rows of the outbox into deliveries, one for each subscription that wants the event.

A row of the outbox goes in the transaction that writes its deliveries, so each is spread once, whatever crashes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from scheduler_ext.core.errors import ConfigurationError
from scheduler_ext.core.states import Category, Event, Outcome, TaskState, client_status
from scheduler_ext.task import redaction
from slackwater_monitoring.models import Subscription
from slackwater_monitoring.notify.subscriptions import EVENTS, MAX_TRIES, covers
from slackwater_tasks.field_kinds import utc_text
from slackwater_tasks.models import new_id
from slackwater_tasks.runtime.sealed import open_all
from slackwater_tasks.runtime.work_store import SECRETS
from slackwater_tenants.services import is_granted

TAKE = """
DELETE FROM slackwater_tasks_outbox WHERE id = ANY(ARRAY(SELECT id FROM slackwater_tasks_outbox ORDER BY id LIMIT %s
    FOR UPDATE SKIP LOCKED))
RETURNING id, tenant_id, task_id::text, events, state, outcome, fence, attempt, at, retry_at, reason
"""
SUBSCRIPTIONS = """
SELECT id::text, tenant_id, channel, events, tags, handlers, include_result FROM slackwater_monitoring_subscription
WHERE tenant_id = ANY(%s) AND enabled
"""
TASKS = """
SELECT t.id::text, t.name, t.handler, t.script_sha256, t.script_path, t.workflow_id::text, t.category, t.tags,
       t.submitted_at, t.total_attempts, coalesce(l.latest_start, t.latest_start), coalesce(w.url, ''),
       t.metadata
FROM slackwater_tasks_task t LEFT JOIN slackwater_tasks_livetask l ON l.task_id = t.id
    LEFT JOIN slackwater_tasks_taskwebhook w ON w.task_id = t.id
WHERE t.id = ANY(%s::uuid[])
"""
# How long the tenant's work ahead takes on the cell's slots: its unfinished tasks by what a task of it takes.
WORK_AHEAD = """
SELECT c.tenant_id, c.unfinished * coalesce(r.mean_us, 0) / 1e6 / greatest(1, coalesce(n.slots, 1)), clock_timestamp()
FROM slackwater_tenants_currentcounter c JOIN slackwater_tenants_tenant t ON t.id = c.tenant_id
LEFT JOIN LATERAL (SELECT sum(x.mean_us * x.samples) / nullif(sum(x.samples), 0) AS mean_us
                   FROM slackwater_tasks_runtime x WHERE x.tenant_id = c.tenant_id) r ON true
LEFT JOIN LATERAL (SELECT sum(coalesce((y.slots->>'process')::int, 0)) AS slots FROM slackwater_resources_node y
                   WHERE y.cell = t.cell AND y.state = 'active') n ON true
WHERE c.tenant_id = ANY(%s)
"""
# E-mail is collected by the minute, so that a thousand failures are one message.
DELIVER = """
INSERT INTO slackwater_monitoring_delivery (id, tenant_id, subscription_id, event, task_id, url, payload, state, attempts,
    tries_left, next_attempt_at, log)
SELECT id, tenant, subscription, event, task, url, payload, 'pending', 0, %(tries)s, CASE WHEN mail
    THEN date_trunc('minute', clock_timestamp()) + interval '1 minute' ELSE clock_timestamp() END, '[]'
FROM unnest(%(ids)s::uuid[], %(tenants)s::bigint[], %(subscriptions)s::uuid[], %(events)s::text[], %(tasks)s::uuid[],
    %(urls)s::text[], %(payloads)s::text[], %(mails)s::bool[])
    AS u(id, tenant, subscription, event, task, url, payload, mail)
"""
RESULTS = """
SELECT id::text, tenant_id, CASE WHEN octet_length(coalesce(result, 'null')::text) <= %s
    THEN coalesce(result, 'null')::text END
FROM slackwater_tasks_task WHERE id = ANY(%s::uuid[])
"""
MAX_RESULT_BYTES: Final = 65_536
"""Of a result that goes with its event."""
MIN_RETRY_S: Final = 10.0
MAX_RETRY_S: Final = 86_400.0
RETRY_EVENTS: Final = Event.LATE | Event.EXPIRED
"""Events that tell when to try again."""
STREAM_EVENTS: Final = Event.LATE | Event.EXPIRED | Event.IMPOSSIBLE
"""Events that live streams show as notices: a change of state does not show them."""
NAMES: Final = {event: name for name, event in EVENTS.items()}


@dataclass(frozen=True, slots=True)
class Happened:
    """A row of the outbox."""

    id: int
    tenant_id: int
    task_id: str
    events: int
    state: int
    outcome: int | None
    fence: int
    attempt: int
    at: datetime
    retry_at: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The choices of a subscription."""

    id: str
    tenant_id: int
    channel: str
    events: list[str]
    tags: list[str]
    handlers: list[str]
    include_result: bool

    def wants(self, event: str, task: Mapping[str, Any]) -> bool:
        """Whether it asked for this event of this task."""
        return (
            covers(self.events, event)
            and (self.channel != Subscription.Channel.TASK or bool(task["webhook"]))
            and (not self.tags or bool(set(self.tags) & set(task["tags"])))
            and (not self.handlers or is_granted(tuple(self.handlers), task["handler"] or ""))
        )


Notice = tuple[str, int, int, str | None, None, dict[str, Any]]
"""A notice on a live stream: task id, state, tenant id, workflow id, none, payload."""


def spread(conn: Any, most: int, notices: list[Notice] | None = None) -> int:
    """Turn up to ``most`` rows of the outbox into deliveries, in the transaction of ``conn``; returns how many.

    ``notices``: what live streams are to be told, once that is committed, is added there.
    """
    rows = [Happened(*row) for row in conn.execute(TAKE, (most,)).fetchall()]
    if not rows:
        return 0
    rows.sort(key=lambda row: row.id)
    tenants = list({row.tenant_id for row in rows})
    asked: dict[int, list[Asked]] = {}
    for entry in conn.execute(SUBSCRIPTIONS, (tenants,)).fetchall():
        asked.setdefault(entry[1], []).append(Asked(*entry))
    tasks = {row[0]: _task(row) for row in conn.execute(TASKS, ([r.task_id for r in rows],)).fetchall()}
    late = [row.tenant_id for row in rows if row.events & RETRY_EVENTS]
    again = {t: _moment(s, now) for t, s, now in conn.execute(WORK_AHEAD, (late,)).fetchall()} if late else {}
    results = _results(conn, rows, asked)
    made = [
        (asking, name, row.task_id, task["webhook"],
         _payload(name, row, task, again.get(row.tenant_id), results.get(row.task_id) if asking.include_result else None))
        for row in rows
        if (task := tasks.get(row.task_id)) is not None
        for event in Event(row.events)
        for asking in asked.get(row.tenant_id, ())
        if asking.wants(name := NAMES[event], task)
    ]  # fmt: skip
    if made:
        deliver(conn, made)
    if notices is not None:
        notices += [
            (row.task_id, row.state, row.tenant_id, task["workflow_id"], None,
             _payload(NAMES[event], row, task, again.get(row.tenant_id)))
            for row in rows if (task := tasks.get(row.task_id)) is not None
            for event in Event(row.events) & STREAM_EVENTS
        ]  # fmt: skip
    return len(rows)


def deliver(conn: Any, made: Sequence[tuple[Asked, str, str | None, str, dict[str, Any]]]) -> None:
    """Write deliveries: to whom, which event, of which task, its own address, the payload."""
    conn.execute(
        DELIVER,
        {
            "tries": MAX_TRIES,
            "ids": [new_id() for _ in made],
            "tenants": [asked.tenant_id for asked, *_ in made],
            "subscriptions": [asked.id for asked, *_ in made],
            "events": [event for _, event, *_ in made],
            "tasks": [task_id for _, _, task_id, *_ in made],
            "urls": [url if asked.channel == Subscription.Channel.TASK else "" for asked, _, _, url, _ in made],
            "payloads": [json.dumps(payload, separators=(",", ":")) for *_, payload in made],
            "mails": [asked.channel == Subscription.Channel.EMAIL for asked, *_ in made],
        },
    )


def _task(row: Sequence[Any]) -> dict[str, Any]:
    return {
        "task_id": row[0],
        "name": row[1] or None,
        "handler": row[2] or None,
        "script": row[3] or row[4] or None,
        "workflow_id": row[5],
        "category": Category(row[6]).name.lower(),
        "tags": row[7],
        "submitted_at": utc_text(row[8]),
        "total_attempts": row[9],
        "latest_start": utc_text(row[10]) if row[10] else None,
        "webhook": row[11],
        "metadata": row[12] or {},
    }


def _moment(ahead_s: float, now: datetime) -> datetime:
    return now + timedelta(seconds=min(MAX_RETRY_S, max(MIN_RETRY_S, float(ahead_s))))


def _results(conn: Any, rows: Sequence[Happened], asked: Mapping[int, Sequence[Asked]]) -> dict[str, dict[str, Any]]:
    """What tasks returned, without their tenants' secrets, by task: for the subscriptions that ask for it."""
    wanted = {tenant for tenant, all_asked in asked.items() if any(one.include_result for one in all_asked)}
    ids = [row.task_id for row in rows if row.events & Event.SUCCEEDED and row.tenant_id in wanted]
    found: dict[str, dict[str, Any]] = {}
    secrets: dict[int, list[str] | None] = {}
    for task_id, tenant_id, text in conn.execute(RESULTS, (MAX_RESULT_BYTES, ids)).fetchall() if ids else ():
        if tenant_id not in secrets:
            secrets[tenant_id] = _secrets(conn, tenant_id)
        hidden = secrets[tenant_id]
        why = (
            "it is too large" if text is None else "the secrets to leave out cannot be read" if hidden is None else None
        )
        value = None if text is None or hidden is None else _blotted(json.loads(text), hidden)
        found[task_id] = {"result": value, "result_withheld": why}
    return found


def _secrets(conn: Any, tenant_id: int) -> list[str] | None:
    try:
        return redaction.longest_first(open_all(tenant_id, conn.execute(SECRETS, (tenant_id,)).fetchall()).values())
    except ConfigurationError:
        return None


def _blotted(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return redaction.blotted(value, secrets)
    if isinstance(value, list):
        return [_blotted(each, secrets) for each in value]
    if isinstance(value, dict):
        return {redaction.blotted(name, secrets): _blotted(each, secrets) for name, each in value.items()}
    return value


def _payload(name: str, row: Happened, task: Mapping[str, Any], again: datetime | None,
             result: Mapping[str, Any] | None = None) -> dict[str, Any]:  # fmt: skip
    """The payload: the event, its time, and the task as it was then; what it returned where that was asked for."""
    state = TaskState(row.state)
    data = {
        **{field: value for field, value in task.items() if field != "webhook"},
        "state": state.name.lower(),
        "status": client_status(state).label,
        "attempt": row.attempt,
        "fence": row.fence,
        "outcome": Outcome(row.outcome).name.lower() if row.outcome is not None else None,
        "reason": row.reason or None,
        "retry_at": utc_text(row.retry_at) if row.retry_at else None,
    }
    if EVENTS[name] & RETRY_EVENTS and again is not None:
        data["try_again_at"] = utc_text(again)
    if EVENTS[name] is Event.SUCCEEDED and result is not None:
        data |= result
    return {"type": name, "timestamp": utc_text(row.at), "data": data}
