"""Small verbs: delete a script, one dead letter, why something was cancelled, ids and patterns, all events of a kind."""

from __future__ import annotations

from datetime import timedelta
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


def test_relative_moments_are_resolved_and_exclude_the_absolute_ones(acme: ApiClient) -> None:
    for wrong, field in (
        ({"start_in_s": 1, "start_at": "2040-01-01T00:00:00Z"}, "start_in_s"),
        ({"expires_in_s": 1, "expires_at": "2040-01-01T00:00:00Z"}, "expires_in_s"),
        ({"start_in_s": 5, "expires_in_s": 5}, "expires_in_s"),
        ({"start_at": "2040-01-02T00:00:00Z", "expires_at": "2040-01-01T00:00:00Z"}, "expires_at"),
    ):
        assert acme.post("/tasks", {"handler": HANDLER, **wrong}).body["field"] == field
    many = acme.post("/tasks", [{"handler": HANDLER, "start_in_s": 60}] * 9).body["task_ids"]  # enough for COPY
    for task in (acme.task(start_in_s=60), many[8]):
        found = Task._plain.get(pk=task)
        assert found.start_at == found.submitted_at + timedelta(seconds=60)
        assert acme.get(f"/tasks/{task}").body["state"] == "scheduled"
    changed = acme.patch(f"/tasks/{many[0]}", {"start_in_s": 0, "expires_in_s": 90, "metadata": {"a": "b"}})
    assert (changed.body["state"], changed.body["metadata"]) == ("ready", {"a": "b"})
    assert LiveTask._plain.get(pk=many[0]).expires_at == Task._plain.get(pk=many[0]).expires_at is not None
    detail = acme.get(f"/tasks/{many[0]}/history").body["items"][-1]["detail"]
    assert set(detail) == {"start_at", "expires_at", "metadata"}
    assert acme.patch(f"/tasks/{many[1]}", {"start_in_s": 1, "start_at": None}).status == 200


def test_metadata_comes_back_and_finds(acme: ApiClient) -> None:
    odd = {"order": "7", "ümlaut [x]": "a,b\\"}
    task, other = acme.task(metadata=odd, name="a"), acme.task(metadata={"order": "8"}, name="b")
    copied = acme.post("/tasks", [{"handler": HANDLER, "metadata": odd}] * 9).body["task_ids"]
    assert all(acme.get(f"/tasks/{each}").body["metadata"] == odd for each in (task, copied[8]))
    assert acme.get(f"/tasks/{acme.task()}").body["metadata"] == {}
    assert ids(acme, "/tasks?metadata[order]=8", "id") == [other]
    assert ids(acme, "/tasks?metadata%5Border%5D=7&name=a", "id") == [task]
    assert ids(acme, "/tasks?metadata[order]=7&metadata[by]=me") == []
    for wrong, field in (("metadata=7", "metadata"), ("metadata[]=7", "metadata"), ("tag[x]=7", "tag[x]")):
        assert acme.get(f"/tasks?{wrong}").body["field"] == field
    done = acme.post("/tasks/cancel", {"filter": {"metadata": {"order": "8"}}, "dry_run": True})
    assert done.body["task_ids"] == [other]
    acme.post("/workflows", {"metadata": {"run": "3"}, "tasks": [{"name": "a", "handler": HANDLER}]})
    assert len(ids(acme, "/workflows?metadata[run]=3", "id")) == 1
    assert ids(acme, "/workflows?metadata[run]=4", "id") == []
