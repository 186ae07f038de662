"""Maps: one task for each element of a parent's result, and their results in its place."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from scheduler_ext.core.errors import Conflict, InvalidInput
from scheduler_ext.core.states import Outcome, TaskState
from slackwater_schedules.services import create_schedule, run_now
from slackwater_tasks.control import cancel, maps, workflows
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.control.resubmit import resubmit
from slackwater_tasks.control.workflow_rerun import rerun
from slackwater_tasks.ledger import sql
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.models import LiveTask, MapNode, Task, TaskEvent, Workflow
from slackwater_tasks.read import tasks as reading
from slackwater_tasks.submission import service, templates
from slackwater_tasks.upkeep import ended_workflows
from slackwater_tenants.models import CurrentCounter, Tenant
from slackwater_tenants.scoping import tenant_scope
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db


class Mapped:
    """A workflow: a list, a map over it, and what needs the map's result."""

    def __init__(self, tenant: Tenant, **fields: Any) -> None:
        self.tenant, self.hand = tenant, HandWorker(f"hand-{LiveTask._plain.count()}-{Workflow._plain.count()}")
        thumb = {"name": "thumb", "handler": HANDLER, "depends_on": ["list"], "map": {"over": "list"}, **fields}
        last = {"name": "last", "handler": HANDLER, "args": [{"$from": "thumb"}], "depends_on": ["thumb"]}
        found = service.submit_workflow(tenant, {"tasks": [{"name": "list", "handler": HANDLER}, thumb, last]})
        assert found.workflow_id is not None
        self.id = found.workflow_id
        self.list, self.thumb, self.last = found.task_ids

    def listed(self, result: Any) -> None:
        """The list ends, and upkeep has its turn."""
        self.hand.run(self.list, result=json.dumps(result))
        upkeep()

    def elements(self) -> list[UUID]:
        return list(MapNode._plain.get(pk=self.thumb).elements or ())

    def run(self, *places: int, **how: Any) -> None:
        elements = self.elements()
        self.hand.run(*(elements[n] for n in places), **how)

    def state(self, task_id: UUID) -> str:
        with tenant_scope(self.tenant.pk):
            return str(reading.task(task_id)["state"])

    def task(self, task_id: UUID) -> dict[str, Any]:
        with tenant_scope(self.tenant.pk):
            return reading.task(task_id)


def upkeep() -> int:
    """Its turn, of which the second finds nothing more."""
    count = maps.advance(fetch_all(sql.due.MAPS, [50]))
    assert not maps.advance(fetch_all(sql.due.MAPS, [50]))
    return count


def test_a_task_for_each_element_and_their_results_in_order(tenant: Tenant) -> None:
    given = {"over": "list", "path": "files", "item": "url", "index": "n"}
    flow = Mapped(tenant, map=given, args=[{"$from": "list", "path": "size"}], kwargs={"width": 200}, tags=["x"])
    assert not upkeep(), "it waits for its list"
    assert (flow.task(flow.thumb)["map"], flow.task(flow.thumb)["waiting_for"]) == (given, 1)
    flow.listed({"files": ["a", "b", {"c": 1}], "size": 9})
    elements = [flow.task(each) for each in flow.elements()]
    assert [each["name"] for each in elements] == ["thumb[0]", "thumb[1]", "thumb[2]"]
    assert [each["kwargs"]["url"] for each in elements] == ["a", "b", {"c": 1}]
    assert [each["kwargs"]["n"] for each in elements] == [0, 1, 2]
    assert all(each["kwargs"]["width"] == 200 and each["tags"] == ["x"] and not each["map"] for each in elements)
    assert all(each["depends_on"] == [flow.list] and each["args"] for each in elements), "they read the list's result"
    row = Workflow._plain.get(pk=flow.id)
    assert (row.task_count, row.edge_count) == (6, 2 + 6)
    for n in (2, 0):
        flow.run(n, result=json.dumps(f"done {n}"))
        assert not upkeep()
    assert (flow.state(flow.thumb), flow.state(flow.last)) == ("blocked", "blocked")
    flow.run(1, result="null")
    assert upkeep() == 1
    thumb = flow.task(flow.thumb)
    assert (thumb["state"], thumb["result"], thumb["reason"]) == ("succeeded", ["done 0", None, "done 2"], None)
    assert thumb["attempts"] == 0
    assert flow.state(flow.last) == "ready"
    flow.hand.run(flow.last)
    with connection.cursor() as cur:
        assert [ended.status for ended in ended_workflows.end(cur, 10)] == [3]
    assert not LiveTask._plain.exists()
    assert CurrentCounter.objects.get(pk=tenant.pk).unfinished == 0
    assert ended_workflows.delete(tenant.pk, flow.id) == 6
    assert not MapNode._plain.exists()


