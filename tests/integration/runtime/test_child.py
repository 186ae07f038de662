"""A pool child in this process: what the journal cannot hold is recorded in parts, what is new is soon learnt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from celery import Celery

from scheduler_ext.core.run_times import LEARNT_FROM
from scheduler_ext.core.states import Outcome, TaskState
from scheduler_ext.core.work import Changes, Finished
from scheduler_ext.worker import journal
from scheduler_ext.worker.child.handler_call import End
from scheduler_ext.worker.child.recorder import Begun
from scheduler_ext.worker.child.slice import Child
from slackwater_tasks.models import Attempt, RunTime, Task
from slackwater_tasks.runtime.work_store import PgWorkStore
from slackwater_tasks.submission.service import submit_many
from tests.support.api import client_of, furnish
from tests.support.pool_child import pool_child
from tests.support.rounds import Rounds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
TASKS = 7
recorded: list[int] = []
app = Celery("test_child", broker="memory://", set_as_current=False)


@app.task(name="journal.echo", shared=False)  # else every other app would have it
def echo(value: Any) -> Any:
    return value


class Counting(PgWorkStore):
    """Notes how many ends each call has."""

    def record(self, node_id: int, finished: Sequence[Finished]) -> Changes:
        recorded.append(len(finished))
        return super().record(node_id, finished)


@pytest.fixture
def cell(redis_client: Any) -> Iterator[Rounds]:
    furnish()
    recorded.clear()
    made = Rounds()
    yield made
    made.close()


@pytest.fixture
def child(cell: Rounds, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    with pool_child(app, cell, monkeypatch, echo, lambda name: Counting(cell.conf, name)) as made:
        yield made


def test_what_the_journal_cannot_hold_is_recorded_on_the_way_and_nothing_twice(
    cell: Rounds, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "BLOB_BYTES", 3 * len(End(Outcome.SUCCEEDED, '"0123456789"').pack()))
    child.journal.listened = True
    texts = [f"012345678{n}" for n in range(TASKS)]
    tenant = client_of("full").tenant
    submit_many(tenant, [{"handler": "journal.echo", "args": [text]} for text in texts])
    ids = list(Task.objects.unscoped().order_by("id").values_list("pk", flat=True))  # unscoped: of all tenants
    heard: list[tuple[Any, Any]] = []
    monkeypatch.setattr(child.recorder.events, "add", lambda task, finished: heard.append((task, finished)))
    slot = child.recorder.slot()
    claims = cell.worker.claim(*ids)
    slot.open(claims)
    started = child.store.start(cell.worker.node.pk, claims)
    assert child._batch(Begun(slot, cell.worker.node.pk, started, 0), last=True) == TASKS
    wait_until(child.recorder.idle, message="the rest is recorded")
    attempts = (
        Attempt.objects.unscoped().order_by("task_id").values_list("outcome", "error")
    )  # unscoped: of all tenants
    assert list(attempts) == [(Outcome.SUCCEEDED, "")] * TASKS
    rows = list(
        Task.objects.unscoped().order_by("id").values_list("state", "result", "error")
    )  # unscoped: of all tenants
    assert rows == [(TaskState.SUCCEEDED, text, "") for text in texts]
    assert recorded == [4, 1, 1, 1], "it holds three"
    wait_until(lambda: len(heard) == TASKS, message="who listens hears of each")
    assert [(task.task_id, finished.task_id) for task, finished in heard] == [(str(each), str(each)) for each in ids]


def learnt() -> int:
    """How many runs are learnt from."""
    return sum(RunTime.objects.values_list("samples", flat=True))


def test_run_times_of_what_is_new_are_told_soon_and_later_ones_together(
    cell: Rounds, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler_ext.worker.child.slice.LEARN_FIRST_S", 0.0)
    monkeypatch.setattr("scheduler_ext.worker.child.slice.LEARN_EVERY_S", 3600.0)
    tenant = client_of("new").tenant
    submit_many(tenant, [{"handler": "journal.echo", "args": [n]} for n in range(LEARNT_FROM + 2)])
    ids = list(Task.objects.unscoped().order_by("id").values_list("pk", flat=True))  # unscoped: of all tenants
    for number, each in enumerate(ids, start=1):
        slot = child.recorder.slot()
        claims = cell.worker.claim(each)
        slot.open(claims)
        started = child.store.start(cell.worker.node.pk, claims)
        child._batch(Begun(slot, cell.worker.node.pk, started, 0), last=True)
        assert learnt() == min(number, LEARNT_FROM)
    child._learn()
    assert learnt() == LEARNT_FROM + 2
