"""What a busy node has claimed and not begun goes to one that idles, and runs once."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
import redis
from django.test import Client

from scheduler_ext.conf import SchedulerConf
from slackwater_resources.models import Node
from slackwater_tasks.ledger.transitions import start_if_queued
from slackwater_tasks.models import LiveTask, TaskEvent
from slackwater_tasks.upkeep.jobs import LedgerUpkeep
from tests.support.cell import Cell, sql
from tests.support.hand_worker import HandWorker, raw_cursor

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cell(redis_client: redis.Redis) -> Iterator[Cell]:
    made = Cell(redis_client)
    yield made
    made.store.db.close()


@pytest.fixture
def upkeep() -> Iterator[LedgerUpkeep]:
    made = LedgerUpkeep(SchedulerConf(), lambda changes: None)
    yield made
    made.db.close()
    made.work.close()


def age() -> None:
    """All that is claimed now has been for a while."""
    sql("UPDATE slackwater_tasks_livetask SET queued_at = queued_at - interval '5 seconds' WHERE node_id IS NOT NULL")


def nodes_of(*task_ids: UUID) -> list[int | None]:
    rows = LiveTask.objects.unscoped().in_bulk(task_ids)  # the test is no tenant
    return [rows[task_id].node_id for task_id in task_ids]


def test_unbegun_claims_go_to_an_idle_node_and_start_once(cell: Cell, upkeep: LedgerUpkeep) -> None:
    steal, busy = upkeep.stealing.steal, cell.worker
    cell.round()  # the first one finds Redis new, and takes everything back
    first, *waiting = [cell.submit() for _ in range(4)]
    busy.start(first)
    claims = busy.claim(*waiting)
    assert "idle node" in cell.explain(waiting[0])["summary"]
    age()
    assert steal() == 0, "there is no other node"
    idle = HandWorker("hand-2")
    Node.objects.filter(pk=idle.node.pk).update(slots={"process": 2}, handlers=[])
    assert steal() == 0, "it may not run them"
    Node.objects.filter(pk=idle.node.pk).update(handlers=busy.node.handlers)
    own = cell.submit()
    mine = idle.claim(own)
    age()
    assert steal() == 0, "its own queue does not move"
    sql("UPDATE slackwater_tasks_livetask SET queued_at = now() WHERE task_id = %s", own)
    assert steal() == 1, "it has one slot left"
    assert nodes_of(first, own, *waiting) == [busy.node.pk, idle.node.pk, None, busy.node.pk, busy.node.pk]
    cell.round()
    assert nodes_of(waiting[0]) == [idle.node.pk], "another node than the one it came from"
    with raw_cursor() as cur:
        started = start_if_queued(cur, busy.node.pk, claims)
        assert {one.task_id for one in started} == {str(each) for each in waiting[1:]}, "the first has lost its claim"
        (claim,) = LiveTask.objects.unscoped().filter(pk=waiting[0]).values_list("fence", flat=True)
        assert claim == claims[0][1] + 1
        assert len(start_if_queued(cur, idle.node.pk, [*mine, (str(waiting[0]), claim)])) == 2
    age()
    assert steal() == 0, "what has begun stays where it is"
    (event,) = TaskEvent.objects.unscoped().filter(task_id=waiting[0])
    assert (event.actor, event.reason) == ("upkeep", "taken back from node hand-1: idle node hand-2")
    assert 'slackwater_claims_stolen_total{cell="default"} 1.0' in Client().get("/metrics").content.decode()


def test_what_was_taken_back_does_not_go_to_and_fro(cell: Cell, upkeep: LedgerUpkeep) -> None:
    there = HandWorker("hand-2")
    task = cell.submit(mutex_key="one")
    cell.worker.claim(task)
    assert upkeep.stealing.steal() == 0, "it was claimed a moment ago"
    age()
    assert upkeep.stealing.steal() == 1
    there.claim(task)
    age()
    assert upkeep.stealing.steal() == 0, "it comes from the only other node"
    HandWorker("hand-3")
    assert upkeep.stealing.steal() == 1
    off = LedgerUpkeep(SchedulerConf(steal_after_s=0), lambda changes: None)
    there.claim(task)
    age()
    assert off.stealing.steal() == 0
