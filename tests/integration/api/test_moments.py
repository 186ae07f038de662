"""An event has one moment: the same text in the history, on live streams, in webhooks and in the task's fields."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest
import redis

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.states import Outcome
from scheduler_ext.core.work import Finished, Started
from slackwater_tasks.ledger.hints import tell_changes
from slackwater_tasks.runtime.work_store import PgWorkStore
from tests.support.api import client_of, forget_lookups, furnish
from tests.support.hand_worker import HandWorker
from tests.support.streams import events_in
from tests.support.webhooks import hook, spread, told

pytestmark = pytest.mark.django_db(transaction=True)
EVENTS = {"running": "task.started", "succeeded": "task.succeeded", "failed": "task.failed", "cancelled": "task.cancelled",
          "scheduled": "task.retrying"}  # fmt: skip


def ended(task: Started, place: int, outcome: Outcome) -> Finished:
    """As a worker whose batch it was in tells it: its code began after that of those before it."""
    now = time.time()
    return Finished(task.task_id, task.fence, outcome, now + place / 1000, now + (place + 1) / 1000, worker="child-1")


def test_an_event_has_one_moment(redis_client: redis.Redis, settings: Any) -> None:
    settings.SLACKWATER = {**settings.SLACKWATER, "WEBHOOK_PRIVATE": True, "WEBHOOK_PORTS": (0,)}
    furnish()
    acme, worker = client_of("acme"), HandWorker()
    made = hook(acme, "http://127.0.0.1:9/x")
    forget_lookups()
    before = events_in(acme.get("/events").body)[0]["id"]
    names = ("good", "bad", "again", "asked", "dropped")
    ids = {name: acme.task(name=name, total_attempts=2 if name == "again" else 1) for name in names}
    store = PgWorkStore(SchedulerConf(), "test")
    try:
        claims = worker.claim(*(UUID(ids[name]) for name in names[:4]))
        started = store.start(worker.node.pk, claims)
        tell_changes([task.begun() for task in started])
        assert acme.post(f"/tasks/{ids['asked']}/cancel").status == 202
        ends = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.FAILED, Outcome.FAILED)
        tell_changes(store.record(worker.node.pk, [ended(*each) for each in zip(started, range(4), ends, strict=True)]))
    finally:
        store.close()
    assert acme.post(f"/tasks/{ids['dropped']}/cancel").status == 200
    spread()
    hooks = {(each["task_id"], each["event"]): each["payload"] for each in told(acme, made["id"])}
    streamed: dict[tuple[str, str], str] = {}
    for event in events_in(acme.get("/events", Last_Event_ID=before).body):
        streamed[event["task_id"], event["state"]] = event["at"]
    assert len(streamed) == 4 + 5
    for name, task_id in ids.items():
        task, history = acme.get(f"/tasks/{task_id}").body, acme.get(f"/tasks/{task_id}/history").body["items"]
        at = {entry["to"]: entry["at"] for entry in history if entry["from"] != entry["to"]}
        assert history[0]["at"] == task["submitted_at"]
        assert hooks[task_id, EVENTS[task["state"]]]["data"]["submitted_at"] == task["submitted_at"]
        assert all(text.endswith("Z") for text in at.values())
        for state in {"running", task["state"]} - ({"running"} if name == "dropped" else set()):
            assert at[state] == streamed[task_id, state] == hooks[task_id, EVENTS[state]]["timestamp"], (name, state)
        assert task["finished_at"] == (None if name == "again" else at[task["state"]])
        first = events_in(acme.get(f"/tasks/{task_id}/events").body)[0]
        assert (first["state"], first["at"]) == (task["state"], at[task["state"]])
        if task["started_at"] is not None:
            assert task["started_at"] == at["running"]
        for attempt in acme.get(f"/tasks/{task_id}/attempts").body["items"]:
            assert (attempt["started_at"], attempt["finished_at"]) == (at["running"], at[task["state"]])
    dead = acme.get("/dead-letters").body["items"]
    assert [each["at"] for each in dead if each["task_id"] == ids["bad"]] == [
        hooks[ids["bad"], "task.failed"]["timestamp"]
    ]
    assert acme.post(f"/tasks/{ids['bad']}/retry").status == 200
    rerun = events_in(acme.get("/events", Last_Event_ID=before).body)[-1]
    assert (rerun["state"], rerun["at"]) == ("ready", acme.get(f"/tasks/{ids['bad']}/history").body["items"][-1]["at"])
