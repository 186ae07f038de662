"""What lists of the API can be narrowed by."""

from __future__ import annotations

from datetime import timedelta
from typing import cast
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from scheduler_ext.core.states import Outcome
from slackwater_adminkit import looking
from slackwater_monitoring.models import Delivery
from slackwater_schedules.models import ScheduleFire
from slackwater_schedules.services import delete_schedule
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import DeadLetter, Task
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER, ApiClient, ids
from tests.support.hand_worker import HandWorker
from tests.support.schedules import make

pytestmark = pytest.mark.django_db


# -- what filters refuse ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stray", ["{},", ",{}", "{},,{}", ",", "{}, "])
@pytest.mark.parametrize(
    ("path", "field", "word"),
    [
        ("/tasks", "state", "succeeded"),
        ("/tasks", "status", "done"),
        ("/tasks", "id", str(UUID(int=0))),
        ("/workflows/{workflow}/tasks", "state", "ready"),
        ("/workflows", "status", "done"),
        ("/dead-letters", "outcome", "failed"),
        ("/schedules/{schedule}/firings", "outcome", "skipped"),
        ("/webhooks/{webhook}/deliveries", "event", "ping"),
    ],
)
def test_a_comma_too_many_is_refused(acme: ApiClient, path: str, field: str, word: str, stray: str) -> None:
    task = {"handler": HANDLER}
    made = {
        "workflow": acme.post("/workflows", {"tasks": [{"name": "t", **task}]}).body["id"],
        "schedule": acme.post("/schedules", {"name": "a", "kind": "daily", "task": task}).body["id"],
        "webhook": acme.post("/webhooks", {"channel": "email", "events": ["task.failed"]}).body["id"],
    }
    path = path.format(**made)
    assert acme.get(f"{path}?{field}={word},{word}").status == 200
    refused = acme.get(f"{path}?{field}={stray.replace('{}', word)}")
    assert (refused.status, refused.code, refused.body["field"]) == (422, "invalid_input", field)


def test_a_comma_too_many_in_a_filter_of_many_tasks_is_refused(acme: ApiClient) -> None:
    acme.task(tags=["x"])
    for state in ("ready,scheduled,", ["ready", ","], [",ready"]):
        refused = acme.post("/tasks/cancel", {"filter": {"state": state, "tag": "x"}})
        assert (refused.status, refused.body["field"]) == (422, "filter.state"), state
    assert acme.get("/tasks").body["items"][0]["state"] == "ready"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/tasks", "submitted_after"), ("/tasks", "submitted_before"), ("/workflows", "submitted_after"),
        ("/dead-letters", "at_before"), ("/schedules/{schedule}/firings", "fire_after"),
    ],
)  # fmt: skip
def test_a_moment_without_its_zone_is_refused(acme: ApiClient, path: str, name: str) -> None:
    made = acme.post("/schedules", {"name": "a", "kind": "daily", "task": {"handler": HANDLER}}).body["id"]
    path = path.format(schedule=made)
    for moment in ("2020-01-01", "2020-01-01T00:00:00", "2020-01-01%2000:00", "soon", "%20"):
        refused = acme.get(f"{path}?{name}={moment}")
        assert (refused.status, refused.code, refused.body["field"]) == (422, "invalid_input", name), moment
    assert "time zone" in acme.get(f"{path}?{name}=2020-01-01T00:00:00").body["detail"]
    for moment in ("2020-01-01T00:00:00Z", "2020-01-01T00:00%2B01:00", "0001-01-01T00:00:00%2B14:00"):
        assert acme.get(f"{path}?{name}={moment}").status == 200, moment


def test_a_moment_without_its_zone_is_refused_where_many_tasks_are_meant(acme: ApiClient) -> None:
    acme.task()
    for moment in ("2020-01-01", "2020-01-01T00:00:00", " "):
        refused = acme.post("/tasks/cancel", {"filter": {"submitted_after": moment}})
        assert (refused.status, refused.body["field"]) == (422, "filter.submitted_after"), moment
    given = {"filter": {"submitted_after": "2020-01-01T00:00:00Z"}, "dry_run": True}
    assert acme.post("/tasks/cancel", given).body["matched"] == 1


