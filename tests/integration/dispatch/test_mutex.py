"""Mutex keys: the ledger decides who holds one, the lock in Redis mirrors it, and its fence rises with every grant.

And workflows that are limited, or have a share of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
import redis
from django.db import connection

from scheduler_ext.core.errors import InvalidInput
from scheduler_ext.core.states import Category, Outcome, TaskState
from scheduler_ext.core.work import Lock
from scheduler_ext.dispatch.dispatcher import ROUND_INTERVAL_S, Dispatcher
from scheduler_ext.dispatch.keys import Keys
from scheduler_ext.dispatch.mutex import RENEWALS, LockMirror
from slackwater_tasks.control.edit import edit
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.control.workflows import add_tasks, cancel_workflow
from slackwater_tasks.ledger.transitions import unpark
from slackwater_tasks.models import Line, LiveTask
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import submit_workflow
from slackwater_tasks.upkeep import ended_workflows
from tests.support.api import HANDLER
from tests.support.cell import Cell, sql
from tests.support.hand_worker import raw_cursor

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cell(redis_client: redis.Redis) -> Iterator[Cell]:
    made = Cell(redis_client)
    try:
        yield made
    finally:
        made.store.db.close()


def live(task_id: UUID) -> LiveTask:
    return LiveTask.objects.unscoped().get(pk=task_id)  # the test is no tenant


def free(cell: Cell) -> None:
    with raw_cursor() as cur:
        unpark(cur, [f"{cell.tenant.pk}:door"])


# -- the lock ---------------------------------------------------------------------------------------------------------
def test_the_lock_is_renewed_replaced_by_later_holders_only_and_removed_by_its_own(
    redis_client: redis.Redis,
) -> None:
    keys = Keys("test")
    mirror, other = LockMirror(redis_client, keys, 60.0), LockMirror(redis_client, keys, 60.0)
    name = keys.mutex("1:door")
    mirror.follow(lambda: [Lock("1:door", 1, "a", 7)], new=True)
    assert redis_client.get(name) == b"7:a"
    assert 50_000 < redis_client.pttl(name) <= 60_000
    other.follow(lambda: [Lock("1:door", 1, "late", 3)], new=True)
    assert redis_client.get(name) == b"7:a", "an earlier holder has taken the lock"
    other.follow(list, new=True)
    assert redis_client.get(name) == b"7:a", "another holder's lock was removed"
    mirror.follow(lambda: [Lock("1:door", 1, "b", 8)], new=True)
    assert redis_client.get(name) == b"8:b"
    redis_client.pexpire(name, 1_000)
    mirror._renewed = float("-inf")
    mirror.follow(lambda: [Lock("1:door", 1, "b", 8)], new=False)
    assert redis_client.pttl(name) > 50_000, "it was not renewed"
    redis_client.delete(name)
    mirror._renewed = float("-inf")
    mirror.follow(lambda: [Lock("1:door", 1, "b", 8)], new=False)
    assert redis_client.get(name) == b"8:b", "Redis was emptied, and it stayed so"
    mirror.follow(list, new=True)
    assert redis_client.get(name) is None


def test_several_holders_have_a_lock_each(redis_client: redis.Redis) -> None:
    keys = Keys("test")
    mirror = LockMirror(redis_client, keys, 60.0)
    mirror.follow(lambda: [Lock("1:x", 2, "a", 1), Lock("1:x", 2, "b", 2)], new=True)
    assert [redis_client.get(keys.mutex("1:x", holder)) for holder in "ab"] == [b"1:a", b"2:b"]


def test_nothing_is_asked_where_nobody_uses_a_key(redis_client: redis.Redis) -> None:
    mirror = LockMirror(redis_client, Keys("test"), 60.0)
    asked: list[int] = []

    def holders() -> list[Lock]:
        asked.append(1)
        return []

    for _ in range(10):
        mirror.follow(holders, new=False)
    assert len(asked) <= 1


def test_a_lock_outlives_its_dispatcher_until_the_next_leads(cell: Cell) -> None:
    """However long ago it was renewed, it lasts until another may take the lead, and looks for it."""
    holder = cell.submit(mutex_key="door")
    assert cell.claimed(holder)
    name = cell.dispatcher.queues.keys.mutex(f"{cell.tenant.pk}:door")
    conf, life_s = cell.dispatcher.conf, cell.dispatcher.locks.life_s
    left_s = cell.dispatcher.queues.client.pttl(name) / 1000
    assert left_s > life_s - 20
    assert left_s - life_s / RENEWALS > conf.leader_lease_s + conf.leader_renew_s + ROUND_INTERVAL_S
    next_one = Dispatcher(cell.store, cell.dispatcher.queues, conf, "another")
    cell.dispatcher.queues.client.delete(name)
    next_one.locks.follow(cell.store.locks, new=False)
    assert cell.dispatcher.queues.client.get(name) == f"{live(holder).mutex_fence}:{holder}".encode()


# -- the ledger -------------------------------------------------------------------------------------------------------
def test_the_fence_of_a_key_rises_with_every_grant_whichever_task_gets_it(cell: Cell) -> None:
    first, second = cell.submit(mutex_key="door"), cell.submit(mutex_key="door")
    name = cell.dispatcher.queues.keys.mutex(f"{cell.tenant.pk}:door")
    work = PgWorkStore(cell.worker.conf, "test", cell.store.db)
    assert cell.claimed(first)
    before = live(first).mutex_fence
    assert before is not None
    assert cell.dispatcher.queues.client.get(name) == f"{before}:{first}".encode()
    assert work.mutex_fence(str(first), live(first).fence) == before
    assert work.mutex_fence(str(first), live(first).fence - 1) is None, "a lost claim still has its hold"
    assert live(second).state == TaskState.BLOCKED
    cell.worker.end(cell.started(first))
    free(cell)
    assert cell.claimed(second)
    after = live(second).mutex_fence
    assert after is not None
    assert after > before
    assert live(second).fence <= 1, "the claim's own fence says nothing about the key"
    assert cell.dispatcher.queues.client.get(name) == f"{after}:{second}".encode()


def test_a_holder_that_is_to_run_later_blocks_nobody(cell: Cell) -> None:
    cell.worker.conf = replace(cell.worker.conf, retry_base_s=3600.0)
    failed = cell.submit(mutex_key="door")
    cell.worker.run(failed, outcome=Outcome.FAILED, error="boom")
    later = cell.submit(mutex_key="door", start_at="2090-01-01T00:00:00Z")
    now = cell.submit(mutex_key="door")
    assert [live(t).state for t in (failed, later)] == [TaskState.SCHEDULED] * 2
    assert cell.claimed(now)


@pytest.mark.parametrize(("scope", "excluded"), [("both", ["a", "b"]), ("dependent", ["b"]), ("independent", ["a"])])
def test_a_key_spans_dependent_work_independent_work_or_both(cell: Cell, scope: str, excluded: list[str]) -> None:
    """While another task holds the key, what stands outside its scope starts."""
    holder = cell.submit(mutex_key="door")
    cell.worker.start(holder)
    key = {"handler": HANDLER, "mutex_key": "door", "mutex_scope": scope}
    root = {"name": "root", "handler": HANDLER}
    tasks = [root, {**key, "name": "a"}, {**key, "name": "b", "depends_on": ["root"]}]
    ids = dict(
        zip(
            ["root", "a", "b"],
            submit_workflow(cell.tenant, {"name": "w", "tasks": tasks}).task_ids,
            strict=True,
        )
    )
    cell.worker.run(ids["root"])
    cell.round()
    held = [name for name in "ab" if live(ids[name]).state != TaskState.QUEUED]
    assert held == excluded
    for name in held:
        edit(cell.tenant.pk, ids[name], {"priority": 5})
        assert live(ids[name]).mutex_key, "an edit lost the key"
    with connection.cursor() as cur:
        cur.execute(
            "SELECT DISTINCT mutex_scope FROM slackwater_tasks_task WHERE mutex_key = 'door' AND id <> %s", (holder,)
        )
        assert len(cur.fetchall()) == 1


# -- workflows with max_running ---------------------------------------------------------------------------------------
def test_a_workflow_runs_so_many_at_once_and_lets_its_tenant_go_on(cell: Cell) -> None:
    named = [{"name": f"t{n}", "handler": HANDLER} for n in range(4)]
    given = {"max_running": 2, "tasks": named}
    answer = cell.client.post("/workflows", given)
    assert answer.status == 201, answer.body
    ids, workflow_id = [UUID(each) for each in answer.body["task_ids"]], UUID(answer.body["id"])
    ids += add_tasks(cell.tenant, workflow_id, [{"name": "more", "handler": HANDLER}]).task_ids
    other = cell.submit()
    cell.round()
    assert [live(each).state for each in ids[:2]] == [TaskState.QUEUED] * 2
    cell.round()
    assert {live(each).state for each in ids[2:]} == {TaskState.BLOCKED}, "parked beside the line"
    assert live(other).state == TaskState.QUEUED, "the tenant's other work has passed"
    (why,) = cell.explain(ids[2])["blockers"]
    assert why["kind"] == "mutex"
    assert why["detail"].startswith("Its workflow runs at most 2 of its tasks at once (max_running), now ")
    cell.worker.end(cell.started(ids[0]))
    with raw_cursor() as cur:
        unpark(cur, [f"{cell.tenant.pk}:workflow {workflow_id}"])
    cell.round()
    assert sum(live(each).state == TaskState.QUEUED for each in ids[1:]) == 2
    assert cell.client.get(f"/workflows/{workflow_id}").body["max_running"] == 2
    for wrong, place in (
        ({"max_running": 0, "tasks": named}, "max_running"),
        ({"max_running": 1, "tasks": [{**named[0], "mutex_key": "door"}]}, "tasks[0].mutex_key"),
    ):
        with pytest.raises(InvalidInput) as refused:
            submit_workflow(cell.tenant, wrong)
        assert refused.value.field == place


# -- workflows with a share of their own -----------------------------------------------------------------------------
def test_a_workflow_with_a_share_leaves_its_tenants_other_work_its_part(cell: Cell) -> None:
    cell.resize(4)
    named = [{"name": f"t{n}", "handler": HANDLER} for n in range(6)]
    big = cell.client.post("/workflows", {"share_weight": 3, "tasks": named})
    assert big.status == 201, big.body
    ids, workflow_id = [UUID(each) for each in big.body["task_ids"]], UUID(big.body["id"])
    ids += add_tasks(cell.tenant, workflow_id, [{"name": "more", "handler": HANDLER}]).task_ids
    assert cell.client.get(f"/workflows/{workflow_id}").body["share_weight"] == 3
    others = [cell.submit() for _ in range(3)]
    cell.round()
    assert [sum(live(each).state == TaskState.QUEUED for each in some) for some in (ids, others)] == [3, 1]
    cell.worker.end(cell.started(others[0]))
    why = {one["kind"]: one["detail"] for one in cell.explain(ids[3])["blockers"]}
    assert why["share"].endswith(": its workflow, with a weight of 3 in its tenant's share, has had its share.")
    cell.round()
    assert live(others[1]).state == TaskState.QUEUED, "what the workflow holds counts"
    lines = Line.objects.unscoped().filter(workflow=workflow_id)  # the test is no tenant
    assert {live(each).line_id for each in ids} == set(lines.values_list("pk", flat=True))
    edit(cell.tenant.pk, ids[-1], {"category": "urgent"})
    assert live(ids[-1]).line_id in lines.filter(category=Category.URGENT).values_list("pk", flat=True)
    cancel_workflow(cell.tenant, workflow_id)
    delete_lines(cell)
    assert lines.count() == 2, "they stay until a minute after its end"
    assert not LiveTask.objects.unscoped().filter(pk__in=ids).exists()  # the test is no tenant
    with raw_cursor() as cur:
        ended_workflows.end(cur, 10)
    sql("UPDATE slackwater_tasks_workflow SET finished_at = finished_at - interval '2 minutes'")
    delete_lines(cell)
    assert not lines.exists()
    retry(cell.tenant.pk, ids[3])
    assert live(ids[3]).line_id == lines.get().pk, "made anew for what runs again"


def delete_lines(cell: Cell) -> None:
    with cell.store.db.conn.transaction():
        ended_workflows.delete_lines(cell.store.db.conn, 10)
