"""What others wait for is as pressing as they are, and of a workflow the longest path goes first."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import redis
from django.db import connection

from scheduler_ext.core.states import Category, Outcome
from slackwater_conf import conf
from slackwater_resources.models import Handler
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.edit import edit
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.control.workflow_rerun import rerun
from slackwater_tasks.explain.explanation import explain
from slackwater_tasks.ledger import active_policies
from slackwater_tasks.ledger.connection import fetch_all
from slackwater_tasks.ledger.preemption_store import PgTurnStore
from slackwater_tasks.models import LiveTask, RunTime
from slackwater_tasks.submission.service import submit, submit_workflow
from slackwater_tasks.upkeep.reranking import READ, _place
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope
from tests.support.api import HANDLER, client_of, furnish
from tests.support.cell import Cell
from tests.support.hand_worker import HandWorker

pytestmark = pytest.mark.django_db


def hand_in(tenant: Tenant, *needs: str, **fields: Any) -> UUID:
    return submit(tenant, {"handler": HANDLER, "depends_on": list(needs), **fields}).task_ids[0]


def stand(task: UUID) -> tuple[int, str]:
    """Priority, and the category of the line it stands in."""
    live = LiveTask._plain.select_related("line").get(pk=task)
    return live.priority, Category(live.line.category).name.lower()


@pytest.mark.parametrize("extra", [0, 8])
def test_a_workflow_is_ordered_by_its_graph_when_it_is_submitted(tenant: Tenant, extra: int) -> None:
    """By one statement for a few, by COPY for many."""
    RunTime.objects.create(tenant=tenant, key=HANDLER, samples=9, mean_us=2_000_000)
    names: dict[str, list[str]] = {"start": [], "long": ["start"], "longer": ["long"], "short": ["start"]}
    tasks: list[dict[str, Any]] = [
        {"name": name, "handler": HANDLER, "depends_on": needs} for name, needs in names.items()
    ]
    tasks[2] |= {"category": "urgent", "priority": 7}
    tasks += [{"name": f"more{n}", "handler": HANDLER} for n in range(extra)]
    ids = submit_workflow(tenant, {"name": "flow", "tasks": tasks}).task_ids
    live = {name: LiveTask._plain.get(pk=task) for name, task in zip(names, ids, strict=False)}
    assert [live[name].path_us for name in names] == [6_000_000, 4_000_000, 2_000_000, 2_000_000]
    works = LiveTask._plain.filter(pk__in=ids).values_list("work_us", flat=True)
    assert set(works) == {2_000_000 * len(ids)}, "a workflow ends with its last task: what nothing connects counts too"
    assert [stand(task) for task in ids[:4]] == [(7, "urgent")] * 3 + [(0, "delayable")]
    assert live["start"].rank < live["long"].rank < live["longer"].rank
    assert [stand(task) for task in ids[4:]] == [(0, "delayable")] * extra
    chosen = active_policies.read(fetch_all, conf().scheduler, "default")
    with connection.cursor() as cursor:
        cursor.execute(READ, (UUID(int=0), "default", 100))
        kept = [(row[3], row[4]) == _place(chosen, row) for row in cursor.fetchall()]
    assert kept == [True] * (4 + extra), "a change of order that changes nothing moves nothing"


def test_a_dependant_presses_what_was_there_before_and_lets_it_go_again(tenant: Tenant) -> None:
    first = hand_in(tenant)
    second = hand_in(tenant, str(first), priority=3)
    other = hand_in(tenant)
    assert stand(first) == (3, "delayable")
    last = hand_in(tenant, str(second), priority=1000, category="urgent")
    assert [stand(task) for task in (first, second, other)] == [(1000, "urgent")] * 2 + [(0, "delayable")]
    ranks = {row.pk: (row.rank_group, row.rank) for row in LiveTask._plain.all()}
    assert ranks[first] < ranks[other]
    edit(tenant.pk, last, {"priority": 9, "category": "delayable"})
    assert stand(second) == (9, "delayable")
    assert stand(first) == (9, "urgent"), "what is ready stays urgent: it may have been promoted"
    edit(tenant.pk, second, {"priority": 20})
    assert (stand(first)[0], stand(second)[0]) == (20, 20)
    edit(tenant.pk, second, {"priority": 1})
    assert (stand(first)[0], stand(second)[0]) == (9, 9), "what needs it presses it still"


def test_what_runs_again_keeps_its_place_and_its_explanation_names_who_gives_it(tenant: Tenant) -> None:
    RunTime.objects.create(tenant=tenant, key=HANDLER, samples=9, mean_us=2_000_000)
    flow = [
        {"name": "start", "handler": HANDLER, "total_attempts": 1},
        {"name": "middle", "handler": HANDLER, "depends_on": ["start"]},
        {"name": "end", "handler": HANDLER, "depends_on": ["middle"], "category": "urgent", "priority": 7},
    ]
    made = submit_workflow(tenant, {"tasks": flow})
    ids, worker = made.task_ids, HandWorker()
    before = [(LiveTask._plain.get(pk=task).path_us, *stand(task)) for task in ids]
    assert before == [(path, 7, "urgent") for path in (6_000_000, 4_000_000, 2_000_000)]
    worker.end(worker.start(ids[0]), Outcome.FAILED)
    assert made.workflow_id is not None
    assert set(rerun(tenant, made.workflow_id)) == set(ids)
    after = [(LiveTask._plain.get(pk=task).path_us, *stand(task)) for task in ids]
    assert after == [*before[:2], (None, 7, "urgent")], "nothing waits for the last"
    with tenant_scope(tenant.pk):
        urgent, priority, path = explain(ids[0])["place"]
        assert explain(ids[2])["place"] == []
    assert urgent == f"It stands in the urgent line, because end ({ids[2]}), which needs it, is urgent."
    assert priority == f"It has the priority 7 of end ({ids[2]}), which needs it; its own is 0."
    assert path.startswith("The longest path from it to an end of its graph takes 6 s")


def test_a_dependant_that_runs_again_presses_what_it_waits_for(tenant: Tenant) -> None:
    first = hand_in(tenant)
    second = hand_in(tenant, str(first), priority=9)
    cancel(tenant.pk, second)
    edit(tenant.pk, first, {"priority": 1})
    assert stand(first)[0] == 1
    retry(tenant.pk, second)
    assert stand(first)[0] == 9


@pytest.mark.django_db(transaction=True)
def test_what_makes_room_is_placed_by_its_path_again(redis_client: redis.Redis, settings: Any) -> None:
    cell = Cell(redis_client, settings)
    try:
        flow = [{"name": "a", "handler": HANDLER}, {"name": "b", "handler": HANDLER, "depends_on": ["a"]}]
        cell.worker.start(submit_workflow(cell.tenant, {"tasks": flow}).task_ids[0])
        Handler.objects.filter(name=HANDLER).update(idempotent=True)
        cell.store.view(8)
        (turn,) = PgTurnStore(cell.store).turns(idempotent=True)
        assert (turn.ranked.path_us, turn.ranked.work_us) == (2_000_000, 2_000_000)
    finally:
        cell.store.db.close()


def test_its_history_says_why_it_goes_before_others() -> None:
    furnish()
    client = client_of("acme")
    parent = client.task()
    client.task(depends_on=[parent], priority=5)
    past = client.get(f"/tasks/{parent}/history").body["items"]
    assert "needs it" in past[-1]["reason"]
    assert client.get(f"/tasks/{parent}").body["priority"] == 0, "its own stays what was submitted"


def test_what_is_pressed_keeps_to_its_labels(tenant: Tenant) -> None:
    first = hand_in(tenant, require_labels=["gpu=a100"], prefer_labels=["zone=eu"])
    hand_in(tenant, str(first), category="urgent")
    flow = [
        {"name": "a", "handler": HANDLER, "require_labels": ["gpu=a100"], "prefer_labels": ["zone=eu"]},
        {"name": "b", "handler": HANDLER, "depends_on": ["a"], "category": "urgent"},
    ]
    second = submit_workflow(tenant, {"tasks": flow}).task_ids[0]
    for task in (first, second):
        line = LiveTask._plain.select_related("line").get(pk=task).line
        assert (line.category, line.require_labels, line.prefer_labels) == (Category.URGENT, ["gpu=a100"], ["zone=eu"])
