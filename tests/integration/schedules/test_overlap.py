"""A firing while the one before still runs: each way of overlap."""

from __future__ import annotations

import pytest

from slackwater_schedules.firing import fire_due
from slackwater_tasks.models import LiveTask, TaskEvent
from slackwater_tasks.submission.service import submit
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker
from tests.support.schedules import due, fire_again, make, outcomes, rewind, state_of, tasks_of

pytestmark = pytest.mark.django_db


# -- overlap ----------------------------------------------------------------------------------------------------------
def test_overlap_allow(tenant: Tenant) -> None:
    schedule = due(tenant)
    fire_due()
    fire_again(schedule)
    assert outcomes(schedule) == ["submitted"] * 2


def test_overlap_skip(tenant: Tenant) -> None:
    schedule = due(tenant, overlap="skip")
    worker = HandWorker()
    fire_due()
    fire_again(schedule)
    assert outcomes(schedule) == ["submitted", "skipped"]
    worker.run(*tasks_of(schedule))
    fire_again(schedule)
    assert outcomes(schedule) == ["submitted", "skipped", "submitted"]


def test_overlap_queue_one(tenant: Tenant) -> None:
    schedule = due(tenant, overlap="queue_one")
    worker = HandWorker()
    fire_due()
    running = worker.start(*tasks_of(schedule))
    for _ in range(3):
        fire_again(schedule)
    assert outcomes(schedule) == ["submitted", "submitted", "skipped", "skipped"]
    first, second = tasks_of(schedule)
    assert (state_of(first), state_of(second)) == ("RUNNING", "BLOCKED")
    worker.end(running)
    assert state_of(second) == "READY"
    fire_again(schedule)
    assert outcomes(schedule)[-1] == "submitted"


def test_overlap_cancel_old(tenant: Tenant) -> None:
    schedule = due(tenant, overlap="cancel_old")
    worker = HandWorker()
    fire_due()
    fire_again(schedule)
    first, second = tasks_of(schedule)
    assert (state_of(first), state_of(second)) == ("CANCELLED", "READY")
    assert TaskEvent._plain.filter(task_id=first, actor="schedule:nightly").exists()
    running = worker.start(second)
    fire_again(schedule)
    third = tasks_of(schedule)[-1]
    assert (state_of(second), state_of(third)) == ("RUNNING", "BLOCKED"), "it waits until the old one has ended"
    assert LiveTask._plain.get(pk=second).cancel_requested
    worker.end(running)
    assert state_of(third) == "READY"


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("allow", ["submitted"] * 4),
        ("skip", ["submitted", "skipped", "skipped", "skipped"]),
        ("queue_one", ["submitted", "submitted", "skipped", "skipped"]),
        ("cancel_old", ["skipped", "skipped", "skipped", "submitted"]),
    ],
)
def test_overlap_of_firings_that_come_together(tenant: Tenant, overlap: str, expected: list[str]) -> None:
    schedule = rewind(make(tenant, overlap=overlap, missed="all"), 4 * 3600 + 5)
    fire_due()
    assert outcomes(schedule) == expected


def test_tasks_of_others_do_not_count_as_overlap(tenant: Tenant) -> None:
    submit(tenant, {"handler": HANDLER, "name": "nightly"})
    schedule = due(tenant, overlap="skip")
    due(tenant, "other")
    fire_due()
    assert outcomes(schedule) == ["submitted"]