def test_a_filter_of_spaces_does_not_mean_all_tasks(acme: ApiClient) -> None:
    acme.task(tags=["x"])
    for name in ("workflow_id", "admitted_by", "tag", "name", "name_pattern", "handler", "error", "schedule", "tier"):
        for value in (" ", ["\u2003"]):
            refused = acme.post("/tasks/cancel", {"filter": {name: value}})
            assert (refused.status, refused.body.get("field")) == (422, f"filter.{name}"), name
    assert acme.get("/tasks").body["items"][0]["state"] == "ready"
    for name in ("workflow_id", "admitted_by"):
        assert acme.get(f"/tasks?{name}=%20").body["field"] == name


# -- what lists can be narrowed by ------------------------------------------------------------------------------------
def test_schedules_are_narrowed_by_kind_handler_and_pause(acme: ApiClient) -> None:
    one = {"name": "a", "kind": "daily", "task": {"handler": HANDLER}}
    acme.post("/schedules", one)
    acme.post("/schedules", {**one, "name": "b", "paused": True})
    acme.post("/schedules", {**one, "name": "c", "kind": "interval", "rule": {"every_s": 60}})
    assert ids(acme, "/schedules?kind=daily") == ["a", "b"]
    assert ids(acme, "/schedules?paused=true") == ["b"]
    assert ids(acme, "/schedules?paused=false&kind=daily") == ["a"]
    assert ids(acme, f"/schedules?handler={HANDLER}&name=c") == ["c"]
    assert ids(acme, "/schedules?handler=none") == []
    for query, field in (("kind=hourly", "kind"), ("paused=yes", "paused"), ("size=1", "size")):
        assert acme.get(f"/schedules?{query}").body["field"] == field


def test_tasks_are_narrowed_by_who_handed_them_in_and_by_their_schedule(acme: ApiClient) -> None:
    acme.post("/schedules", {"name": "nightly", "kind": "daily", "task": {"handler": HANDLER}})
    plain, fired, orphan = (acme.task(name=name) for name in ("plain", "fired", "orphan"))
    tasks = Task._plain.filter(tenant=acme.tenant)
    tasks.filter(pk=fired).update(submitted_by="schedule:nightly", admitted_by=7)
    tasks.filter(pk=orphan).update(submitted_by="schedule:gone")
    assert ids(acme, "/tasks?submitted_by=schedule:nightly") == ["fired"]
    assert ids(acme, "/tasks?admitted_by=7") == ["fired"]
    assert ids(acme, "/tasks?scheduling_type=daily") == ["fired"]
    assert ids(acme, "/tasks?scheduling_type=once") == ["plain"]
    assert ids(acme, "/tasks?scheduling_type=cron") == []
    shown = [acme.get(f"/tasks/{each}").body for each in (fired, plain, orphan)]
    assert shown[0]["admitted_by"] == 7
    assert [one["scheduling_type"] for one in shown] == ["daily", "once", None]
    for query in ("admitted_by=x", "admitted_by=1.5", "admitted_by=99999999999", "scheduling_type=often"):
        assert acme.get(f"/tasks?{query}").status == 422, query


def test_a_schedule_is_named_by_its_id_too(acme: ApiClient) -> None:
    made, other = make(acme.tenant, "nightly"), make(create_tenant("globex", "Globex"), "hourly")
    fired, hourly, named = (acme.task(name=name) for name in ("fired", "hourly", "named"))
    for task_id, submitter in ((fired, "nightly"), (hourly, "hourly"), (named, str(other.pk))):
        Task._plain.filter(pk=task_id).update(submitted_by=f"schedule:{submitter}")
    assert ids(acme, f"/tasks?schedule={made.pk}") == ids(acme, "/tasks?schedule=nightly") == ["fired"]
    assert ids(acme, f"/tasks?schedule={made.pk.hex}") == ["fired"]
    # Another tenant's schedule finds nothing by its name; what a schedule is called may look like an id.
    assert ids(acme, f"/tasks?schedule={other.pk}") == ["named"]
    assert ids(acme, f"/tasks?schedule={uuid4()}") == ids(acme, "/tasks?schedule=weekly") == []
    wanted = {"filter": {"schedule": str(made.pk)}, "dry_run": True}
    assert acme.post("/tasks/cancel", wanted).body["task_ids"] == [fired]
    delete_schedule(acme.tenant.pk, made.pk)
    assert ids(acme, f"/tasks?schedule={made.pk}") == []
    assert ids(acme, "/tasks?schedule=nightly") == ["fired"]