@pytest.mark.parametrize(
    ("result", "fields", "state", "told"),
    [
        ([], {}, "succeeded", None),
        ({"a": 1}, {}, "failed", "map over 'list': its result is no list, but object"),
        (None, {}, "failed", "map over 'list': its result is no list, but null"),
        (
            {"a": 1},
            {"map": {"over": "list", "path": "b"}},
            "failed",
            "map over 'list': the result of 'list' has no 'b'",
        ),
        (list(range(9)), {}, "failed", "map over 'list': the workflow has 12 tasks; the plan allows 10"),
        ([1, {"$from": "x"}], {}, "failed", "map over 'list': element 1 has the key $from"),
    ],
)
def test_what_is_no_list_or_too_long_fails_it(tenant: Tenant, result: Any, fields: Any, state: str, told: str) -> None:
    tenant.plan.max_dag_tasks = 10
    tenant.plan.save()
    flow = Mapped(tenant, **fields)
    flow.listed(result)
    found = flow.task(flow.thumb)
    assert (found["state"], (found["reason"] or "")[: len(told or "")]) == (state, told or "")
    assert found["result"] == ([] if state == "succeeded" else None)
    assert flow.state(flow.last) == ("ready" if state == "succeeded" else "cancelled")
    assert Task._plain.filter(workflow=flow.id).count() == 3


def test_a_list_that_did_not_come_and_limits(tenant: Tenant) -> None:
    flow = Mapped(tenant, total_attempts=1)
    cancel.cancel(tenant.pk, flow.list)
    upkeep()
    assert (flow.state(flow.thumb), flow.state(flow.last)) == ("cancelled", "cancelled")
    tenant.plan.max_waiting = 4
    tenant.plan.save()
    other = Mapped(tenant)
    blocker = service.submit(tenant, {"handler": HANDLER}).task_ids[0]
    other.hand.run(other.list, result="[1, 2]")
    assert maps.advance(fetch_all(sql.due.MAPS, [50])) == 1
    assert (other.elements(), other.state(other.thumb)) == ([], "blocked"), "there is no room for them"
    other.hand.run(blocker)
    MapNode._plain.update(retry_at=None)
    assert upkeep() == 1
    assert len(other.elements()) == 2


def test_elements_that_fail_run_again_alone_and_a_map_run_again_makes_them_anew(tenant: Tenant) -> None:
    flow = Mapped(tenant, total_attempts=1, webhook="")
    flow.listed([1, 2, 3])
    first = flow.elements()
    flow.run(0, 1, result="1")
    flow.run(2, outcome=Outcome.FAILED, error="no")
    assert upkeep() == 1
    found = flow.task(flow.thumb)
    assert (found["state"], found["reason"]) == ("failed", "1 of 3 elements did not succeed: [2] failed")
    assert flow.state(flow.last) == "cancelled"

    again = rerun(tenant, flow.id)
    assert set(again) == {first[2], flow.thumb, flow.last}, "from the failed: what succeeded stays"
    assert (flow.elements(), flow.task(flow.thumb)["waiting_for"]) == (first, 1)
    assert not upkeep()
    flow.run(2, result="3")
    assert upkeep() == 1
    assert (flow.task(flow.thumb)["result"], flow.state(flow.last)) == ([1, 1, 3], "ready")

    flow.hand.run(flow.last)
    assert set(rerun(tenant, flow.id, task_id=flow.list)) == {flow.list, flow.thumb, flow.last}, "from a chosen node"
    assert (flow.elements(), flow.state(flow.thumb), flow.task(flow.thumb)["waiting_for"]) == ([], "blocked", 1)
    assert {Task._plain.get(pk=each).workflow_id for each in first} == {None}, "the old ones stand by themselves"
    row = Workflow._plain.get(pk=flow.id)
    assert (row.task_count, row.edge_count) == (3, 2)
    flow.listed([7])
    (new,) = flow.elements()
    assert new not in first
    assert flow.task(new)["args"] == [7]
    flow.run(0, outcome=Outcome.FAILED, error="no")
    upkeep()
    assert flow.state(flow.thumb) == "failed"
    retry(tenant.pk, flow.thumb)
    assert flow.state(flow.thumb) == "blocked"
    assert upkeep() == 1
    assert flow.elements() not in ([], [new]), "a retry of the map itself: all of its elements"
    flow.run(0, result="49")
    assert upkeep() == 1
    assert flow.task(flow.thumb)["result"] == [49]
    copy = resubmit(tenant.pk, flow.thumb)
    assert (flow.task(copy)["map"], flow.task(copy)["depends_on"]) == ({"over": "list"}, [flow.list])
    assert upkeep() == 1
    assert len(MapNode._plain.get(pk=copy).elements or ()) == 1
    with connection.cursor() as cur:
        cur.execute("SELECT count(*) FROM slackwater_tasks_livetask WHERE pending < 0")
        assert cur.fetchone() == (0,)


