"""Schedules over REST."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_tasks.models import Task
from tests.support.api import HANDLER, ApiClient

pytestmark = pytest.mark.django_db
DAILY: dict[str, Any] = {
    "name": "report",
    "kind": "daily",
    "rule": {"times": ["07:30"]},
    "task": {"handler": HANDLER},
}


def test_a_schedule_is_made_and_shows_its_next_firings(acme: ApiClient) -> None:
    answer = acme.post("/schedules", {**DAILY, "time_zone": "Europe/Berlin"})
    assert answer.status == 201, answer.body
    assert answer.headers["Location"] == f"/api/v1/schedules/{answer.body['id']}"
    shown = acme.get(f"/schedules/{answer.body['id']}").body
    assert shown == answer.body
    firings = [datetime.fromisoformat(moment) for moment in shown["next_firings"]]
    assert len(firings) == 10
    assert firings == sorted(firings)
    assert firings[0] > timezone.now()
    assert (shown["version"], shown["created_by"]) == (1, f"key:{acme.key.prefix}")
    unfit = acme.post("/schedules", {**DAILY, "task": {"handler": HANDLER, "tier": "huge"}})
    assert (unfit.status, unfit.code, unfit.body["field"]) == (422, "does_not_fit", "task.tier")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "hourly"}, "kind"),
        ({"rule": {"times": ["25:00"]}}, "rule.times[0]"),
        ({"task": {}}, "task.handler"),
        ({"task": {"handler": HANDLER, "map": {"over": "a"}}}, "task.map"),
        ({"time_zone": "Mars"}, "time_zone"),
        ({"colour": 1}, "colour"),
        ({"name": ""}, "name"),
        ({"version": 1}, "version"),
        ({"jitter_s": -1}, "jitter_s"),
        ({"start_at": "\ud800"}, "start_at"),
        ({"rule": []}, "rule"),
        ({"paused": 1}, "paused"),
    ],
)
def test_a_wrong_schedule_names_its_field(acme: ApiClient, change: dict[str, Any], field: str) -> None:
    answer = acme.post("/schedules", {**DAILY, **change})
    told = field in {"rule.times[0]", "time_zone"}  # what no schema can say
    assert (answer.status, answer.body["field"]) == (422, field)
    assert answer.code == ("does_not_fit" if told else "invalid_input")
    assert Schedule._plain.count() == 0


def test_the_faults_of_a_scheduled_workflow_have_their_codes_and_places(acme: ApiClient) -> None:
    schedule = {"name": "report", "kind": "daily"}
    unfit = {"tasks": [{"name": "a", "handler": "no.such"}, {"name": "b", "handler": HANDLER, "tier": "huge"}]}
    for workflow, code, fields in (
        (unfit, "does_not_fit", ["workflow.tasks[0].handler", "workflow.tasks[1].tier"]),
        ({"tasks": [{"handler": HANDLER, "start_in_s": 1}]}, "invalid_input", ["workflow.tasks[0].start_in_s"]),
        ({"tasks": [{"handler": HANDLER}], "colour": 1}, "invalid_input", ["workflow.colour"]),
        ({"template": "none"}, "does_not_fit", ["workflow.template"]),
    ):
        answer = acme.post("/schedules", {**schedule, "workflow": workflow})
        assert (answer.status, answer.code) == (422, code)
        assert [(fault["code"], fault["field"]) for fault in answer.body["errors"]] == [(code, each) for each in fields]


def test_names_are_unique_and_lists_are_paged_by_them(acme: ApiClient) -> None:
    for name in ("b", "a", "c"):
        acme.post("/schedules", {**DAILY, "name": name})
    assert acme.post("/schedules", {**DAILY, "name": "a"}).code == "conflict"
    first = acme.get("/schedules?limit=2").body
    second = acme.get(f"/schedules?limit=2&cursor={first['next_cursor']}").body
    assert [row["name"] for row in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["next_cursor"] is None
    assert acme.get("/schedules?cursor=AA").body["field"] == "cursor"


def test_a_schedule_is_paused_changed_and_removed(acme: ApiClient) -> None:
    path = f"/schedules/{acme.post('/schedules', DAILY).body['id']}"
    paused = acme.patch(path, {"paused": True, "version": 1})
    assert (paused.status, paused.body["paused"], paused.body["version"]) == (200, True, 2)
    late = acme.patch(path, {"paused": False, "version": 1})
    assert (late.status, late.code, late.body["field"]) == (409, "conflict", "version")
    assert acme.patch(path, {"version": "2", "paused": True}).body["field"] == "version"
    same = acme.patch(path, {"version": 2})  # nothing to change, if it is as the client believes
    assert (same.status, same.body["version"], same.body["paused"]) == (200, 2, True)
    assert acme.patch(path, {}).status == 422
    assert acme.patch(path, []).status == 422
    gone = acme.call("DELETE", path)
    assert (gone.status, gone.body) == (204, b"")
    assert acme.get(path).code == "not_found"


def test_firings_are_listed_and_the_past_is_made_up_for(acme: ApiClient) -> None:
    made = acme.post("/schedules", {**DAILY, "kind": "interval", "rule": {"every_s": 3600}})
    assert made.status == 201, made.body
    path = f"/schedules/{made.body['id']}"
    end = timezone.now()
    body = {"start": (end - timedelta(hours=3)).isoformat(), "end": (end - timedelta(minutes=1)).isoformat()}
    done = acme.post(f"{path}/backfill", body)
    assert done.status == 201, done.body
    assert Task._plain.filter(workflow_id=done.body["workflow_id"]).count() == len(done.body["task_ids"]) > 0
    again = acme.post(f"{path}/backfill", body)
    assert (again.status, again.body) == (200, {"workflow_id": None, "task_ids": [], "workflow_ids": []})
    fires = acme.get(f"{path}/firings?limit=1").body
    assert fires["items"][0]["outcome"] == ScheduleFire.Outcome.SUBMITTED
    assert fires["items"][0]["backfill"] is True
    rest = acme.get(f"{path}/firings?cursor={fires['next_cursor']}").body["items"]
    assert len(rest) == len(done.body["task_ids"]) - 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "start"),
        ({"start": 1, "end": 2}, "start"),
        ({"start": "2026-01-01T00:00:00", "end": "2026-01-02T00:00:00Z"}, "start"),
        ({"start": "2026-01-01T00:00:00Z"}, "end"),
        ({"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "end"),
        ({"start": "2026-13-01T00:00:00Z", "end": "x"}, "start"),
        ({"start": "2026-01-01T00:00:00Z", "end": "2999-01-01T00:00:00Z"}, "end"),
    ],
)
def test_a_wrong_range_is_refused(acme: ApiClient, body: dict[str, Any], field: str) -> None:
    path = f"/schedules/{acme.post('/schedules', DAILY).body['id']}"
    answer = acme.post(f"{path}/backfill", body)
    assert (answer.status, answer.body["field"]) == (422, field)
