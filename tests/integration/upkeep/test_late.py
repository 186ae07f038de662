"""What cannot be met is refused where the plan says so; what comes late is run first, or given up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from django.db import connection

from scheduler_ext.core.states import Event, TaskState
from slackwater_resources.models import Handler, Tier
from slackwater_tasks.models import Listener, LiveTask, Outbox, Task, TaskEvent
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from tests.support.api import HANDLER, forget_lookups
from tests.support.cell import Cell

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cell(redis_client: redis.Redis) -> Iterator[Cell]:
    made = Cell(redis_client)
    try:
        yield made
    finally:
        made.store.db.close()


def plan(cell: Cell, **changes: bool) -> None:
    for name, value in changes.items():
        setattr(cell.tenant.plan, name, value)
    cell.tenant.plan.save()
    forget_lookups()


def test_what_no_node_can_run_is_refused_where_the_plan_says_so(cell: Cell) -> None:
    Tier.objects.create(slug="huge", tenant=cell.tenant, cpu_milli=10**9, memory_mb=1)
    Handler.objects.create(name="demo.nowhere")
    huge, nowhere = {"handler": HANDLER, "tier": "huge"}, {"handler": "demo.nowhere"}
    assert [cell.client.post("/tasks", body).status for body in (huge, nowhere)] == [201, 201]
    plan(cell, refuse_impossible=True)
    for body, field in ((huge, "tier"), (nowhere, "handler")):
        answer = cell.client.post("/tasks", body)
        assert (answer.status, answer.code, answer.body["field"]) == (422, "impossible", field)
    assert cell.client.post("/tasks", [{"handler": HANDLER}, huge]).body["field"] == "tasks[1].tier"
    assert cell.client.post("/tasks", {"handler": HANDLER}).status == 201
    cell.worker.node.state = "left"
    cell.worker.node.save()
    assert cell.client.post("/tasks", huge).status == 201, "a cell whose nodes are just starting refuses nothing"


def test_a_latest_start_that_cannot_be_met_is_refused_where_the_plan_says_so(cell: Cell) -> None:
    """Five slots, runs of ten seconds: ten tasks ahead take twenty seconds."""
    with connection.cursor() as cur:
        cur.execute(
            "INSERT INTO slackwater_tasks_runtime (tenant_id, key, samples, mean_us, updated_at)"
            " VALUES (%s, %s, 50, 10e6, now())",
            (cell.tenant.pk, HANDLER),
        )
    for _ in range(10):
        cell.submit()
    soon = {"handler": HANDLER, "delay_tolerance_s": 15}
    assert cell.client.post("/tasks", soon).status == 201
    plan(cell, refuse_late=True)
    answer = cell.client.post("/tasks", soon)
    assert (answer.status, answer.code, answer.body["field"]) == (422, "impossible", "delay_tolerance_s")
    assert "22 s" in answer.body["detail"]
    assert cell.client.post("/tasks", {**soon, "delay_tolerance_s": 30}).status == 201
    assert cell.client.post("/tasks", {**soon, "category": "urgent"}).status == 201, "no urgent work is ahead"
    assert cell.client.post("/tasks", {**soon, "start_at": "2090-01-01T00:00:00Z"}).status == 201


def test_a_latest_start_that_passes_is_run_first_or_given_up_as_asked(cell: Cell) -> None:
    started = cell.worker.start(*[cell.submit() for _ in range(5)])
    cell.submit()  # stands before both in its line
    first = cell.submit(delay_tolerance_s=0.001)
    given_up = cell.submit(delay_tolerance_s=0.001, on_late="give_up")
    before = cell.submit()
    upkeep = LedgerUpkeep(cell.worker.conf, lambda changes: None)
    try:
        assert upkeep.expire_late() == 1
    finally:
        upkeep.db.close()
    gone = Task.objects.unscoped().get(pk=given_up)  # the test is no tenant
    assert (gone.state, gone.reason) == (TaskState.EXPIRED, "its latest start passed")
    events = TaskEvent.objects.unscoped().filter(task_id=given_up)  # the test is no tenant
    assert [e.to_state for e in events] == [TaskState.EXPIRED]
    # The other is urgent now, and gets the first slot that is free.
    cell.worker.end(started[:1])
    assert cell.claimed(first)
    assert LiveTask.objects.unscoped().get(pk=before).state == TaskState.READY  # the test is no tenant


def test_what_no_node_can_run_is_told_at_once_and_once(cell: Cell) -> None:
    Listener.objects.create(tenant=cell.tenant, events=int(Event.IMPOSSIBLE | Event.FAILED))
    Tier.objects.create(slug="huge", tenant=cell.tenant, cpu_milli=10**9, memory_mb=1)
    task = cell.submit(tier="huge")
    for _ in range(3):
        assert not cell.claimed(task)
    told = Outbox.objects.unscoped().get(task_id=task)  # the test is no tenant
    assert (told.events, told.state) == (Event.IMPOSSIBLE, TaskState.BLOCKED)
    assert told.reason == "its tier is larger than every registered node"
    # Work that could wait behind it in the same line is not held up.
    assert cell.claimed(cell.submit())