def test_a_map_that_is_cancelled_takes_its_elements_with_it(tenant: Tenant) -> None:
    flow = Mapped(tenant)
    flow.listed([1, 2])
    running = flow.hand.start(flow.elements()[0])
    cancel.cancel(tenant.pk, flow.thumb)
    assert upkeep() == 1
    assert [flow.state(each) for each in flow.elements()] == ["running", "cancelled"]
    assert LiveTask._plain.get(pk=flow.elements()[0]).cancel_requested
    flow.hand.end(running, Outcome.CANCELLED)
    assert set(rerun(tenant, flow.id)) == {flow.thumb, flow.last, *flow.elements()}
    workflows.cancel_workflow(tenant, flow.id)
    assert upkeep() == 1
    assert set(Task._plain.filter(workflow=flow.id).exclude(pk=flow.list).values_list("state", flat=True)) == {
        TaskState.CANCELLED
    }
    assert TaskEvent._plain.filter(task_id=flow.thumb, reason="its 2 elements were made").count() == 1


def test_a_template_with_a_map_is_fired_and_outlives_an_upkeep_that_dies_at_each_step(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    thumb = {
        "name": "thumb",
        "handler": HANDLER,
        "depends_on": ["list"],
        "map": {"over": "list", "path": {"$param": "at"}},
    }
    graph = {"tasks": [{"name": "list", "handler": HANDLER, "args": [{"$param": "day"}]}, thumb]}
    needs = {
        "properties": {"day": {"type": "string"}, "at": {"type": "string", "default": "files"}},
        "required": ["day"],
    }
    templates.store(tenant, {"name": "thumbs", "parameters": needs, "workflow": graph})
    use = {"template": "thumbs", "parameters": {"day": "$fire_at"}}
    plan = {"name": "nightly", "kind": "daily", "overlap": "skip", "workflow": use}
    schedule = create_schedule(tenant, plan)
    fired = run_now(tenant.pk, schedule.pk)
    first, node = Task._plain.filter(workflow=fired.workflow_id).order_by("pk").values_list("pk", flat=True)
    hand = HandWorker()
    hand.run(first, result='{"files": [1, 2]}')

    def turn(dies_at: str) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(f"{maps.__name__}.{dies_at}", dying)
            due = fetch_all(sql.due.MAPS, [50])
            with pytest.raises(KeyboardInterrupt):
                maps.advance(due)

    def dying(*_: Any) -> None:
        raise KeyboardInterrupt

    turn("events.write")
    assert Task._plain.filter(workflow=fired.workflow_id).count() == 2, "half of it is nothing of it"
    assert upkeep() == 1
    elements = MapNode._plain.get(pk=node).elements or ()
    hand.run(*elements, result="0")
    turn("transitions.release")
    with pytest.raises(Conflict):
        run_now(tenant.pk, schedule.pk)
    assert upkeep() == 1
    ended = Task._plain.get(pk=node)
    assert (ended.state, ended.result, len(elements)) == (TaskState.SUCCEEDED, [0, 0], 2)
    assert Task._plain.filter(workflow=fired.workflow_id).count() == 4


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"map": {"over": "other"}}, "tasks[1].map.over"),
        ({"map": {}}, "tasks[1].map.over"),
        ({"map": {"over": "list", "as": "x"}}, "tasks[1].map.as"),
        ({"map": {"over": "list", "item": "x"}, "kwargs": {"x": 1}}, "tasks[1].map.item"),
        ({"map": ["list"]}, "tasks[1].map"),
    ],
)
def test_what_is_wrong_is_named(tenant: Tenant, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Mapped(tenant, **fields)
    assert refused.value.field == field
