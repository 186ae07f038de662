"""What clients do to schedules: create, change, pause, backfill; and what is refused, by field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from scheduler_ext.core.errors import Conflict, InvalidInput, NotFound, NotGranted, SlackwaterError, TooLarge
from slackwater_schedules import services
from slackwater_schedules.backfill import backfill
from slackwater_schedules.firing import fire_due, seconds_to_next
from slackwater_schedules.lookups import get_schedule
from slackwater_schedules.models import Schedule
from slackwater_tasks.models import Task
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope
from slackwater_tenants.services import create_tenant
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker
from tests.support.schedules import FIRES, due, make, outcomes, rewind, state_of, tasks_of

pytestmark = pytest.mark.django_db


# -- services ---------------------------------------------------------------------------------------------------------
def test_a_schedule_is_stored_as_given(tenant: Tenant) -> None:
    schedule = make(
        tenant, kind="weekly", rule={"weekdays": ["mon"], "times": ["09:00"]}, time_zone="Europe/Berlin",
        start_at="2030-01-01T00:00:00+01:00", end_at="2030-12-31T00:00:00Z", jitter_s=5, missed="window",
        missed_after_s=10, missed_window_s=20, missed_limit=30, overlap="skip",
    )  # fmt: skip
    schedule.refresh_from_db()
    assert schedule.next_fire_at == datetime(2030, 1, 7, 8, tzinfo=UTC)
    assert services.next_firings(schedule, 2) == [datetime(2030, 1, n, 8, tzinfo=UTC) for n in (7, 14)]
    assert (schedule.created_by, schedule.version, schedule.missed_limit) == ("user:ann", 1, 30)
    assert get_schedule(tenant.pk, schedule.pk) == schedule
    with tenant_scope(tenant.pk):
        assert Schedule.objects.get() == schedule


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"name": ""}, "name", "1 to 100"),
        ({"name": "a\x00b"}, "name", "NUL"),
        ({"nmae": "x"}, "nmae", "there is no such field"),
        ({"kind": "sometimes"}, "kind", "must be one of"),
        ({"rule": []}, "rule", "must be an object"),
        ({"rule": {"every_s": 0}}, "rule.every_s", "whole seconds"),
        ({"time_zone": "Berlin"}, "time_zone", "no time zone"),
        ({"start_at": "soon"}, "start_at", "ISO 8601"),
        ({"start_at": "2030-01-02T00:00Z", "end_at": "2030-01-01T00:00Z"}, "end_at", "before start_at"),
        ({"end_at": "2001-01-01T00:00Z"}, "end_at", "in the future"),
        ({"kind": "cron", "rule": {"cron": "0 0 30 2 *"}}, "rule", "never fires"),
        ({"kind": "once", "rule": {"at": "2001-01-01T00:00Z"}}, "rule.at", "in the future"),
        ({"jitter_s": -1}, "jitter_s", "must be from 0"),
        ({"jitter_s": True}, "jitter_s", "whole number"),
        ({"paused": 1}, "paused", "true or false"),
        ({"missed": "never"}, "missed", "must be one of"),
        ({"missed_limit": 0}, "missed_limit", "from 1"),
        ({"overlap": None}, "overlap", "must be one of"),
        ({"task": "x"}, "task", "must be an object"),
        ({"task": {}}, "task.handler", "exactly one of"),
        ({"task": {"handler": "no.such"}}, "task.handler", "no worker has exported"),
        ({"task": {"handler": HANDLER, "tier": "huge"}}, "task.tier", "no tier"),
        ({"task": {"handler": HANDLER, "depends_on": ["a"]}}, "task.depends_on", "depends on nothing"),
        ({"task": {"handler": HANDLER, "start_at": "2030-01-01T00:00Z"}}, "task.start_at", "schedule says"),
        ({"task": {"handler": HANDLER, "kwargs": {"x": float("nan")}}}, "task.kwargs", "JSON"),
    ],
)
def test_a_wrong_field_is_named(tenant: Tenant, fields: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        make(tenant, **fields)
    assert caught.value.field == field
    assert message in caught.value.message
    assert not Schedule._plain.exists()


@pytest.mark.parametrize("missing", ["name", "kind", "task"])
def test_what_is_needed_is_asked_for(tenant: Tenant, missing: str) -> None:
    data = {"name": "a", "kind": "once", "task": {"handler": HANDLER}}
    del data[missing]
    with pytest.raises(InvalidInput) as caught:
        services.create_schedule(tenant, data)
    assert caught.value.field == missing


def test_what_the_plan_does_not_grant_is_refused_at_once(tenant: Tenant) -> None:
    tenant.plan.handlers = ["mail.*"]
    with pytest.raises(NotGranted) as caught:
        make(tenant)
    assert caught.value.field == "task.handler"


def test_a_name_is_taken_once_by_tenant(tenant: Tenant) -> None:
    make(tenant)
    make(create_tenant("other", "Other"))
    with pytest.raises(Conflict) as caught:
        make(tenant)
    assert caught.value.field == "name"
    second = make(tenant, "second")
    with pytest.raises(Conflict):
        services.update_schedule(tenant.pk, second.pk, {"name": "nightly"})
    assert Schedule._plain.get(pk=second.pk).version == 1


def test_another_tenants_schedule_is_not_found(tenant: Tenant) -> None:
    schedule = make(tenant)
    other = create_tenant("other", "Other")
    past = datetime(2020, 1, 1, tzinfo=UTC)
    calls: list[Callable[[], Any]] = [
        lambda: get_schedule(other.pk, schedule.pk),
        lambda: services.update_schedule(other.pk, schedule.pk, {"paused": True}),
        lambda: services.pause_schedule(other.pk, schedule.pk),
        lambda: services.delete_schedule(other.pk, schedule.pk),
        lambda: backfill(other.pk, schedule.pk, past, past),
        lambda: get_schedule(tenant.pk, uuid4()),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            call()
    schedule.refresh_from_db()
    assert schedule.version == 1


def test_an_edit_of_a_due_schedule_fires_it_as_it_was(tenant: Tenant) -> None:
    schedule = due(tenant, task={"handler": HANDLER, "name": "old"})
    changed = services.update_schedule(
        tenant.pk,
        schedule.pk,
        {"rule": {"every_s": 60}, "task": {"handler": HANDLER, "name": "new"}},
        actor="user:bob",
    )
    assert [Task._plain.get(pk=t).name for t in tasks_of(schedule)] == ["old"]
    assert (changed.version, changed.updated_by) == (2, "user:bob")
    ahead = seconds_to_next()
    assert ahead is not None
    assert 0 < ahead <= 60


def test_an_edit_that_leaves_the_times_leaves_the_next_firing(tenant: Tenant) -> None:
    schedule = make(tenant)
    changed = services.update_schedule(tenant.pk, schedule.pk, {"overlap": "skip"}, version=1)
    assert changed.next_fire_at == schedule.next_fire_at
    with pytest.raises(Conflict) as caught:
        services.update_schedule(tenant.pk, schedule.pk, {"overlap": "allow"}, version=1)
    assert caught.value.field == "version"
    with pytest.raises(InvalidInput):
        services.update_schedule(tenant.pk, schedule.pk, {})


def test_a_change_of_kind_needs_its_rule(tenant: Tenant) -> None:
    schedule = make(tenant)
    with pytest.raises(InvalidInput) as caught:
        services.update_schedule(tenant.pk, schedule.pk, {"kind": "weekly"})
    assert caught.value.field == "rule.weekdays"
    changed = services.update_schedule(tenant.pk, schedule.pk, {"kind": "daily"})
    assert changed.next_fire_at is not None
    assert changed.next_fire_at.time().isoformat() == "00:00:00"
    services.update_schedule(tenant.pk, schedule.pk, {"kind": "once"})
    assert fire_due()["submitted"] == 1


def test_a_firing_that_waits_for_its_jitter_survives_an_edit(tenant: Tenant) -> None:
    schedule = make(tenant, jitter_s=3600)
    schedule.anchor_at -= timedelta(seconds=3610)
    schedule.next_fire_at = schedule.anchor_at + timedelta(seconds=3600)
    schedule.next_due_at = datetime.now(UTC) + timedelta(minutes=5)
    schedule.save()
    changed = services.update_schedule(tenant.pk, schedule.pk, {"rule": {"every_s": 1800}, "jitter_s": 0})
    assert changed.next_fire_at == schedule.next_fire_at
    assert fire_due()["submitted"] == 1


def test_a_paused_schedule_fires_not_and_misses_nothing(tenant: Tenant) -> None:
    schedule = make(tenant)
    services.pause_schedule(tenant.pk, schedule.pk)
    schedule.refresh_from_db()
    assert (schedule.paused, schedule.next_due_at) == (True, None)
    assert len(services.next_firings(schedule, 3)) == 3
    Schedule._plain.filter(pk=schedule.pk).update(
        anchor_at=schedule.anchor_at - timedelta(hours=5),
        next_fire_at=schedule.anchor_at - timedelta(hours=4),
    )
    assert fire_due() == Counter()
    past: dict[str, Any] = {"kind": "once", "rule": {"at": "2001-01-01T00:00:00Z"}}
    for wrong in ({"rule": {"every_s": 0}}, past):
        with pytest.raises(InvalidInput):
            services.update_schedule(tenant.pk, schedule.pk, {**wrong, "paused": False})
    resumed = services.resume_schedule(tenant.pk, schedule.pk)
    assert resumed.next_due_at is not None
    assert resumed.next_due_at > datetime.now(UTC)
    assert fire_due() == Counter()
    assert outcomes(schedule) == []


def test_a_schedule_born_paused_waits(tenant: Tenant) -> None:
    schedule = make(tenant, paused=True, kind="once", rule={})
    assert fire_due() == Counter()
    assert schedule.next_due_at is None


def test_deleting_leaves_the_tasks(tenant: Tenant) -> None:
    schedule = due(tenant)
    fire_due()
    services.delete_schedule(tenant.pk, schedule.pk)
    assert not FIRES.exists()
    assert Task._plain.count() == 1


# -- backfill ---------------------------------------------------------------------------------------------------------
DAY = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_backfill_submits_what_was_never_submitted(tenant: Tenant) -> None:
    schedule = make(tenant, kind="daily", rule={"times": ["06:00"]}, task={"handler": HANDLER, "args": ["$fire_at"]})
    first = backfill(tenant.pk, schedule.pk, DAY, DAY + timedelta(days=3))
    assert len(first.task_ids) == 3
    assert {t.workflow_id for t in Task._plain.all()} == {first.workflow_id}
    assert Task._plain.get(pk=first.task_ids[1]).name == "nightly 2026-03-02T06:00:00Z"
    assert [Task._plain.get(pk=t).args for t in first.task_ids] == [[f"2026-03-0{n}T06:00:00Z"] for n in (1, 2, 3)]
    again = backfill(tenant.pk, schedule.pk, DAY, DAY + timedelta(days=4))
    assert len(again.task_ids) == 1
    nothing = backfill(tenant.pk, schedule.pk, DAY, DAY + timedelta(days=4))
    assert (nothing.task_ids, nothing.workflow_id) == ([], None)
    assert FIRES.filter(backfill=True).count() == 4


def test_a_backfill_makes_up_for_missed_firings(tenant: Tenant) -> None:
    schedule = rewind(make(tenant, missed="skip"), 5 * 3600 + 5)
    fire_due()
    assert outcomes(schedule) == ["missed"] * 4 + ["submitted"]
    done = backfill(tenant.pk, schedule.pk, schedule.anchor_at, datetime.now(UTC) - timedelta(minutes=1))
    # The interval's anchor itself comes too: a backfill goes back before the schedule's start.
    assert len(done.task_ids) == 5
    assert outcomes(schedule) == ["submitted"] * 6


def test_a_backfill_that_must_not_overlap_runs_one_after_the_other(tenant: Tenant) -> None:
    schedule = make(tenant, kind="daily", rule={"times": ["06:00"]}, overlap="queue_one")
    done = backfill(tenant.pk, schedule.pk, DAY, DAY + timedelta(days=3))
    assert [state_of(t) for t in done.task_ids] == ["READY", "BLOCKED", "BLOCKED"]
    worker = HandWorker()
    worker.run(done.task_ids[0])
    assert [state_of(t) for t in done.task_ids] == ["SUCCEEDED", "READY", "BLOCKED"]


@pytest.mark.parametrize(
    ("start", "end", "error", "field"),
    [
        (DAY, DAY - timedelta(days=1), InvalidInput, "end"),
        (DAY, datetime(2199, 1, 1, tzinfo=UTC), InvalidInput, "end"),
        (DAY.replace(tzinfo=None), DAY, InvalidInput, "start"),
        (DAY, DAY + timedelta(days=60), TooLarge, "end"),
    ],
)
def test_a_wrong_backfill_is_refused(
    tenant: Tenant, start: datetime, end: datetime, error: type[SlackwaterError], field: str
) -> None:
    schedule = make(tenant)
    with pytest.raises(error) as caught:
        backfill(tenant.pk, schedule.pk, start, end)
    assert caught.value.field == field
    assert not FIRES.exists()


def test_a_live_firing_leaves_out_what_a_backfill_made(tenant: Tenant) -> None:
    schedule = make(tenant, jitter_s=3600)
    fire_at = schedule.anchor_at - timedelta(seconds=10)
    Schedule._plain.filter(pk=schedule.pk).update(
        anchor_at=fire_at, next_fire_at=fire_at, next_due_at=datetime.now(UTC) + timedelta(seconds=60)
    )
    backfill(tenant.pk, schedule.pk, fire_at, fire_at)
    Schedule._plain.filter(pk=schedule.pk).update(next_due_at=fire_at)
    assert fire_due()["submitted"] == 0
    assert Task._plain.count() == FIRES.count() == 1
