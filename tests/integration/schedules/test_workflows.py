"""Schedules of workflows; firing by hand; times looked at without being stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from scheduler_ext.core.errors import Conflict, InvalidInput
from scheduler_ext.core.states import Category, TaskState
from slackwater_schedules import services
from slackwater_schedules.backfill import backfill
from slackwater_schedules.firing import fire_due
from slackwater_schedules.models import Schedule, ScheduleFire
from slackwater_tasks.models import Dependency, LiveTask, Task, Workflow
from slackwater_tenants.models import Tenant
from tests.support.api import HANDLER
from tests.support.schedules import FIRES, fire_again, make, outcomes, rewind

pytestmark = pytest.mark.django_db
FLOW = {
    "tags": ["nightly"],
    "tasks": [
        {"name": "fetch", "handler": HANDLER, "args": ["$fire_at", "$schedule"]},
        {"name": "use", "handler": HANDLER, "depends_on": ["fetch"]},
        {"name": "tell", "handler": HANDLER, "depends_on": ["use"], "condition": "all_done"},
    ],
}


def make_flow(tenant: Tenant, **fields: Any) -> Schedule:
    """An hourly schedule of a workflow of three."""
    data = {"name": "etl", "kind": "interval", "rule": {"every_s": 3600}, "workflow": FLOW, **fields}
    return services.create_schedule(tenant, data, actor="user:ann")


def flows(schedule: Schedule) -> list[UUID]:
    """Its workflows, oldest firing first."""
    rows = FIRES.filter(schedule=schedule, workflow_id__isnull=False).order_by("fire_at")
    return [found for found in rows.values_list("workflow_id", flat=True) if found is not None]


def end(workflow_id: UUID) -> None:
    """Let all its tasks be final."""
    LiveTask._plain.filter(task__workflow=workflow_id).delete()
    Task._plain.filter(workflow=workflow_id).update(state=TaskState.SUCCEEDED, finished_at=timezone.now())


def waits(workflow_id: UUID) -> set[str]:
    """The names of the tasks elsewhere that its tasks wait for."""
    rows = Dependency.objects.filter(child__workflow=workflow_id).exclude(parent__workflow=workflow_id)
    return set(rows.values_list("parent__name", flat=True))


def test_a_firing_is_a_workflow(tenant: Tenant) -> None:
    schedule = rewind(make_flow(tenant), 3601)
    plain = rewind(make(tenant), 3601)
    fire_due()
    assert (outcomes(schedule), outcomes(plain)) == (["submitted"], ["submitted"])
    made = Workflow._plain.get(pk=flows(schedule)[0])
    assert (made.name, made.tags, made.task_count, made.edge_count) == ("etl", ["nightly"], 3, 2)
    first = Task._plain.get(workflow=made, name="fetch")
    assert (first.args[1], first.submitted_by, first.category) == ("etl", "schedule:etl", Category.PERIODIC)
    assert first.args[0].endswith("Z")


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue_one", "cancel_old"])
def test_overlap_counts_by_workflow(tenant: Tenant, overlap: str) -> None:
    schedule = rewind(make_flow(tenant, overlap=overlap), 3601)
    fire_due()
    fire_again(schedule)
    fire_due()
    if overlap == "skip":
        assert outcomes(schedule) == ["submitted", "skipped"]
        end(flows(schedule)[0])
        fire_again(schedule)
        fire_due()
        assert outcomes(schedule)[-1] == "submitted"
        return
    old, new = flows(schedule)
    assert waits(new) == ({"tell"} if overlap == "queue_one" else set())
    states = set(Task._plain.filter(workflow=old).values_list("state", flat=True))
    assert states == ({int(TaskState.CANCELLED)} if overlap == "cancel_old" else {None})
    if overlap == "queue_one":  # one waits: a third is skipped
        assert set(Task._plain.filter(workflow=new, live__pending__gt=0).values_list("name", flat=True)) == {
            "fetch", "use", "tell",
        }  # fmt: skip
        fire_again(schedule)
        fire_due()
        assert outcomes(schedule)[-1] == "skipped"


def test_a_backfill_makes_workflows_one_after_the_other(tenant: Tenant) -> None:
    schedule = make_flow(tenant, overlap="queue_one")
    made = schedule.anchor_at
    done = backfill(tenant.pk, schedule.pk, made - timedelta(hours=3), made - timedelta(seconds=1))
    assert len(done.workflow_ids) == 3
    assert (done.task_ids, done.workflow_id, flows(schedule)) == ([], None, done.workflow_ids)
    assert [waits(one) for one in done.workflow_ids] == [set(), {"tell"}, {"tell"}]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"task": {"handler": HANDLER}, "workflow": FLOW}, "task"),
        ({}, "task"),
        ({"workflow": {"tasks": []}}, "workflow.tasks"),
        ({"workflow": {**FLOW, "idempotency_key": "x"}}, "workflow.idempotency_key"),
        ({"workflow": {"tasks": [{"name": "a", "handler": "no.such"}]}}, "workflow.tasks[0].handler"),
        ({"workflow": {"tasks": [{"name": "a", "handler": HANDLER, "depends_on": ["b"]}]}},
         "workflow.tasks[0].depends_on[0]"),
        ({"workflow": {"tasks": [{"name": "a", "handler": HANDLER, "start_at": None}]}}, "workflow.tasks[0].start_at"),
    ],
)  # fmt: skip
def test_a_wrong_template_is_refused(tenant: Tenant, fields: dict[str, Any], field: str) -> None:
    data = {"name": "etl", "kind": "daily", **fields}
    with pytest.raises(InvalidInput) as caught:
        services.create_schedule(tenant, data)
    assert caught.value.field == field


def test_a_schedule_may_change_from_a_task_to_a_workflow(tenant: Tenant) -> None:
    schedule = rewind(make(tenant, overlap="queue_one"), 3601)
    fire_due()
    services.update_schedule(tenant.pk, schedule.pk, {"workflow": FLOW})
    fire_again(schedule)
    fire_due()
    assert waits(flows(schedule)[0]) == {"nightly"}
    changed = services.update_schedule(tenant.pk, schedule.pk, {"task": {"handler": HANDLER}})
    assert (changed.workflow, changed.task) == (None, {"handler": HANDLER})


def test_a_schedule_fires_by_hand_and_keeps_its_times(tenant: Tenant) -> None:
    schedule = make_flow(tenant, overlap="skip", paused=True)
    before = schedule.next_fire_at
    made = services.run_now(tenant.pk, schedule.pk, actor="user:ann")
    assert (made.outcome, made.version) == ("submitted", 1)
    assert made.workflow_id is not None
    assert Task._plain.filter(workflow=made.workflow_id, submitted_by="user:ann").count() == 3
    with pytest.raises(Conflict):
        services.run_now(tenant.pk, schedule.pk)
    end(made.workflow_id)
    services.run_now(tenant.pk, schedule.pk)
    schedule.refresh_from_db()
    assert (schedule.next_fire_at, ScheduleFire._plain.count()) == (before, 2)


def test_a_preview_stores_nothing(tenant: Tenant) -> None:
    before = timezone.now()
    found = services.preview({"kind": "daily", "rule": {"times": ["07:30"]}, "time_zone": "Europe/Berlin"}, 3)
    assert len(found) == 3
    assert found == sorted(found)
    assert found[0] >= before
    assert not Schedule._plain.exists()
    for data, field in (({"kind": "daily", "rule": {"times": ["7"]}}, "rule.times[0]"), ({}, "kind"),
                        ({"kind": "daily", "task": {}}, "task")):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            services.preview(data)
        assert caught.value.field == field
