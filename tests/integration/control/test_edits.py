"""Editing a waiting task: what an edit checks, what it leaves alone, and what the history says of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_ext.core.states import Outcome
from slackwater_tasks.control.edit import edit
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.models import LiveTask
from tests.support.api import HANDLER, ApiClient
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db


def live(task_id: str) -> LiveTask:
    return LiveTask._plain.get(pk=UUID(task_id))


def stated(acme: ApiClient, task_id: str) -> list[tuple[Any, Any]]:
    past = acme.get(f"/tasks/{task_id}/history").body["items"]
    return [(entry["from"], entry["to"]) for entry in past]


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "9000-01-01T00:00:00Z"])
def test_a_start_at_the_end_of_time_is_refused_by_name(acme: ApiClient, moment: str) -> None:
    longest = {"handler": HANDLER, "start_at": moment, "delay_tolerance_s": 316_224_000}
    answer = acme.post("/tasks", longest)
    assert (answer.status, answer.body["field"]) == (422, "start_at")
    answer = acme.patch(f"/tasks/{acme.task()}", {"start_at": moment})
    assert (answer.status, answer.body["field"]) == (422, "start_at")
    assert acme.post("/tasks", {**longest, "start_at": "8999-12-31T23:59:59Z"}).status == 201


def test_a_cap_beyond_the_plan_is_told_in_seconds(acme: ApiClient) -> None:
    answer = acme.post("/tasks", {"handler": HANDLER, "execution_cap_s": 300_000_000})
    longest = acme.tenant.plan.max_cap_s
    assert (answer.status, answer.body["field"], answer.body["limit"]) == (403, "execution_cap_s", longest)
    assert f"{longest} seconds" in answer.body["detail"]


def test_references_are_checked_as_at_submission(acme: ApiClient) -> None:
    parent = acme.task(name="first", start_at="2040-01-01T00:00:00Z")
    child = acme.task(depends_on=[parent])
    for wrong, field in (([1, {"$from": "nobody"}], "args[1]"), ([{"$from": []}], "args[0]")):
        answer = acme.patch(f"/tasks/{child}", {"args": wrong})
        assert (answer.status, answer.body["field"]) == (422, field)
    answer = acme.patch(f"/tasks/{child}", {"kwargs": {"x": {"$from": "nobody"}}})
    assert (answer.status, answer.body["field"]) == (422, "kwargs.x")
    assert acme.get(f"/tasks/{child}").body["args"] == []
    for right in ("first", parent):
        assert acme.patch(f"/tasks/{child}", {"args": [{"$from": right}]}).status == 200


def test_an_edit_gives_no_attempts_away(acme: ApiClient) -> None:
    worker = HandWorker()
    task_id = acme.task(total_attempts=3)
    worker.run(UUID(task_id), outcome=Outcome.FAILED, error="no")
    assert acme.patch(f"/tasks/{task_id}", {"priority": 5}).status == 200
    assert (live(task_id).attempts, live(task_id).total_attempts) == (1, 3)
    acme.patch(f"/tasks/{task_id}", {"total_attempts": 5})
    assert live(task_id).total_attempts == 5
    acme.patch(f"/tasks/{task_id}", {"total_attempts": 1})
    assert live(task_id).total_attempts == 2, "the one it waits for stays"


def test_run_again_it_keeps_its_new_attempts_through_an_edit(acme: ApiClient) -> None:
    worker = HandWorker()
    task_id = acme.task(total_attempts=1)
    worker.run(UUID(task_id), outcome=Outcome.FAILED, error="no")
    retry(acme.tenant.pk, UUID(task_id))
    edit(acme.tenant.pk, UUID(task_id), {"total_attempts": 2})
    assert (live(task_id).attempts, live(task_id).total_attempts) == (1, 3)


def test_an_edit_does_not_make_late_what_became_ready_just_now(acme: ApiClient) -> None:
    """What it needed came, or it was run again, long after its submission: its delay counts from then."""
    task_id = acme.task(delay_tolerance_s=60, on_late="give_up")
    released = timezone.now() + timedelta(hours=5)
    LiveTask._plain.filter(pk=UUID(task_id)).update(
        latest_start=released + timedelta(seconds=60), promote_at=released + timedelta(seconds=50)
    )
    acme.patch(f"/tasks/{task_id}", {"priority": 5})
    assert live(task_id).latest_start == released + timedelta(seconds=60)
    answer = acme.patch(f"/tasks/{task_id}", {"delay_tolerance_s": 90})
    assert datetime.fromisoformat(answer.body["latest_start"]) == released + timedelta(seconds=90)
    promote = live(task_id).promote_at
    assert promote is not None
    assert released < promote < released + timedelta(seconds=90)


def test_a_start_brought_forward_counts_from_now(acme: ApiClient) -> None:
    task_id = acme.task(start_at="2040-01-01T00:00:00Z", delay_tolerance_s=60)
    before = timezone.now() - timedelta(seconds=1)  # the ledger's clock may be a moment behind ours
    acme.patch(f"/tasks/{task_id}", {"start_at": None})
    latest = live(task_id).latest_start
    assert latest is not None
    assert before + timedelta(seconds=60) <= latest <= timezone.now() + timedelta(seconds=61)
    acme.patch(f"/tasks/{task_id}", {"start_at": "2041-01-01T00:00:00Z"})
    assert acme.get(f"/tasks/{task_id}").body["latest_start"] == "2041-01-01T00:01:00Z"


def test_the_history_keeps_how_it_began_and_speaks_in_seconds(acme: ApiClient) -> None:
    task_id = acme.task(start_at="2040-01-01T00:00:00Z", delay_tolerance_s=60, execution_cap_s=10)
    change = {"start_at": None, "delay_tolerance_s": 7.5, "execution_cap_s": None}
    assert acme.patch(f"/tasks/{task_id}", change).status == 200
    assert stated(acme, task_id) == [(None, "scheduled"), ("scheduled", "ready")]
    detail = acme.get(f"/tasks/{task_id}/history").body["items"][1]["detail"]
    cap = acme.get(f"/tasks/{task_id}").body["execution_cap_s"]
    assert detail["delay_tolerance_s"] == [60, 7.5]
    assert detail["execution_cap_s"] == [10, cap], "what holds in the place of what was taken away"
    later = acme.task()
    acme.patch(f"/tasks/{later}", {"start_at": "2040-01-01T00:00:00Z"})
    assert stated(acme, later) == [(None, "ready"), ("ready", "scheduled")]
