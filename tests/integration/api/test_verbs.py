"""Small verbs: delete a script, one dead letter, why something was cancelled, ids and patterns, all events of a kind."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_ext.core.states import Event, TaskState
from slackwater_monitoring.notify.subscriptions import covers
from slackwater_tasks.models import DeadLetter, Listener, LiveTask, Task
from tests.support.api import HANDLER, ApiClient, client_of, ids

pytestmark = pytest.mark.django_db


def fail(task_id: str) -> None:
    """Let a task have failed."""
    LiveTask._plain.filter(pk=UUID(task_id)).delete()
    Task._plain.filter(pk=UUID(task_id)).update(state=TaskState.FAILED, finished_at=timezone.now())


def test_a_script_is_deleted_once_nothing_needs_it(acme: ApiClient) -> None:
    sha256 = acme.post("/scripts", {"name": "s", "content": "#!/bin/sh\n"}).body["sha256"]
    task = acme.post("/tasks", {"script": sha256}).body["id"]
    assert client_of("other").call("DELETE", f"/scripts/{sha256}").status == 404
    assert acme.call("DELETE", f"/scripts/{sha256}").status == 409
    fail(task)
    assert acme.call("DELETE", f"/scripts/{sha256}").status == 204
    assert acme.get(f"/scripts/{sha256}").status == 404
    assert acme.get(f"/tasks/{task}").body["script"] == sha256


def test_one_dead_letter_is_read(acme: ApiClient) -> None:
    task = acme.task(name="lost")
    fail(task)
    assert acme.get(f"/dead-letters/{task}").status == 404
    DeadLetter._plain.create(task_id=task, tenant=acme.tenant, reason="no route")
    found = acme.get(f"/dead-letters/{task}").body
    assert (found["task_id"], found["name"], found["reason"]) == (task, "lost", "no route")
    assert found == acme.get("/dead-letters").body["items"][0]


def test_history_tells_why_something_was_cancelled(acme: ApiClient) -> None:
    task = acme.task()
    assert acme.post(f"/tasks/{task}/cancel", {"reason": "the order was withdrawn"}).status == 200
    shown = acme.get(f"/tasks/{task}").body
    assert shown["reason"] == "cancelled on request: the order was withdrawn"
    assert acme.get(f"/tasks/{task}/history").body["items"][-1]["reason"] == shown["reason"]
    workflow = acme.post("/workflows", {"tasks": [{"name": "a", "handler": HANDLER}]}).body
    assert acme.post(f"/workflows/{workflow['id']}/cancel", {"reason": "too late"}).status == 200
    assert acme.get(f"/tasks/{workflow['task_ids'][0]}").body["reason"] == "its workflow was cancelled: too late"
    assert acme.post(f"/tasks/{acme.task()}/cancel", {"reason": "x" * 151}).body["field"] == "reason"


def test_lists_and_bulk_operations_take_ids_and_patterns(acme: ApiClient) -> None:
    made = {name: acme.task(name=name) for name in ("mail.send", "mail.read", "mailbox", "a+b")}
    some = [made["mailbox"], made["a+b"]]
    assert set(ids(acme, f"/tasks?id={','.join(some)}", "id")) == set(some)
    assert set(ids(acme, "/tasks?name_pattern=mail.*")) == {"mail.send", "mail.read"}
    assert set(ids(acme, "/tasks?name_pattern=mail*")) == {"mail.send", "mail.read", "mailbox"}
    assert ids(acme, "/tasks?name_pattern=mail.rea%3F") == ["mail.read"]
    assert ids(acme, "/tasks?name_pattern=a%2B*") == ["a+b"]
    assert len(ids(acme, "/tasks?handler_pattern=demo.*")) == 4
    assert acme.get("/tasks?id=x").body["field"] == "id"
    done = acme.post("/tasks/cancel", {"filter": {"id": some}})
    assert (done.status, done.body["matched"]) == (200, 2)
    acme.post("/workflows", {"name": "nightly-1", "tasks": [{"name": "a", "handler": HANDLER}]})
    assert ids(acme, "/workflows?name_pattern=nightly-*") == ["nightly-1"]
    assert ids(acme, "/workflows?name_pattern=daily-*") == []


def test_a_subscription_may_ask_for_all_events_of_a_kind(acme: ApiClient) -> None:
    made = acme.post("/webhooks", {"url": "https://example.org", "events": ["workflow.*"]})
    assert (made.status, made.body["events"]) == (201, ["workflow.*"])
    assert not Listener.objects.filter(tenant=acme.tenant).exists()
    assert acme.patch(f"/webhooks/{made.body['id']}", {"events": ["task.*"]}).status == 200
    assert Listener.objects.get(tenant=acme.tenant).events == sum(Event)
    assert acme.patch(f"/webhooks/{made.body['id']}", {"events": ["mail.*"]}).body["field"] == "events[0]"
    assert covers(["task.*"], "task.failed")
    assert not covers(["task.*"], "workflow.failed")
    assert covers(["*"], "workflow.failed")
