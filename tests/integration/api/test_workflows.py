"""Workflows as things of their own: their tasks, status, end, waiting, events, deletion."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_ext.core.states import TaskState
from slackwater_api.live.change_feed import Batch, read_row
from slackwater_api.live.event_streams import changes_for
from slackwater_api.live.long_poll import ended_in
from slackwater_monitoring import upkeep
from slackwater_monitoring.models import Delivery
from slackwater_tasks.ledger import hints
from slackwater_tasks.ledger.connection import Database
from slackwater_tasks.models import LiveTask, Task, Workflow
from tests.support.api import HANDLER, ApiClient, client_of
from tests.support.streams import events_in

pytestmark = pytest.mark.django_db(transaction=True)  # upkeep has a connection of its own


def submit(acme: ApiClient, *names: str, **fields: Any) -> tuple[str, list[str]]:
    """A workflow of such tasks: its id, and theirs."""
    tasks = [{"name": name, "handler": HANDLER} for name in names]
    answer = acme.post("/workflows", {"tasks": tasks, **fields})
    assert answer.status == 201, answer.body
    return answer.body["id"], answer.body["task_ids"]


def end(ids: list[str], state: TaskState = TaskState.SUCCEEDED) -> None:
    """Let tasks be final, as a worker leaves them."""
    found = [UUID(task_id) for task_id in ids]
    LiveTask._plain.filter(pk__in=found).delete()
    Task._plain.filter(pk__in=found).update(state=state, finished_at=timezone.now())


@pytest.fixture
def look() -> Any:
    """One look of upkeep; returns how many workflows it ended."""
    db = Database("test upkeep")
    yield lambda: upkeep.end_workflows(db)
    db.close()


def test_the_list_tells_status_end_and_what_was_noted(acme: ApiClient, look: Any) -> None:
    waiting, _ = submit(acme, "a", "b", tags=["nightly"], metadata={"order": "A-17"})
    begun, ids = submit(acme, "a", "b")
    end(ids[:1])
    done, ids = submit(acme, "a")
    end(ids)
    failed, ids = submit(acme, "a", "b")
    end(ids[:1])
    end(ids[1:], TaskState.FAILED)
    for looked in (0, 2, 0):  # before upkeep, when it has looked, and when there is no more to do
        shown = {row["id"]: row for row in acme.get("/workflows").body["items"]}
        assert [shown[one]["finished_at"] is not None for one in (waiting, begun, done, failed)] == [
            False, False, True, True,
        ]  # fmt: skip
        words = [shown[one]["status"].replace(" ", "_") for one in (waiting, begun, done, failed)]
        assert words == ["waiting", "in_progress", "done", "failed"]
        if looked:
            assert look() == looked
    assert (shown[waiting]["tags"], shown[waiting]["metadata"]) == (["nightly"], {"order": "A-17"})
    for status, one in zip(words, (waiting, begun, done, failed), strict=True):
        assert [row["id"] for row in acme.get(f"/workflows?status={status}").body["items"]] == [one]
    assert len(acme.get("/workflows?status=waiting,in_progress,failed").body["items"]) == 3
    assert [row["id"] for row in acme.get("/workflows?tag=nightly").body["items"]] == [waiting]


def test_its_tasks_are_listed_and_nobody_elses(acme: ApiClient) -> None:
    one, ids = submit(acme, "a", "b")
    submit(acme, "c")
    found = acme.get(f"/workflows/{one}/tasks").body["items"]
    assert {row["id"] for row in found} == set(ids)
    assert [row["name"] for row in acme.get(f"/workflows/{one}/tasks?name=b").body["items"]] == ["b"]
    assert client_of("other").get(f"/workflows/{one}/tasks").status == 404


def test_what_runs_again_or_is_added_opens_it(acme: ApiClient, look: Any) -> None:
    one, ids = submit(acme, "a")
    end(ids, TaskState.FAILED)
    assert look() == 1
    assert acme.post(f"/tasks/{ids[0]}/retry").status == 200
    assert Workflow._plain.get().status is None
    end(ids)
    assert look() == 1
    assert acme.get(f"/workflows/{one}").body["status"] == "done"
    assert acme.post(f"/workflows/{one}/tasks", {"tasks": [{"name": "b", "handler": HANDLER}]}).status == 201
    shown = acme.get(f"/workflows/{one}").body
    assert (shown["status"].replace(" ", "_"), shown["finished_at"]) == ("in_progress", None)


def test_its_end_is_told_once_to_who_asked_for_it(acme: ApiClient, look: Any) -> None:
    both = {"events": ["workflow.succeeded", "workflow.failed"]}
    hook = acme.post("/webhooks", {"url": "https://example.org", **both}).body["id"]
    acme.post("/webhooks", {"url": "https://example.org/tagged", "tags": ["nightly"], **both})
    acme.post("/webhooks", {"url": "https://example.org/tasks", "events": ["task.failed"]})
    one, ids = submit(acme, "a", name="photo", metadata={"order": "A-17"})
    end(ids)
    two, ids = submit(acme, "a", tags=["nightly"])
    end(ids, TaskState.CANCELLED)
    assert (look(), look()) == (2, 0)
    sent = [json.loads(row.payload) for row in Delivery._plain.filter(subscription=hook).order_by("id")]
    told = {row["data"]["workflow_id"]: row for row in sent}
    assert (told[one]["type"], told[two]["type"]) == ("workflow.succeeded", "workflow.failed")
    assert (told[one]["data"]["name"], told[one]["data"]["metadata"]) == ("photo", {"order": "A-17"})
    assert Delivery._plain.count() == 3


def test_a_wait_and_a_stream_end_with_it(acme: ApiClient) -> None:
    one, ids = submit(acme, "a")
    assert acme.get(f"/workflows/{one}?wait=0.01").body["finished_at"] is None
    end(ids)
    assert acme.get(f"/workflows/{one}?wait=30").body["status"] == "done"
    stream = acme.get(f"/workflows/{one}/events")
    assert "event: workflow" in stream.body
    assert acme.get(f"/workflows/{one}?wait=x").body["field"] == "wait"


def test_the_notice_of_its_end_is_the_last_event_of_its_stream(acme: ApiClient, look: Any, monkeypatch: Any) -> None:
    told: list[Any] = []
    monkeypatch.setattr(hints, "tell_changes", told.extend)
    one, ids = submit(acme, "a")
    end(ids)
    assert look() == 1
    batch = Batch((1, 0), [read_row(json.loads(json.dumps(row))) for row in told], 1_000)
    (text, last), *more = changes_for((acme.tenant.pk, one), [batch])
    assert (last, more) == (True, [])
    shown = events_in(text)[0]
    assert (shown["kind"], shown["status"], shown["workflow_id"]) == ("workflow", "done", one)
    assert ended_in(batch) == [one]
    assert [last for _, last in changes_for((acme.tenant.pk, ""), [batch])] == [False]


def test_only_one_that_has_ended_can_be_deleted(acme: ApiClient) -> None:
    one, ids = submit(acme, "a", "b")
    refused = acme.call("DELETE", f"/workflows/{one}")
    assert (refused.status, refused.code) == (409, "conflict")
    end(ids)
    later = acme.post("/tasks", {"handler": HANDLER, "depends_on": [ids[0]]}).body["id"]
    if acme.get(f"/tasks/{later}").body["depends_on"]:
        assert acme.call("DELETE", f"/workflows/{one}").status == 409
        end([later])
    assert acme.call("DELETE", f"/workflows/{one}").status == 204
    assert (acme.get(f"/workflows/{one}").status, acme.get(f"/tasks/{ids[0]}").status) == (404, 404)
    assert acme.call("DELETE", f"/workflows/{one}").status == 404


def test_metadata_has_its_limits(acme: ApiClient) -> None:
    tasks = [{"name": "a", "handler": HANDLER}]
    for wrong in (["x"], "x", {"a": "x" * 20_000}):
        refused = acme.post("/workflows", {"tasks": tasks, "metadata": wrong})
        assert (refused.status, refused.body["field"]) == (422, "metadata")