def test_a_search_stops_where_its_time_is_used_up_and_its_cursor_leads_on(
    acme: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [acme.task(name=f"t{n}") for n in range(8)]
    monkeypatch.setattr(looking, "CHEAP", -1)
    monkeypatch.setattr(looking, "WINDOW", 2)
    for sort, last in (("-submitted_at", made[0]), ("submitted_at", made[7])):
        assert ids(acme, f"/tasks?name={'t0' if last == made[0] else 't7'}&sort={sort}&within_ms=1000", "id") == [last]
    assert len(ids(acme, "/tasks?within_ms=1000&limit=3")) == 3
    monkeypatch.setattr("slackwater_api.http.pagination.LOOK_MS", -1_000)
    found, pages, cursor = [], 0, cast("str | None", "")
    while cursor is not None:
        answer = acme.get(f"/tasks?name=t0{cursor and f'&cursor={cursor}'}").body
        found += [item["id"] for item in answer["items"]]
        pages, cursor = pages + 1, answer["next_cursor"]
    assert (found, pages) == ([made[0]], 5)
    monkeypatch.undo()
    for wrong in ("9", "10001", "x", "-1", "1e3", ""):
        assert acme.get(f"/tasks?within_ms={wrong}").body["field"] == "within_ms", wrong
    assert acme.get("/workflows?within_ms=10").status == 422


@pytest.mark.django_db(transaction=True)
def test_an_order_that_takes_too_long_is_refused_and_says_so(acme: ApiClient) -> None:
    made = [acme.task(name=name) for name in ("b", "a")]
    query = "/tasks?sort=name&within_ms=50"
    assert ids(acme, query, "id") == made[::-1]
    with connect(application_name="holds the tasks") as other, other.transaction():
        other.execute("LOCK TABLE slackwater_tasks_task IN ACCESS EXCLUSIVE MODE")  # it takes as long as this lasts
        refused = acme.get(query)
    assert (refused.status, refused.body["code"], refused.body["field"]) == (422, "does_not_fit", "sort")
    assert "50 ms" in refused.body["detail"]
    assert ids(acme, query, "id") == made[::-1]


def test_tasks_are_narrowed_by_node_error_and_schedule(acme: ApiClient) -> None:
    waits, fails = acme.task(name="waits"), acme.task(name="fails", total_attempts=1)
    worker = HandWorker("node-7")
    worker.end(worker.start(UUID(fails)), outcome=Outcome.FAILED, error="OSError: it Timed out")
    Task._plain.filter(pk=waits).update(submitted_by="schedule:nightly")
    for query, found in (
        ("node=node-7", ["fails"]), ("node=node-8", []), ("error=timed%20out", ["fails"]), ("error=lost", []),
        ("schedule=nightly", ["waits"]), ("schedule=night", []),
    ):  # fmt: skip
        assert ids(acme, f"/tasks?{query}") == found, query
    listed = {one["name"]: one["started_at"] for one in acme.get("/tasks").body["items"]}
    assert listed == {"waits": None, "fails": acme.get(f"/tasks/{fails}").body["started_at"]}
    assert listed["fails"]
    wanted = {"filter": {"error": "timed out"}, "dry_run": True}
    assert acme.post("/tasks/retry", wanted).body["task_ids"] == [fails]


def test_firings_are_narrowed_by_outcome_and_time(acme: ApiClient) -> None:
    made = acme.post("/schedules", {"name": "a", "kind": "daily", "task": {"handler": HANDLER}}).body["id"]
    now = timezone.now().replace(microsecond=0)
    for hours, outcome in ((3, "submitted"), (2, "missed"), (1, "failed")):
        at = now - timedelta(hours=hours)
        ScheduleFire._plain.create(
            schedule_id=UUID(made), tenant=acme.tenant, fire_at=at, due_at=at, fired_at=at, lateness_ms=0,
            outcome=outcome, version=1,
        )  # fmt: skip
    path = f"/schedules/{made}/firings"
    assert ids(acme, path, "outcome") == ["failed", "missed", "submitted"]
    assert ids(acme, f"{path}?outcome=missed,failed", "outcome") == ["failed", "missed"]
    since = (now - timedelta(hours=2)).isoformat().replace("+", "%2B")
    assert ids(acme, f"{path}?fire_after={since}", "outcome") == ["failed", "missed"]
    assert ids(acme, f"{path}?fire_before={since}", "outcome") == ["submitted"]
    assert acme.get(f"{path}?outcome=lost").body["detail"].startswith("must be one of submitted, missed")


def test_workflows_and_scripts_are_narrowed_by_name(acme: ApiClient) -> None:
    for name in ("a", "b"):
        acme.post("/workflows", {"name": name, "tasks": [{"name": "t", "handler": HANDLER}]})
        acme.post("/scripts", {"name": name, "content": f"#!/bin/sh\necho {name}\n"})
    assert ids(acme, "/workflows?name=a") == ["a"]
    assert ids(acme, "/workflows?submitted_before=2020-01-01T00:00:00Z") == []
    assert ids(acme, "/workflows?submitted_after=2020-01-01T00:00:00Z") == ["b", "a"]
    assert acme.get("/workflows?submitted_after=soon").body["field"] == "submitted_after"
    assert ids(acme, "/scripts?name=b") == ["b"]


def test_dead_letters_are_narrowed_by_what_died_and_of_what(acme: ApiClient) -> None:
    for name, outcome in (("a", Outcome.FAILED), ("b", Outcome.CAP_EXCEEDED)):
        task_id = UUID(acme.task(name=name, tags=[f"tag-{name}"]))
        DeadLetter._plain.create(task_id=task_id, tenant=acme.tenant, outcome=outcome, reason="r")
    assert ids(acme, "/dead-letters?outcome=cap_exceeded,worker_lost") == ["b"]
    assert ids(acme, f"/dead-letters?handler={HANDLER}&tag=tag-a") == ["a"]
    assert ids(acme, "/dead-letters?name=b") == ["b"]
    assert ids(acme, "/dead-letters?at_before=2020-01-01T00:00:00Z") == []
    assert acme.get("/dead-letters?outcome=bored").body["field"] == "outcome"


def test_a_webhooks_log_is_narrowed_by_event_and_task_and_tells_times_as_all_else_does(
    acme: ApiClient,
) -> None:
    hook = acme.post("/webhooks", {"url": "https://example.org/h", "events": ["task.failed"]}).body["id"]
    task_id = acme.task()
    for event, of, log in (
        ("task.failed", UUID(task_id), [{"at": 0.5, "status": 204, "error": "", "ms": 3}]),
        ("ping", None, []),
    ):
        Delivery._plain.create(
            subscription_id=UUID(hook), tenant=acme.tenant, event=event, task_id=of, payload="{}", log=log,
            state="delivered", tries_left=0, next_attempt_at=timezone.now(),
        )  # fmt: skip
    path = f"/webhooks/{hook}/deliveries"
    assert ids(acme, f"{path}?event=ping", "event") == ["ping"]
    found = acme.get(f"{path}?task_id={task_id}&state=delivered,failed").body["items"]
    assert [item["event"] for item in found] == ["task.failed"]
    assert found[0]["log"][0]["at"] == "1970-01-01T00:00:00.500000Z"
    assert acme.get(f"{path}?event=task.exploded").body["field"] == "event"
    assert acme.get(f"{path}?task_id=1").body["field"] == "task_id"
