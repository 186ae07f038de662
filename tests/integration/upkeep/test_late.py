"""What cannot be met is refused where the plan says so; what comes late is run first, or given up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
import redis
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from scheduler_ext.core.states import Event, Outcome, TaskState
from slackwater_dashboard import live
from slackwater_resources.models import Handler, Tier
from slackwater_tasks.ledger import transitions
from slackwater_tasks.ledger.hints import tell_changes
from slackwater_tasks.models import Listener, LiveTask, Outbox, Task, TaskEvent
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from tests.support.api import HANDLER, forget_lookups
from tests.support.cell import Cell
from tests.support.hand_worker import raw_cursor
from tests.support.streams import events_in
from tests.support.usage import settle

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
    later = {**soon, "start_at": "2090-01-01T00:00:00Z"}
    assert cell.client.post("/tasks", later).status == 201
    # The same work may start later in one place of a submission and at once in another.
    answer = cell.client.post("/tasks", [later, soon])
    assert (answer.status, answer.code, answer.body["field"]) == (422, "impossible", "tasks[1].delay_tolerance_s")
    graph = [{**soon, "name": "then", "depends_on": ["first"]}, {**soon, "name": "first"}]
    answer = cell.client.post("/workflows", {"name": "w", "tasks": graph})
    assert (answer.status, answer.code, answer.body["field"]) == (422, "impossible", "tasks[1].delay_tolerance_s")


def test_a_latest_start_that_passes_is_run_first_or_given_up_as_asked(cell: Cell) -> None:
    started = cell.worker.start(*[cell.submit() for _ in range(5)])
    cell.submit()  # stands before both in its line
    first = cell.submit(delay_tolerance_s=0.001)
    given_up = cell.submit(delay_tolerance_s=0.001, on_late="give_up")
    before = cell.submit()
    upkeep, came = LedgerUpkeep(cell.worker.conf, tell_changes), place(cell)
    try:
        assert upkeep.expire_late() == 1
    finally:
        upkeep.db.close()
    gone = Task.objects.unscoped().get(pk=given_up)  # the test is no tenant
    assert gone.state == TaskState.EXPIRED
    assert gone.latest_start is not None
    assert gone.reason == f"its latest start passed: {gone.latest_start:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
    assert streamed(cell, given_up, came) == [("expired", gone.reason)]
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


def pass_latest_start(task_id: UUID) -> None:
    with connection.cursor() as cur:
        cur.execute(
            "UPDATE slackwater_tasks_livetask SET latest_start = clock_timestamp() - interval '5 s',"
            " promote_at = clock_timestamp() - interval '6 s' WHERE task_id = %s",
            [task_id],
        )


def place(cell: Cell) -> str:
    """Where the tenant's stream stands."""
    found: str = events_in(cell.client.get("/events").body)[0]["id"]
    return found


def streamed(cell: Cell, task_id: UUID, since: str) -> list[tuple[str, str | None]]:
    """What a client that follows the task hears: states, with reasons."""
    events = events_in(cell.client.get(f"/tasks/{task_id}/events", Last_Event_ID=since).body)
    return [(event["state"], event.get("reason")) for event in events if event["kind"] == "task"]


def queued() -> list[UUID]:
    return list(LiveTask.objects.unscoped().filter(state=TaskState.QUEUED).values_list("pk", flat=True))


def test_what_is_late_goes_before_what_is_urgent_and_the_promise_stays_told(cell: Cell) -> None:
    urgent = cell.submit(category="urgent", priority=1000)
    near, late, punctual = cell.submit(delay_tolerance_s=600), cell.submit(), cell.submit(category="urgent")
    LiveTask.objects.unscoped().filter(pk=near).update(promote_at=Now())
    pass_latest_start(late)
    cell.resize(1)
    came = place(cell)
    cell.round()
    for task_id in (near, late):
        told = [entry["reason"] for entry in cell.client.get(f"/tasks/{task_id}/history").body["items"]]
        assert streamed(cell, task_id, came)[0] == (
            "ready",
            next(reason for reason in told if "latest start" in reason),
        )
    assert queued() == [late], "before urgent work of a higher priority that came first"
    body = cell.client.get(f"/tasks/{late}").body
    promised = body["latest_start"]
    assert promised is not None
    assert body["late_by_s"] >= 5
    assert "its latest start passed" in str(streamed(cell, late, came)[0])
    with raw_cursor() as cur:
        claims = [(str(late), LiveTask.objects.unscoped().get(pk=late).fence)]
        started = transitions.start_if_queued(cur, cell.worker.node.pk, claims)
    cell.worker.end(started)
    body = cell.client.get(f"/tasks/{late}").body
    assert (body["latest_start"], body["state"]) == (promised, "succeeded")
    assert body["late_by_s"] >= 5
    cell.worker.run(punctual)
    assert cell.client.get(f"/tasks/{punctual}").body["late_by_s"] == 0
    assert {near, urgent} <= set(LiveTask.objects.unscoped().values_list("pk", flat=True))
    settle()
    kept = {row["category"]: (row["started"], row["on_time"]) for row in cell.client.get("/usage").body["on_time"]}
    assert kept == {"urgent": (1, 1), "delayable": (1, 0)}
    text = Client().get("/metrics").content.decode()
    line = 'category="delayable",handler="demo.echo",tenant="acme",tier="basic"'
    assert f"slackwater_started_on_time_today{{{line}}} 0.0" in text
    live._memory = live._Memory()
    assert live.snapshot()["tenants"][0]["on_time"] == 0.5


def test_what_has_not_started_when_it_expires_never_does(cell: Cell) -> None:
    Listener.objects.create(tenant=cell.tenant, events=int(Event.EXPIRED))
    forget_lookups()
    waiting, claimed = cell.submit(start_in_s=3600, expires_in_s=7200), cell.submit(expires_in_s=3600)
    begun, blocked = cell.submit(expires_in_s=3600), cell.submit(depends_on=[str(waiting)], expires_in_s=7200)
    cell.round()
    (ran,) = cell.started(begun)
    cell.worker.end([ran], Outcome.FAILED, error="ValueError: no")
    assert LiveTask.objects.unscoped().get(pk=begun).expires_at is None, "it has started once: its retry is free"
    with connection.cursor() as cur:
        cur.execute("UPDATE slackwater_tasks_livetask SET expires_at = clock_timestamp() - interval '1 ms'"
                    " WHERE expires_at IS NOT NULL")  # fmt: skip
    assert cell.started(claimed) == [], "a claim that comes too late starts nothing"
    upkeep = LedgerUpkeep(cell.worker.conf, lambda changes: None)
    try:
        assert upkeep.expire_late() == 3
    finally:
        upkeep.db.close()
    rows = {row.pk: row for row in Task.objects.unscoped().all()}
    assert [rows[i].state for i in (waiting, claimed, blocked, begun)] == [TaskState.EXPIRED] * 3 + [None]
    assert rows[waiting].start_at == rows[waiting].submitted_at + timedelta(hours=1)
    assert rows[waiting].expires_at == rows[waiting].submitted_at + timedelta(hours=2)
    assert rows[claimed].reason.startswith("it was not started before it expired: 20")
    told = Outbox.objects.unscoped().filter(events=Event.EXPIRED)
    assert {row.task_id for row in told} == {waiting, claimed, blocked}
    past = cell.client.get(f"/tasks/{claimed}/history").body["items"][-1]
    assert (past["from"], past["to"], past["reason"]) == ("queued", "expired", rows[claimed].reason)
