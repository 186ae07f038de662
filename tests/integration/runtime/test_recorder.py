"""What ran while a batch was recorded is recorded by one statement, and nobody's end is lost with another's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from celery import Celery

from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.core.work import Changes, Finished, Started
from scheduler_ext.worker.child.recorder import Recorder
from scheduler_ext.worker.events import TaskEvents
from scheduler_ext.worker.journal import BATCHES, Journal
from slackwater_tasks.ledger.connection import connect
from slackwater_tasks.models import Task
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import submit_many
from slackwater_tenants.models import Tenant
from tests.support.api import furnish
from tests.support.rounds import Rounds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class Counting(PgWorkStore):
    """Notes how many ends each call has; refuses those of ``spoilt`` for good."""

    spoilt = ""

    def record(self, node_id: int, finished: Sequence[Finished]) -> Changes:
        calls.append(len(finished))
        if any(each.task_id == self.spoilt for each in finished):
            raise ValueError("no ledger takes this")
        return super().record(node_id, finished)


calls: list[int] = []


@pytest.fixture
def cell(redis_client: Any) -> Iterator[Rounds]:
    furnish()
    calls.clear()
    made = Rounds()
    yield made
    made.close()


@pytest.fixture
def store(cell: Rounds) -> Iterator[Counting]:
    made = Counting(cell.conf, "recorder")
    yield made
    made.close()


@pytest.fixture
def recorder(cell: Rounds, store: Counting) -> Recorder:
    journal = Journal(BATCHES)
    events = TaskEvents(Celery(set_as_current=False), "here")
    return Recorder(store, journal.slots_of(0), events, cell.queues, resume=lambda *_: [])


def put(recorder: Recorder, cell: Rounds, one: Started) -> None:
    now = time.time()
    ended = Finished(one.task_id, one.fence, Outcome.SUCCEEDED, now, now)
    recorder.put(recorder.slot(), cell.worker.node.pk, [ended], [], hint=False)


def states() -> list[int | None]:
    return list(Task.objects.unscoped().order_by("id").values_list("state", flat=True))  # unscoped: of all tenants


def running(cell: Rounds, tenant: Tenant) -> list[Started]:
    submit_many(tenant, [{"handler": "demo.echo"}] * BATCHES)
    cell.round()
    return sorted(cell.running, key=lambda one: one.task_id)


def test_what_ran_meanwhile_is_recorded_together(
    cell: Rounds, tenant: Tenant, recorder: Recorder, store: Counting
) -> None:
    first, *others = running(cell, tenant)
    with connect() as other, other.transaction():
        other.execute("SELECT 1 FROM slackwater_tasks_livetask WHERE task_id = %s FOR UPDATE", (first.task_id,))
        put(recorder, cell, first)
        wait_until(lambda: calls == [1], message="the first is being recorded")
        for one in others:
            put(recorder, cell, one)
        assert not recorder.idle()
    wait_until(recorder.idle, message="all is recorded")
    assert calls == [1, BATCHES - 1]
    assert states() == [TaskState.SUCCEEDED] * BATCHES


def test_one_that_the_ledger_refuses_takes_no_other_with_it(
    cell: Rounds, tenant: Tenant, recorder: Recorder, store: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = running(cell, tenant)
    store.spoilt = second.task_id
    with connect() as other, other.transaction():
        other.execute("SELECT 1 FROM slackwater_tasks_livetask WHERE task_id = %s FOR UPDATE", (first.task_id,))
        put(recorder, cell, first)
        wait_until(lambda: calls == [1], message="the first is being recorded")
        put(recorder, cell, second)
        put(recorder, cell, third)
    wait_until(recorder.idle, message="all slots are free")
    assert calls == [1, 2, 1, 1]
    assert states() == [TaskState.SUCCEEDED, None, TaskState.SUCCEEDED]
    assert "a batch of 1 could not be recorded" in caplog.text


def test_what_ran_beside_the_batches_is_recorded_and_one_refused_holds_nobody_up(
    cell: Rounds, tenant: Tenant, recorder: Recorder, store: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    tasks, now, node_id = running(cell, tenant), time.time(), cell.worker.node.pk
    store.spoilt = tasks[1].task_id
    ended = [Finished(one.task_id, one.fence, Outcome.SUCCEEDED, now, now) for one in tasks]
    changes, _ = recorder.beside(node_id, ended).result(20)
    assert [change[0] for change in changes] == [tasks[0].task_id, tasks[2].task_id]
    assert calls == [3, 1, 1, 1]
    assert states() == [TaskState.SUCCEEDED, None, TaskState.SUCCEEDED]
    assert f"the end of {tasks[1].task_id} could not be recorded" in caplog.text
    assert recorder.idle(), "none of it had a slot of the journal"
